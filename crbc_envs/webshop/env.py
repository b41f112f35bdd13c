"""CRBC-WebShop-v0: buy the product of the instruction in at most fifteen steps (paper, "Environment Details")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from anchors import INVALID, anchor_key
from anchors.key import AnchorKind, check_anchor_kind
from crbc_envs.actions import Replies
from crbc_envs.core import AnchorEnv
from crbc_envs.spaces import UnicodeText
from crbc_envs.webshop.prompts import TEMPLATES
from crbc_envs.webshop.shop.goals import Goal, Kind
from crbc_envs.webshop.shop.open import open_shop
from crbc_envs.webshop.shop.pages import ANY_SEARCH, QUERY
from crbc_envs.webshop.shop.panels import Panel, make_panel, shop_seed
from crbc_envs.webshop.shop.session import OBSERVATIONS, Session, parse

if TYPE_CHECKING:
    from crbc_envs.core import Expert, Rows

SUCCESS_REWARD = 10.0

Observation = Literal["text_rich", "text", "html", "url"]


class WebShopEnv(AnchorEnv[str, Goal]):
    """WebShop's text environment, with a shop in this process.

    Actions are "search[words]" on every page, and "click[what]" for the elements of the page. `info` lists them;
    a search bar is listed as "search[<your query>]". Actions are read in lower case with single spaces. A click
    on an element that is not on the page is `anchors.INVALID`; in the original it is a step without effect.
    "Buy Now" ends the episode. The reward is 10 if the score of the purchase is exactly 1, which is success, and
    otherwise 0. `info["score"]` is the score, and `info["reward_parts"]` has its parts by their original names
    (`reward.Reward`).

    `observation` is "text_rich", "text", "html" or "url". `panel` is one of `panels.PANELS`, by default
    "by_kind" for generated products and "official" for official ones. `data` is the embedded catalogue or a
    generated shop in `data_dir`, or the official files there. `price_seed` seeds prices and price caps. Two
    arguments make the shop easier: `category` limits the embedded catalogue to "beauty", "electronics", "garden",
    "fashion" or "grocery", and `per_page` is the number of products on a results page. `info["reward_tagger"]`
    names the tagger that finds the nouns of titles; `tagger="spacy"` requires the original's model.

    `anchor` is the kind of anchor. "paper", the default, is the key of the page without the task. It is not a Markov
    state: the reviews page is one anchor for all products, details pages hide the options, results pages the
    visited products of other pages, and item pages the query and the visited products. In "text", options are
    hidden too, and in "text_rich" some of them, so "Buy Now" at one anchor can both succeed and fail. "situation" is
    the same, because an invalid reply leaves the page. So is "observation", except where an agent sees no page: for
    "html" and "url" it is the key of the document and of the address. "state" is the key of everything the future
    depends on: page, product, options, query, page number, visited products.
    """

    domain = "webshop"
    templates = TEMPLATES
    dataset = "crbc_envs.webshop.shop.official:DATASET"
    placeholder = QUERY
    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        split: str = "train",
        observation: Observation = "text_rich",
        anchor: AnchorKind = "paper",
        panel: Panel | None = None,
        goals: Kind = "synthetic",
        data: Literal["generated", "official"] = "generated",
        data_dir: str | None = None,
        price_seed: int = 0,
        tagger: Literal["auto", "spacy", "fallback"] = "auto",
        category: str | None = None,
        per_page: int = 10,
        max_steps: int = 15,
        replies: Replies = "thought",
        render_mode: str | None = None,
    ) -> None:
        choices = (("observation", observation, OBSERVATIONS), ("render_mode", render_mode, (None, "ansi")))
        for name, value, known in choices:
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(str, known))}; got {value!r}")
        check_anchor_kind(anchor)
        panel = panel or ("by_kind" if data == "generated" else "official")
        seed = shop_seed(panel, split, price_seed)
        self.shop = open_shop(data, data_dir, goals, seed, tagger, category, per_page)
        super().__init__(make_panel(self.shop, panel, split), max_steps, replies)
        self.data = data
        self.observation, self.anchor = observation, anchor
        self.render_mode = render_mode
        self.action_space = UnicodeText(examples=(ANY_SEARCH, "click[back to search]", "click[buy now]"))
        self.observation_space = UnicodeText()
        self.session: Session

    def _begin(self, task: Goal) -> None:
        self.session = Session(self.shop, task, "shopper")

    def _executable(self, requested: str | None) -> str:
        """Also accepts actions that are not listed: any search, and clicks as the original parses them."""
        if requested is not None and self.session.executable(requested):
            return "{}[{}]".format(*parse(requested) or ())
        return super()._executable(requested)

    def _execute(self, action: str) -> float:
        if action != INVALID:
            self.session.act(action)
        return SUCCESS_REWARD if self._success() else 0.0

    def _observation(self) -> str:
        return self.session.observation(self.observation)

    def _anchor(self) -> str:
        return self.anchor_as(self.anchor)

    def _label(self) -> str:
        return self._own_payload(self.anchor) or self.session.page.payload(self.observation)

    def anchor_as(self, kind: str) -> str:
        check_anchor_kind(kind)
        payload = self._own_payload(kind)
        return self.session.page.anchor(self.observation) if payload is None else anchor_key(payload)

    def _own_payload(self, kind: str) -> str | None:
        """What the anchor of a kind is the key of; None for the page's own payload."""
        if kind == "state":
            return self.session.state.text()
        return self._observation() if kind == "observation" and self.observation in ("html", "url") else None

    def distance(self) -> float:
        """The steps to the purchase of the goal's own product."""
        from crbc_envs.webshop.expert.distance import distance

        return distance(self.session)

    def _admissible(self) -> tuple[str, ...]:
        return self.session.page.actions

    def _success(self) -> bool:
        return self._score() == 1.0

    def _ended(self) -> bool:
        return self.session.reward is not None

    def _score(self) -> float:
        return self.session.reward.total if self.session.reward else 0.0

    def expert(self, rng: np.random.Generator, **options: Any) -> Expert:
        from crbc_envs.webshop.expert.expert import make_expert

        shopper = make_expert(self.max_steps, rng, **options)
        if self.observation == "text_rich":
            return shopper
        return lambda _, info: shopper(self.session.observation("text_rich"), info)  # it reads this form alone

    def traits(self) -> dict[str, str]:
        """The product that the goal was made from, and its kind."""
        goal = self.session.goal
        return {"product": goal.asin, "kind": self.shop.catalogue[goal.product].query}

    def near_traits(self) -> dict[str, list[str]]:
        """The products that win the goal, and their kinds. None in a shop that is too large to compare them all."""
        from crbc_envs.webshop.shop.kinds import COMPARED, winners

        if len(self.shop.catalogue) > COMPARED:
            return {}
        products = [self.shop.catalogue[number] for number in winners(self.shop).of(self.session.goal)]
        return {"product": [product.asin for product in products], "kind": [product.query for product in products]}

    @property
    def reward_tagger(self) -> str:
        return self.shop.tagger

    def page(self) -> Rows:
        from crbc_envs.webshop.shop.layout import rows

        return rows(self.session)

    def _info(self) -> dict[str, Any]:
        info = super()._info()
        info["reward_tagger"] = self.reward_tagger
        if self.session.reward:
            info["reward_parts"] = self.session.reward.parts()
        return info

    def render(self) -> str | None:
        return self.session.observation("text_rich") if self.render_mode == "ansi" else None
