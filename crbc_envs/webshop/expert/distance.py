"""How many steps a session is away from buying the product that its goal was made from."""

from __future__ import annotations

import math

from crbc_envs.webshop.shop.session import Session, parse


def distance(session: Session) -> float:
    """The least number of steps to a reward of 1 with the goal's own product; infinite where it cannot give 1.

    Search works on every page, and a query is taken to exist that finds the product. Another product may earn 1 too,
    and sooner; that is not looked for.
    """
    if session.reward is not None:
        return 0.0 if session.reward.total == 1.0 else math.inf
    goal, state, shop = session.goal, session.state, session.shop
    _, product = shop.product(goal.asin)
    target = _wanted(session)
    if target is None:
        return math.inf
    fresh = 1 + len(target) + 1  # from a results page that shows it: open, choose, buy
    ways = [1 + fresh]
    if state.kind == "results" and product.asin.lower() in session.page.clickables:
        ways.append(fresh)
    if state.kind in ("item", "details") and state.asin == product.asin:
        missing = sum(state.options.get(group) != value for group, value in target.items())
        ways.append((state.kind == "details") + missing + 1)
    return min(ways)


def _wanted(session: Session) -> dict[str, str] | None:
    """The option value to choose in each group that matters. None if the product cannot give a reward of 1."""
    goal, shop = session.goal, session.shop
    _, product = shop.product(goal.asin)
    asked = [option if isinstance(option, str) else option[1] for option in goal.options]
    options: dict[str, str] = {}
    for value in asked:
        group = next((name for name, values in product.options.items() if value in values), None)
        if group is None or parse(f"click[{value}]") is None:
            return None
        options[group] = value
    return options if shop.reward(goal, goal.asin, tuple(options.values())).total == 1.0 else None
