"""`crbc agents`: plays a panel with a prompting agent, and prints its success, its cost and the server's faults."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console

from crbc_lab.agents.config import AgentsConfig
from crbc_lab.agents.ledger import Ledger
from crbc_lab.agents.results import FILE
from crbc_lab.agents.run import Run, first_prompt
from crbc_lab.commands.console import print_line, view_command
from crbc_lab.interrupts import Interrupts
from crbc_lab.plan.environment import check_env
from crbc_lab.progress import Bars
from crbc_rl.errors import ConfigError, redacted
from crbc_rl.policies.api import Policy
from crbc_rl.policies.chat import ChatPolicy
from crbc_rl.rollout.invalid import by_cause, quotes

log = logging.getLogger(__name__)

Result = dict[str, Any]


def agents(config: AgentsConfig, folder: Path, again: bool, transcripts: int, console: Console) -> bool:
    """Play what is not finished in `folder` and print the result. Returns whether every episode is finished, with a
    valid reply among all."""
    check(config)
    config = fitted(config)
    model = open_model(config)
    done, total = 0, config.episodes * len(config.seeds)
    account: Ledger | None = None

    def state() -> str:
        asked = f", {account.asked:,} calls asked, {account.from_cache:,} from the cache" if account is not None else ""
        return f"  {done} of {total} episodes{asked}"

    with closing(Run(config)) as run, Interrupts(), Bars(console, state) as bars:
        bar = bars.add("episodes", total=total)

        def tell(ended: int, ledger: Ledger) -> None:
            nonlocal done, account
            done, account = ended, ledger
            bars.update(bar, completed=ended)

        result = run.play(folder, model, again, tell, transcripts)
    for line in lines(config, result, folder):
        print_line(console, line)
    if result["episodes"] and result["invalid_share"] == 1.0:
        log.error("no reply was valid: this is no measure of the model's success")
        return False
    return bool(result["complete"])


def dry_run(config: AgentsConfig, folder: Path, console: Console) -> None:
    """Check everything that can be checked without a call, and print the plan and the first prompt."""
    check(config)
    with closing(Run(config)) as run:
        panel = run.panel()
        prompt = first_prompt(run, run.chosen.tasks[0])
        steps = run.chats[0].env.max_steps
    model = config.model
    turns = steps if config.agent == "direct" else config.react.turns or steps
    # A reflection stands between two trials.
    most = turns and config.episodes * len(config.seeds) * (config.trials * (turns + 1) - 1)
    # Making the policy checks the address, and its password is shown nowhere from then on.
    place = redacted(ChatPolicy(model.endpoint, model.name).url) if model.endpoint is not None else ""
    limits = config.limits
    budget = [f"{limits.tokens:,} tokens"] if limits.tokens is not None else []
    budget += [f"{limits.money:.2f} {config.prices.currency}"] if limits.money is not None else []
    for line in (
        f"{config.name}: a plan; nothing is asked or written",
        f"agent        {config.agent}, {config.trials} trial(s) of each task at most",
        f"model        {model.name} {f'at {place}' if place else 'in this process'}",
        f"panel        {panel['env']}, {panel['data'] or 'own'} data, {config.episodes:,} {panel['split']} tasks "
        f"({panel['panel']}), {len(config.seeds)} seed(s), digest {panel['digest'][:16]}",
        f"calls        {f'at most {most:,}' if most else 'no limit: the environment names no limit of steps'}",
        f"budget       {' or '.join(budget) or 'none: set limits.tokens or limits.money'}",
        f"run folder   {folder}",
        "first prompt",
    ):
        print_line(console, line)
    print_line(console, prompt)


def check(config: AgentsConfig) -> None:
    """Raise `ConfigError` where the environment cannot be played, with what is missing and how to get it."""
    taught = config.agent != "direct" and config.react.examples and config.react.text is None
    env = check_env(config, [config.split, *["train"] * bool(taught and config.split != "train")])
    problems = [*env.errors, *(f"{finding.name}: {finding.fix}" for finding in env.findings)]
    if problems:
        raise ConfigError(f"{config.name} cannot start here: {'; '.join(problems)}")
    size = env.panels[config.split]
    if config.episodes > size:
        raise ConfigError(f"episodes: {config.episodes:,}, and the {config.split} panel has {size:,} tasks")


def fitted(config: AgentsConfig) -> AgentsConfig:
    """The config, with replies that leave half of a local model's positions to the prompt, where it names no limit."""
    model = config.model
    if model.endpoint is not None or "max_tokens" in model.model_fields_set:
        return config
    from crbc_rl.policies.files import model_folder, positions, read_config

    most = min(model.max_tokens, positions(read_config(model_folder(model.name))) // 2)
    return config.model_copy(update={"model": model.model_copy(update={"max_tokens": most})})


def open_model(config: AgentsConfig) -> ChatPolicy | Policy:
    """The endpoint, which must answer, or the checkpoint of a folder."""
    model, limits = config.model, config.limits
    if model.endpoint is not None:
        policy = ChatPolicy(
            model.endpoint,
            model.name,
            key_variable=model.key_variable,
            concurrency=limits.concurrency,
            options=model.options,
        )
        policy.check()
        return policy
    if model.temperature == 0:
        raise ConfigError(
            "model.temperature: 0, and a model of a folder samples: set model.temperature=0.1 or serve it"
        )
    if model.options:
        raise ConfigError("model.options: they are fields of a server's requests; leave them out for a model folder")
    from crbc_rl.config import RolloutConfig
    from crbc_rl.policies.load import load_player

    return load_player(model.name, rollout=RolloutConfig(max_new_tokens=model.max_tokens))


def lines(config: AgentsConfig, result: Result, folder: Path) -> Iterator[str]:
    """The result in words."""
    if result["episodes"]:
        yield f"{result['model']}, {config.agent}: success {_rate(result['success'])}"
        unanswered, of = result["unanswered"], result["episodes"]
        yield (
            f"score {result['score']:.2f}  invalid {result['invalid_share']:.1%}  trials {result['trials']}  "
            f"thoughts {result['thoughts']}  unanswered {unanswered} of {of} episodes"
        )
        if causes := by_cause(result["invalid_by_cause"]):
            yield f"invalid replies by cause: {causes}"
            yield from quotes(result["invalid_replies"])
        for kind, figures in result["by_kind"].items():
            yield f"    {kind:8} {_rate(figures)}"
        if config.trials > 1:
            for within, figures in enumerate(result["by_trial"], 1):
                yield f"    within {within} trial(s)  {_rate(figures)}"
        if len(config.seeds) > 1:
            for seed, figures in result["by_seed"].items():
                yield f"    seed {seed}  {_rate(figures)}"
        if unanswered:
            yield "unanswered episodes count as failed; --again plays them again, and asks for nothing twice"
    spent = result["spent"]
    faults = ", ".join(f"{kind} {count:,}" for kind, count in spent["faults"].items()) or "none"
    paid = f", {spent['cost']:.4f} {spent['currency']}" if config.prices.input or config.prices.output else ""
    guess = f" ({spent['estimated']:,} calls estimated)" if spent["estimated"] else ""
    yield f"{spent['calls']:,} calls, {spent['tokens_in']:,} tokens in, {spent['tokens_out']:,} out{paid}{guess}"
    yield f"faults: {faults}; {spent['retries']:,} retries, {spent['failed']:,} calls failed for good"
    start = result["this_start"]
    yield f"this start: {start['asked']:,} calls asked, {start['from_cache']:,} from the cache"
    if not result["complete"]:
        yield (
            f"NOT COMPLETE: {result['episodes']:,} of {result['episodes_wanted']:,} episodes, {result['stopped']}. The "
            "finished ones are rather the short ones, so their success is no estimate of the panel's"
        )
    yield f"result {folder / FILE}; transcripts: {view_command(folder)}"


def _rate(figures: Result) -> str:
    return (
        f"{figures['success']:.1%} (95 % interval {figures['low']:.1%} to {figures['high']:.1%}, "
        f"{figures['successes']} of {figures['episodes']})"
    )
