"""Warm starts: a tiny policy trained by imitation of an expert to use the reply format and to play a little.

It stays far below the expert on purpose: the expert errs and the demonstrations are few, so that reinforcement learning
has something to improve. The training is seeded: the same config gives the same weights.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain, cycle, islice
from pathlib import Path

import numpy as np
import torch

from crbc_envs.actions import CLOSE_THINK, OPEN_THINK, requested_action, tagged
from crbc_envs.demonstrations import Demonstration, corrected_steps, expert_steps, prompted, random_successes
from crbc_envs.prompts import Prompt, PromptWindow
from crbc_envs.storage.files import refuse_link, replacing_folder
from crbc_envs.vector.contract import Member
from crbc_lab import tiny
from crbc_lab.commands.warmstart_config import WarmstartConfig
from crbc_lab.commands.warmstart_model import CARD_FILE, EVERY, Partial, save_adapter, start_from, trained
from crbc_lab.plan.environment import check_env
from crbc_lab.plan.lengths import longest_reply
from crbc_rl.batches import RolloutBatch, Turn, micro_batches, token_weights
from crbc_rl.config.revisions import weights_digest
from crbc_rl.errors import ConfigError
from crbc_rl.names import WARMSTART
from crbc_rl.policies.copying import MadeUpWords
from crbc_rl.policies.files import named_folder
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.rollout.evaluate import BATCH, Evaluation, evaluate, play_tasks
from crbc_rl.rollout.prompts import prompt_options
from crbc_rl.runs.versions import versions

SAMPLE = 2_000
"""Demonstrations that the tokenizer is trained on."""
STREAMS = 32
"""Episodes of an environment that are played side by side. The lessons of one are alike, so a batch should have few."""
BETAS = 0.9, 0.95
"""Of AdamW: in a thousand steps, the usual second average over as many lags behind."""
SUFFIXES = {".json", ".jinja", ".safetensors", ".txt"}
"""Of the files of a warm start."""


def warmstart(
    config: WarmstartConfig,
    tell: Callable[[int, float], None] = lambda step, nll: None,
    on_episode: Callable[[bool], None] = lambda success: None,
    on_test: Callable[[Evaluation], None] = lambda evaluation: None,
) -> TransformersPolicy:
    """Train the tokenizer and the policy, save both to `config.out` with config and versions, and return the policy.

    `tell(step, nll)` is called after every step with the negative log-likelihood per reply token, `on_episode(success)`
    after every episode of random play, which serves where the environment has no expert. `on_test(evaluation)` is
    called after the test in each of `config.environments()`. Raises `ConfigError` for an environment that cannot be
    played as the config says, and for a folder with other files than a warm start. Raises `DataError` where that folder
    is a link.
    """
    tasks = [_require_playable(one) for one in config.environments()]
    folder = refuse_link(Path(config.out))
    _require_replaceable(folder)
    torch.set_num_threads(config.threads)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(folder.parent, os.W_OK):
        raise ConfigError(f"out: {folder}: no permission to write there; choose another folder with --out")
    # Made now, so that a folder that may not be written ends the command before the training. An interruption leaves
    # a model that was there as it was.
    with replacing_folder(folder) as fresh:
        policy, config = _save(config, fresh, tell, on_episode)
        tested = []
        for world, number in zip(config.environments(), tasks, strict=True):
            tested.append(success_of(policy, world, number))
            on_test(tested[-1])
        success = {"success": tested[0].to_dict(), "success_also": [evaluation.to_dict() for evaluation in tested[1:]]}
        recipe = {**config.model_dump(exclude={"out"}), **success, "versions": versions()}
        if config.model is not None:
            recipe["base_digest"] = weights_digest(named_folder(config.model))
        (fresh / WARMSTART).write_text(json.dumps(recipe, indent=2) + "\n")
    Partial(config).remove()
    return policy


def _save(
    config: WarmstartConfig, fresh: Path, tell: Callable[[int, float], None], on_episode: Callable[[bool], None]
) -> tuple[TransformersPolicy, WarmstartConfig]:
    """Train, and write what is kept into the folder `fresh`. Returns the policy as it is kept: in bfloat16, which has
    half the bytes, and the config with the length of a reply."""
    if config.model is not None:
        policy, longest = _taught(config, tell, on_episode)
        config = config.model_copy(update={"max_new_tokens": config.max_new_tokens or math.ceil(1.25 * longest)})
        policy.cast(torch.float32)
        if policy.adapted:
            save_adapter(policy, fresh, config)
    else:
        policy, words = _imitate(config, tell, on_episode)
        if config.made_up:
            words.save(fresh)
    if not policy.adapted:
        policy.cast(torch.bfloat16)
        policy.save(fresh)
        policy.cast(torch.float32)
    return policy, config


def _require_replaceable(folder: Path) -> None:
    """Raise `ConfigError` where a folder holds anything but a warm start, which is deleted for the new one."""
    own = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    kept = {name for name in own if Path(name).suffix in SUFFIXES or name == CARD_FILE}
    others = {name for name in own if name not in kept or not (folder / name).is_file()}
    if folder.is_file() or others or (own and WARMSTART not in own):
        such = f", such as {min(others or own)}" if own else ""
        raise ConfigError(f"out: {folder} holds other files than a warm start{such}; choose another folder with --out")


def success_of(policy: TransformersPolicy, config: WarmstartConfig, tasks: int) -> Evaluation:
    """The policy on tasks of the test split, of which it saw none. `tasks` is how many that split has."""
    return evaluate(policy, config.as_run(), "test", min(config.eval.test_episodes, tasks), config.seed)


def _imitate(
    config: WarmstartConfig, tell: Callable[[int, float], None], on_episode: Callable[[bool], None]
) -> tuple[TransformersPolicy, MadeUpWords]:
    """A policy with its tokenizer, trained on demonstrations, and the words of these."""
    demonstrations = _demonstrations(config, on_episode)
    first = list(islice(demonstrations, SAMPLE))
    words = MadeUpWords.of([(prompt.text, reply) for prompt, reply in first])
    lessons = _lessons(demonstrations, words, config.made_up, np.random.default_rng([config.seed, 2]))
    texts = (text for prompt, reply in first for text in (prompt.text, reply))
    tokenizer = tiny.train_tokenizer(texts, config.vocabulary, config.apart)
    policy = tiny.build(tokenizer, torch.Generator().manual_seed(config.seed), config.copies)
    own = _lessons(_corrections(config, policy), words, config.made_up, np.random.default_rng([config.seed, 3]))
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=config.lr, betas=BETAS, weight_decay=0.01)
    for step in range(1, config.steps + 1):
        corrected = round(config.dagger * config.batch) if step > config.steps // 2 else 0
        pairs = chain(islice(own, corrected), islice(lessons, config.batch - corrected))
        tell(step, _step(config, policy, optimizer, step, pairs))
    return policy, words


def _taught(
    config: WarmstartConfig, tell: Callable[[int, float], None], on_episode: Callable[[bool], None]
) -> tuple[TransformersPolicy, int]:
    """A pretrained policy after the lessons, and the tokens of the longest reply of its first ones.

    What an earlier start has done by the same config is not done again: its lessons are passed over.
    """
    policy = start_from(config)
    demonstrations = _demonstrations(config, on_episode)
    first = list(islice(demonstrations, SAMPLE))
    longest = longest_reply(policy.tokenizer, (reply for _, reply in first))
    if config.max_new_tokens is not None and config.max_new_tokens < longest:
        raise ConfigError(
            f"max_new_tokens: {config.max_new_tokens}, and with the tokenizer of {config.model} a lesson's reply has "
            f"up to {longest} tokens: it would be cut; raise it, or leave it out"
        )
    optimizer = torch.optim.AdamW(trained(policy).values(), lr=config.lr, betas=BETAS, weight_decay=0.01)
    partial = Partial(config)
    done = partial.read(policy, optimizer)
    lessons = islice(chain(first, demonstrations), done * config.batch, None)
    for step in range(done + 1, config.steps + 1):
        tell(step, _step(config, policy, optimizer, step, islice(lessons, config.batch)))
        if step % EVERY == 0 and step < config.steps:
            partial.write(policy, optimizer, step)
    return policy, longest


def _step(
    config: WarmstartConfig,
    policy: TransformersPolicy,
    optimizer: torch.optim.Optimizer,
    step: int,
    pairs: Iterator[tuple[Prompt, str]],
) -> float:
    """One optimizer step on these lessons. Returns their negative log-likelihood per reply token."""
    optimizer.param_groups[0]["lr"] = config.lr * min(
        1.0, step / config.warmup, (config.steps + 1 - step) / config.decay
    )
    turns = [_as_turn(policy, prompt, reply) for prompt, reply in pairs]
    optimizer.zero_grad()
    nll = _backward(policy, turns, config.parts)
    torch.nn.utils.clip_grad_norm_(trained(policy).values(), 1.0)
    optimizer.step()
    return nll


def _lessons(
    demonstrations: Iterator[tuple[Prompt, str]], words: MadeUpWords, made_up: float, rng: np.random.Generator
) -> Iterator[tuple[Prompt, str]]:
    """The demonstrations, a share `made_up` of them with made-up words."""
    for prompt, reply in demonstrations:
        if rng.random() < made_up:
            text, reply = words.exchange(prompt.text, reply, rng)
            prompt = Prompt(text, system=prompt.system)
        yield prompt, reply


def _corrections(config: WarmstartConfig, policy: TransformersPolicy) -> Iterator[tuple[Prompt, str]]:
    """The expert's replies at states that the policy came to, endless: it plays `BATCH` training tasks at a time."""
    worlds = [(one.member("train", replies=one.replies), one) for one in config.environments()]
    rng = np.random.default_rng([config.seed, 4])
    for number, (env, world) in enumerate(cycle(worlds)):
        tasks = rng.integers(len(env.panel), size=BATCH).tolist()
        ((_, batch),) = play_tasks(policy, world.as_run(), "train", tasks, "lessons", number, temperature=1.0)
        lessons: list[tuple[Prompt, str]] = []
        for rollout, task in enumerate(tasks):
            replies = [batch.turns[row].text for row in np.flatnonzero(batch.rollouts.rollout == rollout).tolist()]
            lessons += _prompted(config, env, corrected_steps(env, rng, task, replies, **config.teacher), rng)
        yield from (lessons[i] for i in rng.permutation(len(lessons)))  # those of one episode are alike


