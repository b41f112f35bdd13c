"""Requests of OpenAI's interface: read within bounds, and refused where a field asks for what is not done here."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from crbc_envs.errors import DataError
from crbc_envs.prompts import IMAGE, Prompt
from crbc_envs.storage.files import parse_json, shown
from crbc_envs.storage.rollouts import Frame, decode_frame
from crbc_rl.batches import Turn
from crbc_rl.errors import ConfigError
from crbc_rl.policies.files import positions
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.policies.vision import VisionPolicy

LARGEST_BODY = 16 << 20
"""Bytes of a request's body."""
LARGEST_SCORED = 1 << 29
"""Logits of one prompt and reply that are scored at once: 2 GiB."""
MOST_CHOICES, MOST_TOP, MOST_FRAMES = 128, 20, 16
MOST_MESSAGES, MOST_PARTS, MOST_STOPS, LONGEST_STOP = 1_024, 256, 4, 256
USUAL_TOKENS, USUAL_TEXT_TOKENS = 1_024, 16
"""New tokens where a request names no number: of a chat as far as there is room, and of a completion as at OpenAI."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("frequency_penalty", "min_p", "min_tokens", "presence_penalty"), (0,)),
    **dict.fromkeys(("best_of", "repetition_penalty"), (1,)),
    **dict.fromkeys(("allowed_token_ids", "bad_words", "functions", "stop_token_ids", "tools"), ([],)),
    **dict.fromkeys(("continue_final_message", "ignore_eos"), (False,)),
    **dict.fromkeys(("add_generation_prompt", "add_special_tokens", "skip_special_tokens"), (True,)),
    **dict.fromkeys(("audio", "reasoning_effort"), ()),
    "function_call": ("none",),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "top_k": (0, -1),
}
"""Fields that would change the answer, with the values that leave it as it is. Null always does."""
IDLE = frozenset({"metadata", "parallel_tool_calls", "service_tier", "store", "user"})
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
    top_p: float = Field(1.0, gt=0, le=1)
    stop: str | Annotated[list[str], Field(max_length=MOST_STOPS)] = ""
    n: int = Field(1, ge=1, le=MOST_CHOICES)
    stream: bool = False
    stream_options: dict[Literal["include_usage", "include_obfuscation"], bool] = {}
    return_token_ids: bool = False


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[dict[str, Any]], Field(max_length=MOST_PARTS)]

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        return {k: v for k, v in given.items() if v is not None} if isinstance(given, dict) else given


class _Chat(_Fields):
    messages: list[_Message] = Field(min_length=1, max_length=MOST_MESSAGES)
    max_tokens: int | None = Field(None, ge=1, lt=2**31)
    max_completion_tokens: int | None = Field(None, ge=1, lt=2**31)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=MOST_TOP)


class _Completion(_Fields):
    prompt: Any
    max_tokens: int = Field(USUAL_TEXT_TOKENS, ge=0, lt=2**31)
    logprobs: int | None = Field(None, ge=0, le=MOST_TOP)
    echo: bool = False


T = TypeVar("T", bound=_Fields)


@dataclass(frozen=True, slots=True)
class Order:
    """What a request asks for: `fields.n` replies of at most `most` tokens to each of `prompts`, turns without a reply.

    A reply ends before each text of `stop`. `top` is the number of the most probable tokens listed beside each token.
    """

    fields: _Fields
    chat: bool
    prompts: Sequence[Turn]
    most: int
    stop: tuple[str, ...]
    logprobs: bool
    top: int
    echo: bool = False

    @property
    def scored(self) -> bool:
        """Whether tokens are scored after sampling, of which the log-probabilities are not enough."""
        return self.logprobs and bool(self.top or self.echo or not self.fields.temperature)


class Reader:
    """Reads requests to the policy that is served as `name`. Its methods raise `Refused`."""

    def __init__(self, policy: TransformersPolicy, name: str) -> None:
        self.policy, self.name = policy, name
        self.positions = positions(policy.model.config)
        self._longest = self.positions * max(map(len, policy.tokenizer.get_vocab()))
        """No text of more characters has room."""
        policy.remembered = 0  # each prompt is read once

    def chat(self, body: bytes) -> Order:
        """The order of a request to /v1/chat/completions."""
        asked = self._parse(_Chat, body)
        if asked.top_logprobs and not asked.logprobs:
            raise Refused("it needs logprobs=true", "top_logprobs")
        most = {asked.max_tokens, asked.max_completion_tokens} - {None}
        if len(most) == 2:
            raise Refused("max_tokens says something else; give one of them", "max_completion_tokens")
        prompt, earlier = self._prompt(asked.messages)
        try:
            turn = self.policy.asked(prompt, earlier)
        except (ConfigError, ValueError) as error:
            raise Refused(str(error), "messages") from error
        room = min(USUAL_TOKENS, max(1, self.positions - len(turn.prompt)))
        return self._order([turn], asked, most.pop() or room if most else room, asked.logprobs, asked.top_logprobs)

    def completion(self, body: bytes) -> Order:
        """The order of a request to /v1/completions."""
        asked = self._parse(_Completion, body)
        if not asked.max_tokens and not asked.echo:
            raise Refused("0 new tokens are for echo=true, which scores the prompt", "max_tokens")
        given = asked.prompt
        several = given if isinstance(given, list) and given and isinstance(given[0], str | list) else [given]
        if len(several) * asked.n > MOST_CHOICES:
            raise Refused(f"{len(several)} prompts with n={asked.n}: at most {MOST_CHOICES} replies are given at once")
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
            elif name not in kind.model_fields:
                raise Refused("it is not known here", name.encode("ascii", "replace").decode()[:100])
            else:
                kept[name] = value
        try:
            asked = kind.model_validate(kept)
        except ValidationError as error:
            told = error.errors(include_url=False, include_context=False, include_input=False)
            # A field of two types has the errors of both; the deepest is of the type that was meant.
            tried = [one for one in told if one["loc"][:1] == told[0]["loc"][:1]]
            nearest = max(tried, key=lambda one: (len(one["loc"]), one["type"] not in ("string_type", "list_type")))
            places = [str(part) for part in nearest["loc"] if part != "str" and "[" not in str(part)]
            field = ".".join(places).encode("ascii", "replace").decode()[:100]
            wrong = "it is not known here" if nearest["type"] == "extra_forbidden" else nearest["msg"]
            raise Refused(wrong, field) from error
        if asked.model != self.name:
            wrong = f"{shown(asked.model)} is not served here, only {self.name!r}"
            raise Refused(wrong, "model", 404, "model_not_found")
        return asked

    def _order(
        self, turns: list[Turn], asked: _Fields, most: int, logprobs: bool, top: int, echo: bool = False
    ) -> Order:
        if asked.stream and (logprobs or echo or asked.return_token_ids):
            raise Refused("log-probabilities, token ids and an echo are in whole answers alone", "stream")
        stop = tuple(filter(None, [asked.stop] if isinstance(asked.stop, str) else asked.stop))
        if max(map(len, stop), default=0) > LONGEST_STOP:
            raise Refused(f"a text has more than {LONGEST_STOP} characters", "stop")
        for turn in turns:
            if len(turn.prompt) + most > self.positions:
                raise Refused(
                    f"the prompt has {len(turn.prompt):,} tokens, and with {most:,} new ones it is longer than the "
                    f"model's {self.positions:,} positions",
                    code="context_length_exceeded",
                )
        order = Order(asked, isinstance(asked, _Chat), turns, most, stop, logprobs, top, echo)
        if order.scored and max((len(t.prompt) * echo + most) * self.policy.vocabulary for t in turns) > LARGEST_SCORED:
            raise Refused("the tokens are too many to list others beside them, or to score", "logprobs")
        return order

    # ---- prompts ------------------------------------------------------------------------------

    def _prompt(self, given: list[_Message]) -> tuple[Prompt, list[str]]:
        """The prompt of the last message, and the texts between it and the system's, if there is one."""
        before = int(given[0].role in ("system", "developer"))
        roles = [message.role for message in given[before:]]
        if len(roles) % 2 == 0 or any(role != ("user", "assistant")[k % 2] for k, role in enumerate(roles)):
            wanted = "the user's and the assistant's messages in turn, after one of the system if there is one"
            raise Refused(f"{wanted}: the last is the user's", "messages")
        texts, images = [], list[Frame]()
        for k, message in enumerate(given):
            place, count = f"messages.{k}.content", len(images)
            texts.append(_text(message.content, place, images))
            if len(images) > count and (message.role != "user" or not isinstance(self.policy, VisionPolicy)):
                raise Refused("only a message of the user, to a model that sees, has images", place)
            self._require_text(texts[-1], place)
        if images and sum(text.count(IMAGE) for text in texts[before::2]) != len(images):
            raise Refused(f"beside images a text cannot contain {IMAGE}", "messages")
        return Prompt(texts[-1], tuple(images), texts[0] if before else None), texts[before:-1]

    def _require_text(self, text: str, field: str) -> None:
        if _HALF.search(text):
            raise Refused("it has half a surrogate pair, which is no text", field)
        if len(text) > self._longest:
            wrong = f"it has {len(text):,} characters, more than the model's {self.positions:,} positions can hold"
            raise Refused(wrong, field, code="context_length_exceeded")

    def _ids(self, text: str) -> list[int]:
        """The ids of a raw text: where it spells a control token, it is that token."""
        self._require_text(text, "prompt")
        return self._known(self.policy.tokenizer.encode(text))

    def _known(self, ids: Any) -> list[int]:
        if not isinstance(ids, list) or any(type(token) is not int for token in ids):
            raise Refused("it is a text or token ids, or a list of texts or of lists of token ids", "prompt")
        if not ids:
            raise Refused("it is empty", "prompt")
        if not 0 <= min(ids) <= max(ids) < self.policy.vocabulary:
            raise Refused(f"a token id is a number from 0 to {self.policy.vocabulary - 1:,}", "prompt")
        if set(ids) & set(self.policy.suppressed_tokens):
            raise Refused("it has tokens of images, which only a chat can have", "prompt")
        return ids


def _text(content: str | list[dict[str, Any]], place: str, images: list[Frame]) -> str:
    """The text of a message, with `IMAGE` for each of its images, which are added to `images`."""
    if isinstance(content, str):
        return content
    text = ""
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
    return text


def _image(url: str, place: str) -> Frame:
    head = _PNG.match(url)
    if not head:
        raise Refused("an image is given as data:image/png;base64,...; addresses are not looked up", place)
    try:
        return decode_frame(base64.b64decode(url[head.end() :], validate=True))
    except (binascii.Error, DataError) as error:
        raise Refused("it is no PNG, damaged or too large", place) from error
