"""The metrics of an evaluation with a row for each episode, as plain data for a JSON file.

| metric | what it is |
|---|---|
| `success`, `interval` | the success rate, and its 95 % interval (Wilson) over distinct tasks |
| `distinct_tasks`, `independent_tasks` | tasks that differ in content, and how many independent ones tell as much |
| `clusters`, `cluster_interval` | the rooms, products or layouts of the tasks, and the interval over these instead |
| `score` | the mean task score: WebShop's, from 0 to 1 |
| `return` | the mean over rollouts of the sum of a rollout's rewards |
| `text_score` | the mean over steps of the return of the step's rollout, which is what the paper's Sokoban score is |
| `length` | the mean number of steps |
| `invalid_share`, `prompt_cut_share` | the shares of steps with a malformed reply, and with a shortened prompt |
| `invalid_by_cause` | the share of steps by the cause of an invalid reply, for causes that occurred |
| `truncated_share` | the share of rollouts that ran out of steps |
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crbc_envs.actions import CAUSES
from crbc_envs.storage.files import read_json, shown
from crbc_rl.errors import ConfigError
from crbc_rl.rollout.evaluate import Columns, summarise
from crbc_rl.rollout.intervals import independent_tasks, wilson
from crbc_rl.rollout.invalid import metric_key

FORMAT = 1
"""The version of the JSON file's layout."""
Row = dict[str, Any]

NUMBERS: Mapping[str, type] = {
    "task": int,
    "repeat": int,
    "success": bool,
    "truncated": bool,
    "score": float,
    "return": float,
    "length": int,
    "invalid": int,
    "shortened": int,
}
TEXTS = ("kind", "cluster", "content")
BY_CAUSE = "invalid_by_cause"
"""The numbers of invalid replies of a row by cause (`crbc_envs.actions.CAUSES`), where there are any."""
COLUMN = {"return": "reward"}
"""The columns of `play_panel` whose names are others in a row."""


def rows_of(played: Columns) -> list[Row]:
    """One row per episode, in their order."""
    columns = {name: played[COLUMN.get(name, name)].tolist() for name in NUMBERS}
    columns |= {name: played[name].tolist() for name in TEXTS}
    ordered = ("task", "repeat", *TEXTS, *(name for name in NUMBERS if name not in ("task", "repeat")))
    rows = [{name: columns[name][i] for name in ordered} for i in range(len(columns["task"]))]
    for cause in CAUSES:
        for row, count in zip(rows, played.get(metric_key(cause), np.zeros(0, dtype=np.int64)).tolist(), strict=False):
            if count:
                row.setdefault(BY_CAUSE, {})[cause] = count
    return rows


def columns_of(rows: Sequence[Row]) -> Columns:
    """The columns of rows; the inverse of `rows_of`."""
    numbers: Columns = {
        COLUMN.get(name, name): np.array([row[name] for row in rows], dtype=kind) for name, kind in NUMBERS.items()
    }
    for cause in CAUSES:
        numbers[metric_key(cause)] = np.array([row.get(BY_CAUSE, {}).get(cause, 0) for row in rows], dtype=np.int64)
    return numbers | {name: np.array([row[name] for row in rows], dtype=object) for name in TEXTS}


def is_row(row: object) -> bool:
    """Whether a value that was read is a row, with all fields and of their types."""
    if not isinstance(row, dict) or set(row) - {BY_CAUSE} != {*NUMBERS, *TEXTS}:
        return False
    causes = row.get(BY_CAUSE, {})
    if not isinstance(causes, dict) or not all(name in CAUSES and type(n) is int for name, n in causes.items()):
        return False
    return all(type(row[name]) is kind for name, kind in NUMBERS.items()) and all(
        isinstance(row[n], str) for n in TEXTS
    )


def record_metrics(split: str, rows: Sequence[Row]) -> dict[str, Any]:
    """The metrics of this file's table over these episodes."""
    evaluation = summarise(split, columns_of(rows))
    success, cluster = np.array([row["success"] for row in rows]), [row["cluster"] for row in rows]
    n = independent_tasks(success, cluster)
    return {
        "episodes": evaluation.episodes,
        "successes": evaluation.successes,
        "success": evaluation.success,
        "interval": list(evaluation.interval),
        "distinct_tasks": evaluation.different,
        "independent_tasks": evaluation.independent,
        "clusters": len(set(cluster)),
        "cluster_interval": list(wilson(evaluation.success * n, n)),
        "score": evaluation.score,
        "return": evaluation.reward,
        "text_score": evaluation.reward_by_step,
        "length": evaluation.length,
        "invalid_share": evaluation.invalid_share,
        **({BY_CAUSE: evaluation.causes} if evaluation.causes else {}),
        "truncated_share": evaluation.truncated_share,
        "prompt_cut_share": evaluation.prompt_cut_share,
    }


def document(identity: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """All of an evaluation: what was played, its metrics, those by kind where tasks have kinds, and its episodes."""
    split = identity["split"]
    kinds = sorted({row["kind"] for row in rows} - {""})
    by_kind = {kind: record_metrics(split, [row for row in rows if row["kind"] == kind]) for kind in kinds}
    return {**identity, "result": record_metrics(split, rows), "by_kind": by_kind, "rows": list(rows)}


def written(data: Mapping[str, Any]) -> bytes:
    """A document as JSON, with a line for each row."""
    head = json.dumps({name: value for name, value in data.items() if name != "rows"}, indent=1)
    rows = ",\n  ".join(json.dumps(row) for row in data["rows"])
    return f'{head[:-2]},\n "rows": [\n  {rows}\n ]\n}}\n'.encode()


def read_evaluation(path: Path) -> dict[str, Any]:
    """The document of an evaluation's JSON file. Raises `ConfigError` where it is none, or of another format."""
    try:
        data = read_json(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no evaluation: {error}; `crbc eval RUN --out FILE.json` writes one") from error
    rows = data.get("rows") if isinstance(data, dict) else None
    if data is None or not isinstance(rows, list) or not rows or not all(map(is_row, rows)):
        raise ConfigError(
            f"{path} is no evaluation: it has no rows of episodes; `crbc eval RUN --out FILE.json` writes one"
        )
    if data.get("format") != FORMAT:
        raise ConfigError(f"{path} is an evaluation of format {shown(data.get('format'))}, and {FORMAT} is read here")
    return data
