"""The recorded groups through verl's own agent-loop worker, TransferQueue, replay buffer, padding, balancing and
advantage code. Replies are replayed, and no model is there; everything else is verl's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import hydra
import numpy as np
import pytest
import ray
import recorded_groups
import transfer_queue as tq
import verl  # noqa: F401 (it imports the adapter)
from command import CONFIGS, overrides
from recorded_groups import ENV_ID, KINDS, SIZE
from verl.trainer.ppo.v1 import AgentLoopWorkerTQ, get_trainer_cls
from verl.workers.rollout.replica import TokenOutput

from crbc_rl.adapters.verl_rollouts import ChatLoop

GROUPS = recorded_groups.read()
RANKS = 4
PLAIN = ("algorithm.credit.weighting=rollout", "~algorithm.credit.crbc")
"""The library's own defaults."""
ENV = f"{{id: {ENV_ID}, prompt: compact, kwargs: {{observation: text, max_steps: 8}}}}"


def config(*more: str, env: str = ENV) -> Any:
    """`configs/verl/base.yaml` for the recorded environment, or another."""
    task = [
        "hydra.searchpath=[pkg://verl.trainer.config]",
        f"++data.env={env}",
        f"data.train_batch_size={len(GROUPS)}",
        "data.max_prompt_length=400",
        "data.max_response_length=24",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        f"actor_rollout_ref.rollout.n={SIZE}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=3",
    ]
    with hydra.initialize_config_dir(str(CONFIGS), version_base=None):
        return hydra.compose("base", [*task, *overrides(), *more])


@pytest.fixture(scope="module", autouse=True)
def queue() -> Iterator[None]:
    ours = config()
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", object_store_memory=200_000_000)
    ours.transfer_queue.enable = True
    tq.init(ours.transfer_queue)
    yield
    tq.close()
    ray.shutdown()


class Replay:
    """verl's client of the engine: the replies of the session that asks, as `lost` leaves them."""

    def __init__(self, lost: set[tuple[int, int]]) -> None:
        self.left: dict[str, list[list[int]]] = {}
        self.lost = lost

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Any, **_: Any) -> TokenOutput:
        await asyncio.sleep(0)  # the others' turn: sessions end in another order than they began
        task = asyncio.current_task()
        assert task is not None
        if tuple(map(int, task.get_name().split("/"))) in self.lost:
            raise ConnectionError("the engine is gone")
        ids = self.left[task.get_name()].pop(0)
        told = {"min_global_steps": 0, "max_global_steps": 0}
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids), extra_fields=told)


def trainer(ours: Any) -> Any:
    """Our trainer for `RANKS` ranks, without its workers."""
    made = get_trainer_cls(ours.trainer.v1.trainer_mode)(ours)
    made._init_tokenizer()
    made.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": list(range(RANKS))})
    made.global_steps = 1
    return made


async def play(worker: Any, replay: Replay, tokenizer: Any) -> None:
    jobs = []
    for g, group in enumerate(GROUPS):
        for m, recorded in enumerate(group.rollouts):
            name = f"{g}/{m}"
            ends = [tokenizer.eos_token_id]
            replay.left[name] = [tokenizer.encode(x, add_special_tokens=False) + ends for x in recorded.replies]
            where = {"step": 1, "sample_index": g, "rollout_n": m, "validate": False}
            task = {"task": group.task, "split": "train", "kind": "", "seed": 0, "repeat": -1, "index": g}
            run = worker._run_agent_loop(
                {}, where, agent_name="crbc", trace=False, uid=f"uid{g}", session_id=m, global_steps=1, **task
            )
            jobs.append(asyncio.create_task(run, name=name))
    failed = await asyncio.gather(*jobs, return_exceptions=True)
    assert [name for name, error in zip(replay.left, failed, strict=True) if error] == [
        f"{g}/{m}" for g, m in sorted(replay.lost)
    ]
    for g in range(len(GROUPS)):
        await tq.async_kv_put(key=f"uid{g}", partition_id="train", tag={"status": "finished"})