def _require_playable(config: WarmstartConfig) -> int:
    """The number of test tasks. Raises `ConfigError` for an environment that cannot be played as the config says, or
    whose expert cannot."""
    checked = check_env(config)
    problems = [*checked.errors, *(f"{finding.needed_for}: {finding.fix}" for finding in checked.findings)]
    if problems:
        raise ConfigError("; ".join(problems))
    if checked.prompt is not None and checked.prompt.images:
        raise ConfigError("env.prompt: it shows frames, and a tiny policy reads text alone: choose a text observation")
    if not _has_teacher(config) and config.dagger:
        raise ConfigError(f"dagger: {config.env.id} has no expert to correct the policy; leave it out")
    return checked.panels["test"]


def _has_teacher(config: WarmstartConfig) -> bool:
    """Whether the environment has an expert. Raises `ConfigError` for options that it does not know."""
    with closing(config.member("train", replies="thought")) as env:
        env.reset(seed=0, options={"task": 0})
        try:
            expert = env.expert(np.random.default_rng(0), **config.teacher)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"teacher: {config.teacher}: {error}") from error
    return expert is not None


def _demonstrations(
    config: WarmstartConfig, on_episode: Callable[[bool], None] = lambda success: None
) -> Iterator[tuple[Prompt, str]]:
    """An endless iterator of prompts and replies over the training tasks, in turn from each environment."""
    configs = config.environments() * (STREAMS if _has_teacher(config) else 1)
    seeds = np.random.default_rng([config.seed, 1]).spawn(len(configs))
    each = []
    for one, rng in zip(configs, seeds, strict=True):
        env = one.member("train", replies="thought")  # an expert may reply with a bare action
        each.append(_prompted(one, env, _steps(one, env, rng, on_episode), rng))
    return (next(one) for one in cycle(each))


