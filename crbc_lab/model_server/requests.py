"""Requests of OpenAI's interface: read within bounds, and refused where a field asks for what is not done here."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crbc_envs.errors import DataError
from crbc_envs.prompts import IMAGE, Prompt
from crbc_envs.storage.files import parse_json, shown
from crbc_envs.storage.rollouts import Frame, decode_frame
from crbc_rl.batches import Turn
from crbc_rl.errors import ConfigError
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.policies.vision import VisionPolicy

LARGEST_BODY = 16 << 20
"""Bytes of a request's body."""
LARGEST_SCORED = 1 << 29
"""Logits of one prompt and reply that are scored at once: 2 GiB."""
MOST_CHOICES, MOST_TOP, MOST_FRAMES = 128, 20, 16
USUAL_TOKENS, USUAL_TEXT_TOKENS = 1_024, 16
"""New tokens where a request names no number: of a chat as far as there is room, and of a completion as at OpenAI."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_special_tokens": (True,),
    "allowed_token_ids": ([],),
    "audio": (),
    "bad_words": ([],),
    "best_of": (1,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "ignore_eos": (False,),
    "logit_bias": ({},),
    "min_p": (0,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "presence_penalty": (0,),
    "reasoning_effort": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "stop": ([], ""),
    "stop_token_ids": ([],),
    "stream": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_k": (0, -1),
    "top_p": (1,),
}
"""Fields that would change the answer, with the values that leave it as it is. Null always does."""
IDLE = frozenset({"metadata", "parallel_tool_calls", "service_tier", "store", "stream_options", "user"})
"""Fields that change no answer here."""

_PNG, _HALF = re.compile("data:image/png;base64,"), re.compile("[\ud800-\udfff]")


class Refused(ValueError):
    """A request that is not answered, with its HTTP status. `field` is what is wrong with it, if it is one field."""

    def __init__(self, message: str, field: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message if field is None else f"{field}: {message}")
        self.field, self.status, self.code = field, status, code

    def answer(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.field, "code": self.code}}


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    model: str
    temperature: float = Field(1.0, ge=0, le=2)
    seed: int | None = Field(None, ge=0, lt=2**63)
    n: int = Field(1, ge=1, le=MOST_CHOICES)
    return_token_ids: bool = False


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["system", "developer", "user"]
    content: str | list[dict[str, Any]]


class _Chat(_Fields):
    messages: list[_Message] = Field(min_length=1)
    max_tokens: int | None = Field(None, ge=1, lt=2**31)
    max_completion_tokens: int | None = Field(None, ge=1, lt=2**31)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=MOST_TOP)


class _Completion(_Fields):
    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: int = Field(USUAL_TEXT_TOKENS, ge=0, lt=2**31)
    logprobs: int | None = Field(None, ge=0, le=MOST_TOP)
    echo: bool = False


T = TypeVar("T", bound=_Fields)


@dataclass(frozen=True, slots=True)
class Order:
    """What a request asks for: `n` replies of at most `most` tokens to each of `prompts`, turns without a reply.

    `top` is the number of the most probable tokens that are listed beside each token.
    """

    prompts: tuple[Turn, ...]
    n: int
    seed: int | None
    temperature: float
    most: int
    logprobs: bool
    top: int
    echo: bool
    token_ids: bool


class Reader:
    """Reads requests to the policy that is served as `name`. Its methods raise `Refused`."""

    def __init__(self, policy: TransformersPolicy, name: str) -> None:
        self.policy, self.name = policy, name
        self.positions: int = policy.model.config.get_text_config().max_position_embeddings

    def chat(self, body: bytes) -> Order:
        """The order of a request to /v1/chat/completions."""
        asked = self._parse(_Chat, body)
        if asked.top_logprobs and not asked.logprobs:
            raise Refused("it needs logprobs=true", "top_logprobs")
        most = {asked.max_tokens, asked.max_completion_tokens} - {None}
        if len(most) == 2:
            raise Refused("max_tokens says something else; give one of them", "max_completion_tokens")
        prompt = self._prompt(asked.messages)
        try:
            turn = self.policy.asked(prompt)
        except (ConfigError, ValueError) as error:
            raise Refused(str(error), "messages") from error
        room = min(USUAL_TOKENS, max(1, self.positions - len(turn.prompt)))
        return self._order([turn], asked, most.pop() or room if most else room, asked.logprobs, asked.top_logprobs)

    def completion(self, body: bytes) -> Order:
        """The order of a request to /v1/completions."""
        asked = self._parse(_Completion, body)
        if not asked.max_tokens and not asked.echo:
            raise Refused("0 new tokens are for echo=true, which scores the prompt", "max_tokens")
        given: Any = asked.prompt
        alone = isinstance(given, str) or (given and isinstance(given[0], int))
        several = [given] if alone else given
        turns = [Turn(self._ids(text) if isinstance(text, str) else self._known(text), [], []) for text in several]
        logprobs = asked.logprobs is not None
        return self._order(turns, asked, asked.max_tokens, logprobs, asked.logprobs or 0, asked.echo)

    # ---- fields -------------------------------------------------------------------------------

    def _parse(self, kind: type[T], body: bytes) -> T:
        try:
            data = parse_json(body)
        except ValueError as error:
            raise Refused(f"the body is no JSON: {error}") from error
        if not isinstance(data, dict):
            raise Refused("the body is no JSON object")
        kept = {}
        for name, value in data.items():
            if value is None or name in IDLE:
                continue
            if name in NEUTRAL and name not in kind.model_fields:
                if value not in NEUTRAL[name]:
                    known = " or ".join(map(repr, NEUTRAL[name])) or "null"
                    raise Refused(f"{shown(value)} is not supported here, only {known}", name, code="unsupported_value")
            else:
                kept[name] = value
        try:
            asked = kind.model_validate(kept)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            field = ".".join(map(str, first["loc"])).encode("ascii", "replace").decode()[:100]
            wrong = "it is not known here" if first["type"] == "extra_forbidden" else first["msg"]
            if first["loc"][0] == "prompt":
                field, wrong = "prompt", "it is a text or token ids, or a list of texts or of lists of token ids"
            raise Refused(wrong, field) from error
        if asked.model != self.name:
            wrong = f"{shown(asked.model)} is not served here, only {self.name!r}"
            raise Refused(wrong, "model", 404, "model_not_found")
        return asked

    def _order(
        self, turns: list[Turn], asked: _Fields, most: int, logprobs: bool, top: int, echo: bool = False
    ) -> Order:
        if not 0 < len(turns) * asked.n <= MOST_CHOICES:
            raise Refused(f"{len(turns)} prompts with n={asked.n}: 1 to {MOST_CHOICES} replies are given at once")
        for turn in turns:
            if len(turn.prompt) + most > self.positions:
                raise Refused(
                    f"the prompt has {len(turn.prompt):,} tokens, and with {most:,} new ones it is longer than the "
                    f"model's {self.positions:,} positions",
                    code="context_length_exceeded",
                )
            if (top or echo) and (len(turn.prompt) * echo + most) * self.policy.vocabulary > LARGEST_SCORED:
                raise Refused("the tokens are too many to list others beside them, or to score", "logprobs")
        return Order(
            prompts=tuple(turns),
            n=asked.n,
            seed=asked.seed,
            temperature=asked.temperature,
            most=most,
            logprobs=logprobs,
            top=top,
            echo=echo,
            token_ids=asked.return_token_ids,
        )

    # ---- prompts ------------------------------------------------------------------------------

    def _prompt(self, given: list[_Message]) -> Prompt:
        """The prompt whose `crbc_envs.chat.messages` these are."""
        *before, last = given
        if last.role != "user" or len(before) > 1 or any(message.role == "user" for message in before):
            raise Refused("a message of the user is wanted, after one of the system if there is one", "messages")
        system = _text(before[0].content, "messages.0.content") if before else None
        place = f"messages.{len(before)}.content"
        text, images = _parts(last.content, place)
        if images and not isinstance(self.policy, VisionPolicy):
            raise Refused("this model sees no images", place)
        if images and text.count(IMAGE) != len(images):
            raise Refused(f"beside images a text cannot contain {IMAGE}", place)
        _require_text(text + (system or ""), place)
        return Prompt(text, images, system)

    def _ids(self, text: str) -> list[int]:
        """The ids of a raw text: where it spells a control token, it is that token."""
        _require_text(text, "prompt")
        return self._known(self.policy.tokenizer.encode(text))

    def _known(self, ids: list[int]) -> list[int]:
        if not ids:
            raise Refused("it is empty", "prompt")
        if not 0 <= min(ids) <= max(ids) < self.policy.vocabulary:
            raise Refused(f"a token id is a number from 0 to {self.policy.vocabulary - 1:,}", "prompt")
        if set(ids) & set(self.policy.suppressed_tokens):
            raise Refused("it has tokens of images, which only a chat can have", "prompt")
        return ids


def _require_text(text: str, field: str) -> None:
    if _HALF.search(text):
        raise Refused("it has half a surrogate pair, which is no text", field)


def _text(content: str | list[dict[str, Any]], place: str) -> str:
    text, images = _parts(content, place)
    if images:
        raise Refused("only the user's message has images", place)
    return text


def _parts(content: str | list[dict[str, Any]], place: str) -> tuple[str, tuple[Frame, ...]]:
    """The text of a message, with `IMAGE` for each of its images, and the images."""
    if isinstance(content, str):
        return content, ()
    text, images = "", []
    for number, part in enumerate(content):
        match part:
            case {"type": "text", "text": str(said)} if len(part) == 2:
                text += said
            case {"type": "image_url", "image_url": {"url": str(url)}} if len(part) == 2:
                text += IMAGE
                images.append(_image(url, f"{place}.{number}.image_url"))
            case _:
                raise Refused("a part is a text or an image_url", f"{place}.{number}")
        if len(images) > MOST_FRAMES:
            raise Refused(f"more than {MOST_FRAMES} images", place)
    return text, tuple(images)


def _image(url: str, place: str) -> Frame:
    head = _PNG.match(url)
    if not head:
        raise Refused("an image is given as data:image/png;base64,...; addresses are not looked up", place)
    try:
        return decode_frame(base64.b64decode(url[head.end() :], validate=True))
    except (binascii.Error, DataError) as error:
        raise Refused("it is no PNG, damaged or too large", place) from error
