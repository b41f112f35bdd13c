"""Token ids of chats: the template's control tokens are tokens, and those that a text spells stay text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from itertools import chain, cycle

from transformers import PreTrainedTokenizerBase as Tokenizer

from crbc_rl.errors import ConfigError
from crbc_rl.policies.files import as_config_error

TAGS = ("<think>", "</think>", "<action>", "</action>")
"""The parts of a reply. Every prompt names them, and a tokenizer may have one token for each."""

DAY = datetime(2024, 7, 26)
"""Today, in templates that name the date, as in Llama's where they cannot know it. So a run has one day's prompts."""
_NOW = re.compile(r"strftime_now\((['\"])(.*?)\1\)")

_EACH = re.compile("(.)", re.DOTALL)


class ChatTokens:
    """Encodes the messages before a reply, with a tokenizer and its chat template.

    A page, a task or an observation may contain "<|im_end|>". As a token it would end the message, and the text after
    it could pose as the system's. So it is encoded as other text is. A text that spells no control token has exactly
    the ids of the tokenizer's `apply_chat_template`, on `DAY` where the template names the date.

    `placeholder` in a message stands for `meant`, control tokens that are wanted there. Raises `ConfigError` for a
    tokenizer without a chat template. The library renders it in Jinja's sandbox.
    """

    def __init__(self, tokenizer: Tokenizer, placeholder: str = "", meant: str = "") -> None:
        self.tokenizer, self.placeholder, self.meant = tokenizer, placeholder, meant
        try:
            source = str(tokenizer.get_chat_template())
        except ValueError as error:
            raise ConfigError(
                f"{tokenizer.name_or_path}: the model has no chat template: take its instruct version, or put its "
                "chat_template.jinja there"
            ) from error
        control = {
            number: token.content
            for number, token in tokenizer.added_tokens_decoder.items()
            if token.content not in TAGS and (token.special or _is_control(token.content, source))
        }
        self._control = control
        dated = _NOW.sub(lambda found: repr(DAY.strftime(found[2])), source)
        self._template = None if dated == source else dated  # None: the tokenizer's own
        longer = "|".join(re.escape(content) for content in control.values() if len(content) > 1)
        self._first = re.compile(f"(?=(?:{longer or '(?!)'}))(.)", re.DOTALL)
        """The first character of every control token in a text."""
        self._expected: dict[tuple[bool, int, int], int] = {}

    def encode(self, text: str, system: str | None = None, places: int = 0, earlier: Sequence[str] = ()) -> list[int]:
        """Token ids of a user message, after a system message if there is one and the `earlier` texts of the user and
        the assistant in turn, up to the start of the reply.

        The user's texts have `places` placeholders, or some that are text, and then `places` is 0. Raises `ConfigError`
        where the template fails or makes an empty prompt.
        """
        texts = (*earlier, text)
        said = [t.split(self.placeholder) if places and k % 2 == 0 else [t] for k, t in enumerate(texts)]
        ids = self._ids(self._render(said, system))
        if not ids:
            raise ConfigError("the model's chat template makes an empty prompt")
        own = self._own(system is not None, len(said), places)
        if self._count(ids) == own:
            return ids
        # A cut within every control token that a message spells: what is encoded in two pieces is never one token.
        # Where the tokenizer finds one spelled otherwise, as in capitals, every character is a piece.
        cut = "\ue000"
        while any(cut in part for part in (*texts, system or "")):
            cut += "\ue000"
        for place in (self._first, _EACH):
            mark = partial(place.sub, rf"\1{cut}")
            chat = self._render([[*map(mark, parts)] for parts in said], None if system is None else mark(system))
            ids = self._ids(*chat.split(cut))
            if self._count(ids) == own:
                break
        return ids

    def end(self) -> int | None:
        """The control token that the template puts behind a message of the assistant; None where it puts none."""
        chat = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "Gone."}]
        try:
            with as_config_error("it takes no such chat"):
                text = str(self.tokenizer.apply_chat_template(chat, tokenize=False))
        except ConfigError:
            return None
        behind = text.rpartition("Gone.")[2].lstrip() if "Gone." in text else ""
        ends = {content: number for number, content in self._control.items() if behind.startswith(content)}
        return ends[max(ends, key=len)] if ends else None

    def _own(self, system: bool, messages: int, places: int) -> int:
        """The number of control tokens in a chat whose messages spell none."""
        if (system, messages, places) not in self._expected:
            said = [*[["Go."]] * (messages - 1), ["Go." + self.meant * places]]
            chat = self._render(said, "Play." if system else None)
            self._expected[system, messages, places] = self._count(self._ids(chat))
        return self._expected[system, messages, places]

    def _count(self, ids: list[int]) -> int:
        return sum(map(self._control.__contains__, ids))

    def _ids(self, *pieces: str) -> list[int]:
        with as_config_error("the model's tokenizer fails"):
            return [*chain.from_iterable(self.tokenizer(list(pieces), add_special_tokens=False)["input_ids"])]

    def _render(self, said: Sequence[Sequence[str]], system: str | None) -> str:
        """The chat as text. Between the parts of a message stands `meant`."""
        before = [] if system is None else [{"role": "system", "content": system}]
        turns = zip(cycle(("user", "assistant")), map(self.meant.join, said))
        chat = [*before, *({"role": role, "content": text} for role, text in turns)]
        with as_config_error(f"{self.tokenizer.name_or_path}: the model's chat template fails"):
            asked = {"tokenize": False, "add_generation_prompt": True, "chat_template": self._template}
            return str(self.tokenizer.apply_chat_template(chat, **asked))


def _is_control(token: str, template: str) -> bool:
    """Whether a token that is not marked as special controls a chat: "<|fim_prefix|>", or "<tool_call>" if the
    template writes it."""
    return bool(re.fullmatch(r"<\|.+\|>", token)) or (token in template and not token.isspace() and len(token) > 1)
