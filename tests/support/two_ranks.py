"""What two ranks do for `test_patience.py`: wait for a slow rank 0, and restore their own shards."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from learner_fixtures import fresh_policy, small
from torch import Tensor, nn
from transformers import PreTrainedModel

from crbc_rl.distributed import Distributed
from crbc_rl.policies import transformers
from crbc_rl.training import checkpoint
from crbc_rl.training.actor import Actor
from crbc_rl.training.checkpoint import restore_optimizer, save_optimizer
from crbc_rl.training.critic import Critic
from crbc_rl.training.folders import publish


def wait(distributed: Distributed) -> None:
    """Rank 0 is busy for longer than the default group waits."""
    if distributed.main:
        time.sleep(9)
    distributed.barrier()
    assert distributed.any(distributed.main)


def save(distributed: Distributed, folder: Path) -> None:
    """Rank 0 writes weights for longer than the default group waits, and factors and a critic are gathered too."""
    if distributed.main:
        fresh_policy().save(folder / "model")
    distributed.barrier()
    config = small(folder / "model", policy={"lora_rank": 2}, credit={"method": "gae"})
    actor, critic = Actor(config, distributed), Critic(config, distributed)
    write_model = transformers.write_model

    def slow(model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]], place: Path, main: bool) -> None:
        write_model(model, weights, place, main)
        time.sleep(9 if main else 0)

    transformers.write_model = slow
    place = publish(folder / "checkpoints", 1, partial(_save, actor, critic), 1, distributed)
    Actor(config, distributed, place)
    Critic(config, distributed, place)


def _save(actor: Actor, critic: Critic, place: Path) -> None:
    actor.save(place, {"update": 1, "best": 0.5})
    critic.save(place)


def sharded(distributed: Distributed) -> tuple[checkpoint.Named, torch.optim.AdamW]:
    torch.manual_seed(0)
    model = nn.Linear(3, 5)  # rows that two ranks cannot share evenly
    distributed.shard(model, "float32")
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2, 3)).square().sum().backward()
    return named, optimizer


def restore(distributed: Distributed, folder: Path) -> None:
    named, optimizer = sharded(distributed)
    optimizer.step()
    save_optimizer(folder, optimizer, named, distributed)
    distributed.barrier()
    opened: list[str] = []
    safe_open = checkpoint.safe_open
    checkpoint.safe_open = lambda file, kind: opened.append(file.name) or safe_open(file, kind)
    again, other = sharded(distributed)
    restore_optimizer(folder, other, again, distributed)
    assert opened == [f"trainer-{distributed.rank:05d}-of-00002.safetensors"], opened
    for (_, mine), (_, theirs) in zip(named, again, strict=True):
        kept, found = optimizer.state[mine], other.state[theirs]
        for slot in ("exp_avg", "exp_avg_sq"):
            assert found[slot].shape == theirs.shape and found[slot].placements == theirs.placements
            assert torch.equal(kept[slot].to_local(), found[slot].to_local())
            assert torch.equal(kept[slot].full_tensor(), found[slot].full_tensor())
        assert float(found["step"]) == 1.0
    other.step()  # the restored state is one that the optimizer can use


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=6))
    distributed = Distributed.join()
    wait(distributed)
    restore(distributed, Path(sys.argv[1]))
    save(distributed, Path(sys.argv[1]))
    distributed.leave()


if __name__ == "__main__":
    main()
