"""The command `crbc eval` with its options."""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from crbc_lab.commands.console import console
from crbc_lab.commands.parse import Count, Index, MaybePath, RunPath, Settings, Size, permit
from crbc_rl.errors import ConfigError
from crbc_rl.names import find


def evaluate(
    run: RunPath,
    /,
    policy: Literal["best", "last", "start", "expert", "random"] | None = None,
    split: str | None = None,
    episodes: Count = None,
    panel: Literal["first", "even", "paper"] | None = None,
    tasks: str | None = None,
    set: Settings = (),
    out: MaybePath = None,
    resume: bool = False,
    transcripts: Index = None,
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
        run: a run, a config as for train, or a warm start: a path, or a name such as sokoban-tiny.
        policy: the best policy on validation, the last one saved, or the initial one; or the environment's expert, or
            random admissible actions. Default: last of a run, else start.
        split: the held-out split; default test, or the one of a manifest.
        episodes: number of tasks; default eval.test_episodes of the config.
        panel: which tasks: the first ones, as many of every kind, or draws in the paper's proportions; default
            eval.panel of the config.
        tasks: these tasks: 5,23,28; the paths of game files, where the environment has them; or a manifest, a JSON file
            with a split, tasks and perhaps their digest, such as the --out of an evaluation before.
        set: replaces config values, each as section.key=value.
        out: a JSON file for what was played, the figures, and a row for each episode.
        resume: continue the evaluation of --out that was stopped.
        transcripts: how many tasks are kept beside --out FILE.json, in FILE.transcripts.parquet, half of them lost;
            default 16.
        endpoint: evaluate a model behind an OpenAI-compatible server instead, such as http://localhost:8000/v1. Where
            the config's prompt does not say how to reply, that is added to it.
        model: the name of that model; without an endpoint, the folder of a model, which plays in this process.
        key_variable: the environment variable that holds the server's API key.
        max_tokens: new tokens of a reply; default 4,096, half of a folder's positions, or as in training.
        timeout: seconds for a request and its whole reply; then it is repeated.
        concurrency: requests at a time.
        extra_body: JSON that is merged into each request, such as
            '{"chat_template_kwargs": {"enable_thinking": false}}'; null removes a field.
        allow_import: run the modules that the run's config names.
    """
    permit(allow_import)
    find(run, "run", "config", "model")  # here and below, mistakes are told before torch is imported
    from crbc_lab.agents.config import require_url
    from crbc_lab.commands.order import Order
    from crbc_lab.commands.tasks import ChosenTasks

    if endpoint is not None:
        require_url(endpoint)
    if model == "" or (endpoint is not None and model is None):
        raise ConfigError("--model: name a model of the server, or without --endpoint a model folder")
    if model is not None and policy is not None:
        raise ConfigError(f"--policy {policy} and --model exclude each other: name one policy")
    if endpoint is None and extra_body is not None:
        raise ConfigError("--extra-body is for the requests to a server: add --endpoint URL --model NAME")
    fields = _extra_body(extra_body)
    player: Any = policy if model is None or endpoint is not None else model_folder(model)
    chosen = None if tasks is None else ChosenTasks.read(tasks)
    settings, kept = list(chain.from_iterable(set)), 16 if transcripts is None else transcripts
    order = Order(split, episodes, panel, chosen, settings, max_tokens, out, resume, kept)
    order.read(run, player)

    from crbc_lab.commands.evaluate import evaluate as play
    from crbc_rl.policies.chat import ChatPolicy

    if endpoint is not None and model is not None:
        patience: Any = {"timeout": timeout or 600.0, "concurrency": concurrency or 8}
        player = ChatPolicy(endpoint, model, key_variable=key_variable, options=fields, **patience)
    if not play(run, player, order, console):
        sys.exit(1)


def model_folder(name: str) -> Path:
    """The folder of `--model` without an endpoint."""
    try:
        return find(Path(name), "model").path
    except ConfigError as error:
        raise ConfigError(f"--model: {error}; for a model behind a server add --endpoint URL") from error


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
