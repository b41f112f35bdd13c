"""`crbc eval`: plays a policy on held-out tasks and prints its success with a confidence interval."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape

from crbc_rl.config import load_config
from crbc_rl.plan.check import check_run
from crbc_rl.policies.api import Policy
from crbc_rl.policies.chat import ChatPolicy
from crbc_rl.rollout.evaluate import evaluate as play_panel
from crbc_rl.runs.folder import Run
from crbc_rl.runs.interrupts import Interrupts
from crbc_rl.runs.progress import Bars


def evaluate(path: Path, policy: str | ChatPolicy, split: str, episodes: int | None, console: Console) -> None:
    """Play `episodes` tasks of `split` (by default as many as the config says) and print the result.

    `policy` is "best", "last" or "start" of the run folder `path`, or a chat endpoint; `path` may then be a config.
    """
    run = None if isinstance(policy, ChatPolicy) and not path.is_dir() else Run.open(path)
    config = load_config(path) if run is None else run.config
    count = config.eval.test_episodes if episodes is None else episodes
    check_run(config, evaluation=(split, count)).require()
    player: Policy
    if isinstance(policy, ChatPolicy):
        policy.check()
        player, name = policy, policy.model
    else:
        assert run is not None
        player, name = run.policy(policy), policy
    torch.set_num_threads(config.threads)
    done = 0
    with Interrupts(), Bars(console, lambda: f"  {done} of {count} {split} tasks") as bars:
        bar = bars.add(f"{split} tasks", total=count)

        def tell(ended: int) -> None:
            nonlocal done
            done = ended
            bars.update(bar, completed=ended)

        result = play_panel(player, config, split, count, seed=config.seed, progress=tell)
    console.print(escape(f"{name}: success {result}"), highlight=False, soft_wrap=True)
    console.print(
        f"score {result.score:.2f}  reward {result.reward:.2f} (by step {result.reward_by_step:.2f})  "
        f"length {result.length:.1f}  invalid {result.invalid_share:.1%}  truncated {result.truncated_share:.1%}",
        highlight=False,
    )
    if result.prompt_cut_share:
        console.print(f"prompts shortened {result.prompt_cut_share:.1%}, as too long", highlight=False)
    for kind, (won, played) in result.kinds.items():
        console.print(f"    {escape(kind):8} {won / played:6.1%} ({won} of {played})", highlight=False)
