"""The command `crbc eval` with its options."""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from crbc_lab.commands.console import console
from crbc_lab.commands.parse import Count, MaybePath, RunPath, Settings, Size, permit
from crbc_rl.errors import ConfigError


def evaluate(
    run: RunPath,
    /,
    policy: Literal["best", "last", "start", "expert", "random"] = "last",
    split: str | None = None,
    episodes: Count = None,
    panel: Literal["first", "even", "paper"] | None = None,
    tasks: str | None = None,
    set: Settings = (),
    out: MaybePath = None,
    resume: bool = False,
    endpoint: str | None = None,
    model: str | None = None,
    key_variable: str | None = None,
    max_tokens: Count = None,
    timeout: Size = 600.0,
    concurrency: Count = 8,
    extra_body: str | None = None,
    allow_import: bool = False,
) -> None:
    """Play a run's policy on held-out tasks and print its success with a confidence interval.

    Args:
        run: a run folder, or with --model, --policy expert or --policy random a config, as for train.
        policy: the best policy on validation, the last one saved, or the initial one; or the environment's expert, or
            random admissible actions.
        split: the held-out split; default test, or the one of a manifest.
        episodes: number of tasks; default eval.test_episodes of the config.
        panel: which tasks: the first ones, as many of every kind, or draws in the paper's proportions; default
            eval.panel of the config.
        tasks: these tasks: 5,23,28; the paths of game files, where the environment has them; or a manifest, a JSON file
            with a split, tasks and perhaps their digest, such as the --out of an evaluation before.
        set: replaces config values, each as section.key=value.
        out: a JSON file for what was played, the figures, and a row for each episode.
        resume: continue the evaluation of --out that was stopped.
        endpoint: evaluate a model behind an OpenAI-compatible server instead, such as http://localhost:8000/v1. Where
            the config's prompt does not say how to reply, that is added to it.
        model: the name of that model; without an endpoint, the folder of a model, which plays in this process.
        key_variable: the environment variable that holds the server's API key.
        max_tokens: new tokens of a reply, its thought included; default 4,096 behind an endpoint, else as in training.
        timeout: seconds for a request and its whole reply; then it is repeated.
        concurrency: requests at a time.
        extra_body: JSON that is merged into each request, such as
            '{"chat_template_kwargs": {"enable_thinking": false}}'; null removes a field.
        allow_import: run the modules that the run's config names.
    """
    from crbc_lab.agents.config import require_url
    from crbc_lab.commands.evaluate import Order
    from crbc_lab.commands.evaluate import evaluate as play
    from crbc_lab.commands.tasks import ChosenTasks
    from crbc_rl.policies.chat import ChatPolicy

    permit(allow_import)
    if endpoint is not None:
        require_url(endpoint)
    if model == "" or (endpoint is not None and model is None):
        raise ConfigError("--model: name a model of the server, or without --endpoint a model folder")
    if endpoint is None and model is not None and not (Path(model) / "config.json").is_file():
        raise ConfigError(f"--model {model}: it is no model folder; for a model behind a server add --endpoint URL")
    scripted = policy in ("expert", "random")
    if model is not None and scripted:
        raise ConfigError(f"--policy {policy} and --model exclude each other: name one policy")
    if model is None and run.is_file() and not scripted:
        raise ConfigError(f"{run} is a file: name a run folder, or add --model DIR, or --endpoint URL --model NAME")
    if endpoint is None and extra_body is not None:
        raise ConfigError("--extra-body is for the requests to a server: add --endpoint URL --model NAME")
    player: Any = policy
    if endpoint is not None and model is not None:
        options = _extra_body(extra_body)
        patience: Any = {"timeout": timeout or 600.0, "concurrency": concurrency or 8}
        player = ChatPolicy(endpoint, model, key_variable=key_variable, options=options, **patience)
    elif model is not None:
        player = Path(model)
    chosen = None if tasks is None else ChosenTasks.read(tasks)
    order = Order(split, episodes, panel, chosen, list(chain.from_iterable(set)), max_tokens, out, resume)
    if not play(run, player, order, console):
        sys.exit(1)


def _extra_body(text: str | None) -> dict[str, Any]:
    """The fields that `--extra-body` adds to requests."""
    from crbc_envs.storage.files import parse_json
    from crbc_lab.agents.config import OWN_FIELDS

    try:
        fields = {} if text is None else parse_json(text.encode())
        json.dumps(fields, allow_nan=False)
    except ValueError as error:
        raise ConfigError(f"--extra-body: it is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError("--extra-body: write a JSON object, such as '{\"top_p\": 0.9}'")
    for name in sorted({*OWN_FIELDS, "max_tokens"} & fields.keys()):
        raise ConfigError(f"--extra-body: {name!r} is set by the command; leave it out (--max-tokens is an option)")
    return fields
