"""How many steps vLLM decodes for an update of long tasks: replies leave its queue at once, or an eighth at a time.

    python -m benchmarks.queue_steps

It is a simulation: `crbc_rl.policies.vllm.Requests`, as the learner has it, on an engine that only counts. A reply's
length is drawn from a geometric distribution. A call of the environments lasts so many decoding steps. It is made with
all replies that ended together, as in `crbc_rl.rollout.collect`, and decoding stops where it ends too late.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from crbc_envs.prompts import Prompt
from crbc_rl.batches import Turn
from crbc_rl.policies.vllm import Requests, VllmPolicy

PROMPT = Prompt("")


@dataclass
class Counting:
    """What `Requests` uses of a `VllmPolicy`: each step gives every waiting reply a token."""

    waves: int
    lengths: Any
    steps: int = 0
    left: dict[str, int] = field(default_factory=dict)
    asked: int = 0

    @property
    def policy(self) -> Any:
        return SimpleNamespace(asked=lambda prompt: Turn([], [], []), thought=None)

    @property
    def llm(self) -> Any:
        return SimpleNamespace(enqueue=self.enqueue, llm_engine=SimpleNamespace(step=self.step))

    def sampling(self, *_: object) -> None: ...

    def request(self, turn: object) -> None: ...

    def answered(self, turn: Turn, output: object) -> Turn:
        return turn

    def enqueue(self, *_: object, **__: object) -> list[str]:
        self.asked += 1
        self.left[str(self.asked)] = next(self.lengths)
        return [f"{self.asked}-"]

    def step(self) -> list[Any]:
        self.steps += 1
        self.left = {name: left - 1 for name, left in self.left.items()}
        ended = [name for name, left in self.left.items() if not left]
        for name in ended:
            del self.left[name]
        return [SimpleNamespace(request_id=name, finished=True) for name in ended]


def update(waves: int, environments: float, settings: Mapping[str, int], seed: int) -> tuple[int, float]:
    """Decoding steps of an update, and its length in such steps, waiting for the environments included."""
    rng = np.random.default_rng(seed)
    lengths = iter(lambda: int(min(rng.geometric(1 / settings["tokens"]), settings["longest"])), None)
    turns = np.clip(rng.geometric(1 / settings["turns"], settings["rollouts"]), 1, settings["limit"]).tolist()
    engine = Counting(waves, lengths)
    queue = Requests(cast(VllmPolicy, engine), 1.0, settings["longest"])
    for member in range(len(turns)):
        queue.ask(member, PROMPT, 0)
    waited, stepping, ends = 0.0, list[int](), 0.0
    while queue.waiting or stepping:
        replies = queue.ready()
        if stepping:
            waited += max(0.0, ends - engine.steps - waited)
            for member in stepping:
                turns[member] -= 1
                if turns[member]:
                    queue.ask(member, PROMPT, 0)
        stepping, ends = [member for member, _ in replies], engine.steps + waited + environments
    return engine.steps, engine.steps + waited


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    defaults = {"rollouts": 128, "turns": 20, "limit": 50, "tokens": 127, "longest": 512}
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    settings = {name: getattr(given, name) for name in defaults}
    print(", ".join(f"{name} {value}" for name, value in settings.items()))
    for environments in (0.1, 1.0, 4.0, 60.0):
        both = []
        for waves, name in ((1, "at once"), (2, "an eighth")):
            found = [update(waves, environments, settings, seed) for seed in range(given.seeds)]
            steps, length = np.mean(found, axis=0)
            both.append(f"{name} {steps:,.0f} steps, {length:,.0f} with waiting")
        print(f"environments of {environments:g} decoding steps: {'; '.join(both)}")


if __name__ == "__main__":
    main()
