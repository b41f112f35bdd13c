"""Started by torchrun: the gradient of one mini-batch, put together from all processes. Arguments: model, file."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from learner_fixtures import small
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor

from crbc_rl.batches import Row, Turn
from crbc_rl.distributed import World
from crbc_rl.training.actor import Trainer


def main(model: Path, file: Path) -> None:
    config = small(model, optim={"lr": 1e-9, "minibatch": 64, "microbatch": 4, "grad_clip": 1e9})
    world = World.join()
    trainer = Trainer(config, world)
    rng = np.random.default_rng(0)
    rows = []
    for g in range(21):
        prompt, reply = (rng.integers(300, size=rng.integers(1, 9)).tolist() for _ in range(2))
        rows.append(Row(Turn(prompt, reply, []), g, float(rng.normal()), (-5.0 - rng.random(len(reply))).tolist()))
    found: dict[str, Tensor] = {}

    def keep(*_: object) -> None:
        for name, p in trainer.named:
            found[name] = (p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad).contiguous().clone()

    trainer.optimizer.register_step_pre_hook(keep)
    trainer.optimise([rows], rng)
    if world.main:
        save_file(found, file)
    world.barrier()
    world.leave()


main(Path(sys.argv[1]), Path(sys.argv[2]))
