"""The public implementations of GiGPO, HGPO, GraphGPO and G2PO beside ours: equal numbers, and what each costs.

They are not part of this project. `folders` are checkouts that contain the files in `FILES`, each by its path in its
own repository: verl-agent for the first three, G2PO's own for the last. They need torch, networkx and matplotlib. They
run in double precision, since their single precision would hide differences. Loading them runs their code.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchors import InternedRollouts
from crbc_rl import credit

Floats = NDArray[np.float64]

FILES = {
    "gigpo": "gigpo/core_gigpo.py",
    "hgpo": "recipe/hgpo/core_hgpo.py",
    "graphgpo": "recipe/GraphGPO/core_graph.py",
    "g2po": "g2po/core_g2po.py",
}
OPTIONS: dict[str, dict[str, Any]] = {
    "gigpo": {"weighting": "step"},
    "hgpo": {"first_weight": 2.0},
    "graphgpo": {"weighting": "step"},
    "g2po": {"weighting": "step"},
}
"""The options of `credit.advantages` that match the public code."""

TOLERANCE = {"gigpo": 1e-9, "hgpo": 1e-4, "graphgpo": 1e-6, "g2po": 1e-9}
"""The largest accepted difference. HGPO's code divides by the sum of weights plus 1e-6; in a flat group the others
divide a rounding error by 1e-6."""


class _Double:
    """numpy or torch with double in place of single precision."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, "float64" if name == "float32" else name)


def load(method: str, folders: Sequence[Path]) -> types.ModuleType:
    """The public module of a method. Raises `FileNotFoundError` where no folder has it."""
    import torch

    file = next((folder / FILES[method] for folder in folders if (folder / FILES[method]).is_file()), None)
    if file is None:
        raise FileNotFoundError(f"{FILES[method]} is in none of {', '.join(map(str, folders))}")
    spec = importlib.util.spec_from_file_location(f"public_{method}", file)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    verl: Any = types.ModuleType("verl")
    verl.DataProto = object  # named in annotations only
    before = sys.modules.get("verl")
    sys.modules["verl"] = verl
    sys.path[:0] = [str(folder) for folder in folders]
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.path[: len(folders)]
        sys.modules.pop("verl")
        if before is not None:
            sys.modules["verl"] = before
    for each in {module, sys.modules.get("gigpo.core_gigpo")} - {None}:
        each.np, each.torch = _Double(np), _Double(torch)
    return module


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Torch's default type is double inside, and what the public code prints is dropped."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        torch.set_default_dtype(before)


def public(method: str, module: Any, rollouts: InternedRollouts) -> Callable[[], Floats]:
    """A call of the public code as its trainer calls it, on one token per step: from the rows to the advantages.

    Every step row has the reward of its episode, less the penalty of a malformed reply.
    """
    import torch

    n, of = len(rollouts.anchor), rollouts.rollout
    last = np.cumsum(rollouts.length) - 1
    rewards = np.zeros(n)
    rewards[last] = 10.0 * rollouts.success
    keys = np.array([f"anchor {number}" for number in rollouts.anchor.tolist()], dtype=object)
    following = np.append(keys[1:], "")
    following[last] = ["success" if won else f"nowhere {i}" for i, won in enumerate(rollouts.success.tolist())]
    columns = {
        "rewards": rewards,
        "episode_rewards": (10.0 * rollouts.success)[of],
        "active_masks": np.ones(n),
        "anchor_obs": keys,
        "next_obs": following,
        "text_actions": rollouts.action.astype(str).astype(object),
        "traj_uid": np.array([f"rollout {i:06}" for i in of.tolist()], dtype=object),
        "uid": np.array([f"task {g:06}" for g in rollouts.group[of].tolist()], dtype=object),
        "is_action_valid": rollouts.valid.astype(np.int64),
    }
    tokens = torch.zeros((n, 1), dtype=torch.float64)
    batch = types.SimpleNamespace(non_tensor_batch=columns, batch={"input_ids": tokens, "responses": tokens})
    penalty = torch.tensor(np.where(rollouts.valid, 0.0, 0.1))

    def call() -> Floats:
        episode = torch.tensor(columns["episode_rewards"]) - penalty
        common = {
            "token_level_rewards": episode[:, None].clone(),
            "response_mask": torch.ones((n, 1), dtype=torch.float64),
            "index": columns["uid"],
            "traj_index": columns["traj_uid"],
            "mode": "mean_std_norm",
        }
        with double_precision():
            found = _steps(method, module, batch, penalty, common)
        advantages: Floats = found[:, 0].numpy()
        return advantages

    return call


def _steps(method: str, module: Any, batch: Any, penalty: Any, common: dict[str, Any]) -> Any:
    columns = batch.non_tensor_batch
    if method == "g2po":
        scores, here, there = module.compute_group_aggregation_values(batch)
        more = {"step_rewards": scores, "group_idx": here, "next_group_idx": there}
        return module.compute_g2po_outcome_advantage(**common, **more, is_action_valid=columns["is_action_valid"])[0]
    common["anchor_obs"] = columns["anchor_obs"]
    if method == "graphgpo":
        graphs = module.ComplexGraph.from_data(batch)
        module.ComplexGraph.Calculate_all_shortest_path(graphs)
        returns = module.compute_graph_path_returns(batch, graphs, 0.1, False)
        return module.compute_graphgpo_outcome_advantage(**common, step_rewards=returns - penalty)[0]
    returns = module.compute_step_discounted_returns(batch, 0.95) - penalty
    if method == "hgpo":
        return module.compute_hgpo_outcome_advantage(**common, step_rewards=returns, history_length=2)[0]
    return module.compute_gigpo_outcome_advantage(**common, step_rewards=returns)[0]


def difference(method: str, theirs: Floats, rollouts: InternedRollouts) -> float:
    """The largest difference from ours. Raises `ValueError` where it is more than `TOLERANCE`."""
    apart = float(np.abs(theirs - credit.advantages_interned(rollouts, method, **OPTIONS[method])).max())
    if not apart <= TOLERANCE[method]:
        raise ValueError(f"{method}: ours and the public code differ by {apart:.1e}")
    return apart
