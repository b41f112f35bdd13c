"""An evaluation on disk: what it is, its finished episodes as they come, and its JSON file.

FILE.json appears whole or not at all. Until then FILE.partial.jsonl has a line that says what is evaluated, and then a
line for each `CHUNK` of finished episodes. A killed evaluation goes on behind its last whole line.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crbc_envs.storage.files import append_line, parse_json, replace_file, shown
from crbc_lab.evaluation.record import FORMAT, Row, document, is_row, read_evaluation, written
from crbc_rl.config import TrainConfig, flat
from crbc_rl.config.revisions import data_digest
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.invalid import InvalidReplies
from crbc_rl.rollout.panel import EvalPanel
from crbc_rl.runs.own import take
from crbc_rl.runs.versions import versions

CHUNK = 32
"""Episodes that are played together and kept together. It is part of what an evaluation is: how many prompts share a
pass decides how floats are rounded."""
BEGINNING = b'{"format": '
"""How the file of finished episodes begins. Nobody else's file is ever cut."""


def identity(
    config: TrainConfig, panel: EvalPanel, told: Mapping[str, str], policy: Mapping[str, Any]
) -> dict[str, Any]:
    """All that decides the episodes of an evaluation, as plain data. `told` has the panel's digest, and what else its
    environment tells; `policy` says which."""
    env, rollout = config.env, config.rollout
    template = None if env.template is None else hashlib.sha256(env.template.encode()).hexdigest()
    settings = {
        "format": FORMAT,
        "crbc": versions()["crbc"],
        "policy": dict(policy),
        "env": {
            "id": env.id,
            "kwargs": env.kwargs,
            "dynamics": rollout.dynamics,
            "prompt": env.prompt,
            "template": template,
            "history": env.history,
            "system": env.system,
            "replies": env.replies,
        },
        "modules": {name: module.sha256 for name, module in config.modules.items()},
        "data": data_digest(config),
        "split": panel.split,
        "panel": {
            "name": panel.name,
            "version": panel.version,
            **told,
            "episodes": len(panel.tasks),
        },
        "seed": config.seed,
        "temperature": config.eval.temperature,
        "max_new_tokens": rollout.max_new_tokens,
        "max_thought_tokens": rollout.max_thought_tokens,
        "max_prompt_tokens": rollout.max_prompt_tokens,
        "truncation": rollout.truncation,
        "threads": config.threads,
        "chunk": CHUNK,
    }
    return json.loads(json.dumps(settings))  # as it will be read again


INVALID_REPLIES = "invalid_replies"
"""The first raw replies of each cause, in the JSON file."""


class Recording:
    """The finished episodes of an evaluation, in `rows`, kept in the empty or older file `partial`.

    Raises `ConfigError` where what it keeps is damaged or another evaluation's.
    """

    def __init__(self, out: Path, partial: Path, identity: Mapping[str, Any], panel: EvalPanel, resume: bool) -> None:
        self.out, self.partial, self.identity, self.panel = out, partial, identity, panel
        self.rows: list[Row] = []
        self.invalid = InvalidReplies()
        content = partial.read_bytes()
        if not content.startswith(BEGINNING[: len(content)]):
            raise self._damaged()
        lines = content.split(b"\n")[:-1]  # a last line that is not whole is left out
        if lines[1:]:
            self._read(lines, resume)
        os.truncate(partial, sum(len(line) + 1 for line in lines) if lines[1:] else 0)
        if not lines[1:]:
            append_line(partial, dict(identity))

    def _read(self, lines: Sequence[bytes], resume: bool) -> None:
        """Take the rows of an earlier start, which must be the first ones of the panel."""
        try:
            header, *parts = [dict(parse_json(line)) for line in lines]
            self.rows = [row for part in parts for row in part["rows"]]
            for part in parts:
                self._quote(part.get(INVALID_REPLIES, {}))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._damaged() from None
        _require_same(self.partial, header, self.identity)
        if not resume:
            raise ConfigError(
                f"{self.partial} has episodes of this evaluation, which was stopped: "
                "add --resume to continue it, or delete the file"
            )
        places = zip(self.panel.tasks, self.panel.repeats, strict=True)
        if not all(map(is_row, self.rows)) or len(self.rows) > len(self.panel.tasks):
            raise self._damaged()
        if any((row["task"], row["repeat"]) != place for row, place in zip(self.rows, places, strict=False)):
            raise self._damaged()

    def add(self, rows: Sequence[Row], invalid: Mapping[str, Sequence[str]]) -> None:
        """Keep the next episodes, and the raw `invalid` replies by cause so far. They are on the disk when it
        returns."""
        append_line(self.partial, {"rows": list(rows), INVALID_REPLIES: dict(invalid)})
        self.rows += rows
        self._quote(invalid)

    def _quote(self, invalid: Mapping[str, Sequence[str]]) -> None:
        for cause, replies in invalid.items():
            for reply in replies:
                self.invalid.keep(cause, reply)

    def finish(self) -> dict[str, Any]:
        """Write the JSON file, once all episodes are there, and return its document."""
        assert len(self.rows) == len(self.panel.tasks)
        kept = {INVALID_REPLIES: self.invalid.kept} if self.invalid.kept else {}
        evaluation = {**document(self.identity, self.rows), **kept}
        replace_file(self.out, written(evaluation))
        return evaluation

    def _damaged(self) -> ConfigError:
        return ConfigError(f"{self.partial} is damaged: delete the file, and begin the evaluation anew")


@contextmanager
def recording(out: Path, identity: Mapping[str, Any], panel: EvalPanel, resume: bool) -> Iterator[Recording]:
    """Context manager: the episodes kept beside `out`. They are deleted at its end, once `out` is written.

    Raises `ConfigError` like `Recording` and where another process writes there, and `DataError` where the file is a
    link.
    """
    partial = out.with_suffix(".partial.jsonl")
    held = take(partial)
    if held is None:
        raise ConfigError(f"{partial} is in use by another evaluation: wait, or choose another --out")
    try:
        yield Recording(out, partial, identity, panel, resume)
    finally:
        held.release()
    if out.exists():
        partial.unlink(missing_ok=True)


def finished(out: Path, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """The document in `out`, where an earlier start has written it; None where it is to be written.

    Raises `ConfigError` where it is of another evaluation.
    """
    if not out.exists():
        return None
    evaluation = read_evaluation(out)
    _require_same(out, evaluation, identity)
    return evaluation


def _require_same(path: Path, kept: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise `ConfigError` naming what differs between a kept evaluation and the one that is asked for."""
    before, after = flat({name: kept.get(name) for name in now}), flat(now)
    for name in [*after, *before]:
        if before.get(name) != after.get(name) and name != "policy.url":  # a server may start elsewhere
            raise ConfigError(
                f"{path} is of an evaluation with {name} = {shown(before.get(name))}, and now it is "
                f"{shown(after.get(name))}: undo the change to continue it, or choose another --out"
            )
