"""What padding and waiting for the slowest rank cost at the paper's lengths, by the way rows are divided into passes.

    python -m benchmarks.padding

Rows are drawn as the plan draws them (`crbc_lab.plan.padding`). Each figure is the tokens that eight ranks compute, or
wait for, over the tokens of the rows. "As they come" gives every rank the next rows in passes of `optim.microbatch`, as
trainers without a division of their own do; the other two are the learner's, padded and packed.
"""

from __future__ import annotations

from benchmarks.paper_runtime import CONFIGS
from crbc_lab.plan.padding import DRAWN, computed, drawn_lengths
from crbc_lab.plan.workload import Workload, workload_of
from crbc_rl.config import TrainConfig, load_config

RANKS = 8


def as_they_come(config: TrainConfig, work: Workload) -> float:
    """Each rank pads its own passes, and all wait for the one with the most tokens."""
    lengths, size = drawn_lengths(work, DRAWN, config.rollout.max_new_tokens), config.optim.microbatch or 1
    whole = lengths[: len(lengths) // (RANKS * size) * RANKS * size].reshape(-1, RANKS, size)
    return float((whole.max(axis=2) * size).max(axis=1).sum() * RANKS / whole.sum())


def main() -> None:
    print("| config | as they come | divided by the learner | packed by it |\n|---|---|---|---|")
    for name in CONFIGS:
        configs = [load_config(f"paper/{name}", [f"policy.attention={how}"]) for how in ("null", "flash_attention_2")]
        work = workload_of(configs[0])
        assert work is not None
        optim, vision = configs[0].optim, "-vl-" in name
        alike = DRAWN, RANKS, optim.minibatch, optim.microbatch
        padded, packs = (computed(config, work, vision, *alike)[0] for config in configs)
        print(f"| {name} | {as_they_come(configs[0], work):.2f} | {padded:.2f} | {packs:.2f} |")


if __name__ == "__main__":
    main()