def _prompted(
    config: WarmstartConfig, env: Member, steps: Iterator[Demonstration], rng: np.random.Generator
) -> Iterator[tuple[Prompt, str]]:
    lapse = config.lapse
    for prompt, info, reply in prompted(PromptWindow.of(env, **prompt_options(config)), steps):
        if requested_action(reply, config.replies if getattr(env, "reads", True) else env.replies) is None:
            raise ConfigError(
                f"the expert of {config.env.id} replies {reply!r}, and env.replies={config.replies} reads no action in "
                "it: let it reply with crbc_envs.actions.tagged(action, thought)"
            )
        if lapse is not None and lapse.action in info["admissible_actions"] and rng.random() < lapse.share:
            yield prompt, tagged(lapse.action, lapse.thought)
        else:
            yield prompt, reply


def _steps(
    config: WarmstartConfig, env: Member, rng: np.random.Generator, on_episode: Callable[[bool], None]
) -> Iterator[Demonstration]:
    """The expert's steps; without an expert, those of random play's successful episodes, over and over."""
    steps = expert_steps(env, rng, config.slips, config.strays, **config.teacher)
    first = next(steps, None)
    if first is not None:
        yield first
        yield from steps
    episodes = random_successes(env, rng, config.random_episodes, on_episode)
    if not episodes:
        raise ConfigError(
            f"{config.env.id} has no expert, and none of {config.random_episodes:,} episodes of random play succeeded: "
            "raise random_episodes, make the tasks easier with env.kwargs, or give the environment an `expert`"
        )
    while True:
        for number in rng.permutation(len(episodes)):
            yield from episodes[number]


def _backward(policy: TransformersPolicy, turns: list[Turn], parts: int) -> float:
    """Accumulate the gradient of the batch's negative log-likelihood per reply token, and return that likelihood."""
    rows = RolloutBatch.of_turns(turns)
    weights = token_weights(rows.response_length, rows.group, "token")
    size = None if parts == 1 else math.ceil(len(turns) / parts)
    total = 0.0
    for part in micro_batches(rows, np.arange(len(turns)), weights, policy.pad, size):
        batch = part.to(policy.device)
        logprobs, _ = policy.logprobs(batch, temperature=1.0)
        nll = -(logprobs * batch.response_mask * batch.weights[:, None]).sum()
        nll.backward()
        total += nll.item()
    return total


def _as_turn(policy: TransformersPolicy, prompt: Prompt, reply: str) -> Turn:
    """A lesson. Where the chat template opens the thought, the reply goes on with it, or closes it at once."""
    if policy.opens_thought:
        reply = reply.removeprefix(OPEN_THINK) if reply.startswith(OPEN_THINK) else CLOSE_THINK + reply
    ids = [*policy.tokenizer.encode(reply, add_special_tokens=False), policy.eos]
    return Turn(policy.encode(prompt), ids, [0.0] * len(ids))