class Update:
    """What verl makes of the recorded rollouts: each row's advantages, in the batch's order."""

    def __init__(self, *more: str, lost: set[tuple[int, int]] | None = None, dropped: str = "") -> None:
        ours = config(*more)
        ours.transfer_queue.enable = True
        ChatLoop.idle.clear()
        made, replay = trainer(ours), Replay(lost or set())
        worker = object.__new__(AgentLoopWorkerTQ.__ray_metadata__.modified_class)
        type(worker).__init__(worker, ours, replay)
        waiting = {"is_prompt": True, "status": "pending", "global_steps": 1}
        keys = [f"uid{g}" for g in range(len(GROUPS))]
        tq.kv_batch_put(keys=keys, partition_id="train", tags=[waiting] * len(keys))
        asyncio.run(play(worker, replay, made.tokenizer))
        batch, _ = made.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=len(keys))
        if dropped:
            row = batch.keys.index(dropped)
            tq.kv_clear(keys=[batch.keys.pop(row)], partition_id="train")
            batch.tags.pop(row)
        self.rows, self.metrics = len(batch), dict[str, float]()
        batch = made._balance_batch(batch, self.metrics)
        self.keys, self.tags = list(batch.keys), list(batch.tags)
        read = {"keys": batch.keys, "partition_id": "train"}
        scores = tq.kv_batch_get(**read, select_fields=["rollout_log_probs"])
        scores["old_log_probs"] = scores.pop("rollout_log_probs")  # which the actor would compute
        tq.kv_batch_put(**read, fields=scores)
        try:
            made._compute_advantage(batch, self.metrics)
            kept = tq.kv_batch_get(**read, select_fields=["advantages", "response_mask", "extra_fields"])
            self.advantages, self.masks = list(kept["advantages"]), list(kept["response_mask"])
            self.extra = list(kept["extra_fields"])
        finally:
            tq.kv_clear(keys=self.keys, partition_id="train")

    def compare(self, wanted: Any, broken: int = -1) -> float:
        """The largest difference to `wanted`, by rollout and step. Padding has 0, and so has the group `broken`."""
        worst, seen = 0.0, 0
        for key, tag, found, mask in zip(self.keys, self.tags, self.advantages, self.masks, strict=True):
            if tag.get("is_padding"):
                assert not found.any()
                continue
            uid, member, step = key.rsplit("_", 2)
            group = int(uid.removeprefix("uid"))
            right = 0.0 if group == broken else wanted[group * SIZE + int(member)][int(step)]
            assert len(found) == len(mask) and mask.all()
            worst, seen = max(worst, float((found.double() - right).abs().max())), seen + 1
        assert seen == self.rows
        return worst


@pytest.mark.parametrize(("method", "options"), KINDS, ids=str)
def test_each_row_gets_its_own_credit(method: str, options: dict[str, Any]) -> None:
    own = [f"++algorithm.credit.{method}.{name}={value}" for name, value in options.items()]
    update = Update(f"algorithm.credit.method={method}", *PLAIN, *own)
    assert len(update.keys) > update.rows and update.keys != sorted(update.keys)
    assert update.compare(recorded_groups.advantages(GROUPS, method, **options)) < 1e-6
    assert update.metrics["crbc/broken_groups"] == 0.0
    rollouts = [rollout.rows[-1]["success"] for group in GROUPS for rollout in group.rollouts]
    assert update.metrics["crbc/success"] == np.mean(rollouts)


def test_the_rows_are_those_of_the_environment() -> None:
    update = Update()
    for key, tag, extra in zip(update.keys, update.tags, update.extra, strict=True):
        if not tag.get("is_padding"):
            uid, member, step = key.rsplit("_", 2)
            group = int(uid.removeprefix("uid"))
            row = GROUPS[group].rollouts[int(member)].rows[int(step)]
            assert {**extra["crbc"], "group": group} == row


def test_a_member_that_is_killed_costs_its_group_its_credit() -> None:
    with pytest.warns(UserWarning, match="has rows of 3 rollouts, of 4; 1 of 3 groups get no credit"):
        update = Update(*PLAIN, lost={(1, 2)})
    assert update.metrics["crbc/broken_groups"] == 1.0
    assert update.compare(recorded_groups.advantages(GROUPS, "crbc"), broken=1) < 1e-6


def test_a_lost_row_is_named() -> None:
    with pytest.warns(UserWarning, match="group 'uid1', rollout 2, step 3: the row is lost; 1 of 3 groups"):
        update = Update(*PLAIN, dropped="uid1_2_3")
    assert update.compare(recorded_groups.advantages(GROUPS, "crbc"), broken=1) < 1e-6
