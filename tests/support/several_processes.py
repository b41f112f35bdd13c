"""Started by torchrun: jobs done one after the other in one group of processes, which is launched once for all of them.

Argument: a JSON file with a list of jobs, each `{"job": NAME, ...}` with the arguments of that function below.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from learner_fixtures import small
from safetensors.torch import save_file
from tables import table
from torch import Tensor
from torch.distributed.tensor import DTensor

from crbc_rl.batches import Turn
from crbc_rl.config import load_config
from crbc_rl.distributed import Distributed
from crbc_rl.learner import Learner
from crbc_rl.runs.folder import Run
from crbc_rl.training.actor import Actor


def train(distributed: Distributed, config: str, run: str, resume: bool = False, sets: tuple[str, ...] = ()) -> None:
    """A run as `crbc train` does it."""
    settings = load_config(Path(config), sets)
    Learner(settings, Run.start(Path(run), settings, resume, distributed), distributed=distributed).train()


def gradients(distributed: Distributed, model: str, file: str) -> None:
    """The gradient of one mini-batch, put together from all processes."""
    config = small(Path(model), optim={"lr": 1e-9, "minibatch": 64, "microbatch": 4, "grad_clip": 1e9})
    actor = Actor(config, distributed)
    rng = np.random.default_rng(0)
    turns, advantage, old = [], [], []
    for _ in range(21):
        prompt, reply = (rng.integers(300, size=rng.integers(1, 9)).tolist() for _ in range(2))
        advantage.append(float(rng.normal()))
        old.append((-5.0 - rng.random(len(reply))).tolist())
        turns.append(Turn(prompt, reply, old[-1]))
    found: dict[str, Tensor] = {}

    def keep(*_: object) -> None:
        for name, p in actor.named:
            found[name] = (p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad).contiguous().clone()

    actor.optimizer.register_step_pre_hook(keep)
    actor.optimise(table(turns, advantage=advantage, old=old), rng, watch=True)
    assert actor.seen is not None
    found["seen"] = torch.from_numpy(actor.seen).float()
    if distributed.main:
        save_file(found, file)
    distributed.barrier()


def exchange(distributed: Distributed, file: str) -> None:
    """What every process knows after each has given values of its own."""
    rank = distributed.rank
    known = {
        "parts": distributed.gather({"text": f"rank {rank}", "some": list(range(rank))}),
        "any": [distributed.any(rank == 1), distributed.any(False)],
        "sum": distributed.sum(np.array([1.0, 10.0 * rank])).tolist(),
    }
    Path(f"{file}.{rank}").write_text(json.dumps(known))


def command(distributed: Distributed, arguments: list[str]) -> None:
    """The `crbc` command itself; the last job, since it ends the group of processes."""
    from crbc_lab.cli import main

    main(arguments)


JOBS: dict[str, Any] = {"train": train, "gradients": gradients, "exchange": exchange, "command": command}

if __name__ == "__main__":
    distributed = Distributed.join()
    for job in json.loads(Path(sys.argv[1]).read_text()):
        JOBS[job.pop("job")](distributed, **job)
    distributed.leave()
