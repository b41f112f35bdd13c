"""Answers in OpenAI's shape, whole or as a stream. What may be long is made while it is written."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import chain
from secrets import token_hex
from typing import Any

from crbc_lab.model_server.requests import Order, Refused
from crbc_lab.model_server.rows import Row
from crbc_rl.policies.transformers import TransformersPolicy

Body = dict[str, Any]


class Answer:
    """The answer to an order with the replies `rows`. `text` gives that of a token; `about` is said of every answer."""

    def __init__(
        self, policy: TransformersPolicy, text: Callable[[int], str], order: Order, rows: Sequence[Row], **about: Any
    ) -> None:
        self.policy, self.text, self.order, self.rows = policy, text, order, rows
        kind = f"chat.completion{'.chunk' * order.fields.stream}" if order.chat else "text_completion"
        name = f"{'chatcmpl' if order.chat else 'cmpl'}-{token_hex(12)}"
        self.head = {"id": name, "object": kind, "created": int(time.time()), **about}

    def whole(self) -> Iterator[str]:
        """The answer as JSON, in pieces. All replies are whole."""
        make = self._chat_choice if self.order.chat else self._choice
        choices = ({**self._ended(index, row), **make(row)} for index, row in enumerate(self.rows))
        ids = {"prompt_token_ids": self.order.prompts[0].prompt} if self.order.fields.return_token_ids else {}
        return written({**self.head, "choices": choices, "usage": self._usage(), **(ids if self.order.chat else {})})

    async def events(self) -> AsyncIterator[bytes]:
        """The answer as server-sent events, while the replies are generated."""
        changed, told = self.rows[0].changed, [0] * len(self.rows)
        assert changed is not None
        left = dict(enumerate(self.rows))
        for index in left if self.order.chat else ():
            yield self._event(index, {"role": "assistant", "content": ""})
        while left:
            await changed.wait()
            changed.clear()
            for index, row in list(left.items()):
                if not row.awaited and (error := row.done.exception()):
                    yield _event(Refused(f"{type(error).__name__} in the server", None, 500).answer())
                    return
                whole, ready = row.whole, row.ready()
                if ready > told[index]:
                    yield self._event(index, {"content": row.text[told[index] : ready]})
                    told[index] = ready
                if whole:
                    yield self._event(index, {}, row)
                    del left[index]
        if self.order.fields.stream_options.get("include_usage"):
            yield _event({**self.head, "choices": [], "usage": self._usage()})
        yield b"data: [DONE]\n\n"

    # ---- choices ------------------------------------------------------------------------------

    def _event(self, index: int, delta: Body, ended: Row | None = None) -> bytes:
        said = {"delta": delta} if self.order.chat else {"text": delta.get("content", "")}
        reason = None if ended is None else self._ended(index, ended)["finish_reason"]
        return _event({**self.head, "choices": [{"index": index, **said, "logprobs": None, "finish_reason": reason}]})

    def _ended(self, index: int, row: Row) -> Body:
        ids = {"token_ids": row.tokens} if self.order.fields.return_token_ids else {}
        return {"index": index, "finish_reason": "stop" if row.stopped else "length", **ids}

    def _usage(self) -> Body:
        asked = sum(len(turn.prompt) for turn in self.order.prompts)
        given = sum(len(row.tokens) for row in self.rows)
        return {"prompt_tokens": asked, "completion_tokens": given, "total_tokens": asked + given}

    def _chat_choice(self, row: Row) -> Body:
        message = {"role": "assistant", "content": row.text, "refusal": None}
        listed = {"content": self._listed(row), "refusal": None} if self.order.logprobs else None
        return {"message": message, "logprobs": listed}

    def _listed(self, row: Row) -> Iterator[Body]:
        """The tokens of a chat's reply with their log-probabilities, the end token included."""
        for token, value, top in zip(row.tokens, row.logprobs, _tops(row), strict=True):
            yield {**self._token(token, value), "top_logprobs": [self._token(*pair) for pair in top]}

    def _token(self, token: int, logprob: float) -> Body:
        return {"token": self.text(token), "logprob": logprob, "bytes": None}

    def _choice(self, row: Row) -> Body:
        echoed = row.asked.prompt if self.order.echo else []
        ids = {"prompt_token_ids": row.asked.prompt} if self.order.fields.return_token_ids else {}
        listed = self._columns(row, echoed) if self.order.logprobs else None
        return {"text": (self.policy.tokenizer.decode(echoed) if echoed else "") + row.text, "logprobs": listed, **ids}

    def _columns(self, row: Row, echoed: list[int]) -> Body:
        """The tokens of a completion as columns; with `echo` the prompt's before them, whose first has no score."""
        texts = [self.text(token) for token in echoed + row.tokens]
        first: list[None] = [None] if echoed else []
        tops = ({self.text(token): value for token, value in pairs} for pairs in _tops(row))
        return {
            "tokens": texts,
            "token_logprobs": first + row.logprobs,
            "text_offset": self._offsets(echoed + row.tokens),
            "top_logprobs": chain(first, tops) if self.order.top else None,
        }

    def _offsets(self, tokens: list[int]) -> list[int]:
        """Where each token begins in the text. Tokens of one character begin where it does."""
        offsets, length, waiting = [], 0, list[int]()
        for token in tokens:
            offsets.append(length)
            waiting.append(token)
            text = self.policy.tokenizer.decode(waiting)
            if not text.endswith("\ufffd") or len(waiting) == LONGEST_LETTER:
                length, waiting = length + len(text), []
        return offsets


LONGEST_LETTER = 4  # bytes in UTF-8, each perhaps a token


def _tops(row: Row) -> Iterator[Sequence[tuple[int, float]]]:
    """Beside each token the most probable ids and their log-probabilities."""
    if row.best is None:
        yield from [()] * len(row.tokens)
    else:
        for ids, values in zip(*row.best, strict=True):
            yield list(zip(ids.tolist(), values.tolist(), strict=True))


def _event(body: Body) -> bytes:
    return f"data: {_json(body)}\n\n".encode()


def written(value: Any) -> Iterator[str]:
    """The JSON text of a value, in pieces. An iterator in it is a list, whose items are made as they are written."""
    if isinstance(value, Iterator):
        yield "["
        for number, item in enumerate(value):
            yield "," * (number > 0)
            yield from written(item)
        yield "]"
    elif isinstance(value, dict) and any(isinstance(item, dict | Iterator) for item in value.values()):
        for number, (name, item) in enumerate(value.items()):
            yield f"{',' if number else '{'}{_json(name)}:"
            yield from written(item)
        yield "}"
    else:
        yield _json(value)


_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
