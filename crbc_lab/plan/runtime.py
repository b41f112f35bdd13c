"""The seconds of an update by phase, computed from operations, bytes and links; on GPUs nothing is fitted to an update.

A phase takes as long as the slower of what it computes and what it moves, since both run side by side. Left out: waking
and putting to sleep of the engine, tensor parallelism's exchanges, starting of kernels in training,
tokenizing, saving, and whatever else a program adds. So an estimate is what a well-tuned program could reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from crbc_lab.plan.architecture import Architecture
from crbc_lab.plan.batches import Batches, arithmetic, contradictions
from crbc_lab.plan.hardware import Hardware, check_nodes
from crbc_lab.plan.memory import trained
from crbc_lab.plan.padding import DRAWN, computed
from crbc_lab.plan.workload import Workload, going_on, longest_chain
from crbc_rl.config import CRITIC, TrainConfig
from crbc_rl.errors import ConfigError
from crbc_rl.policies.engines import engine_of

ADAM = 40
"""Bytes that a step moves for a float32 weight: its gradient's norm and clipping 12; Adam reads 16 and writes 12."""

CREDIT = 3.1e-3 / 4_500
"""CPU seconds of credit for a row, as docs/learner.md measured it at the paper's size."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of an update. `key` is where a run records it, in seconds/; `bound` is what limits it."""

    name: str
    key: str
    seconds: float
    bound: str


@dataclass(frozen=True, slots=True)
class Job:
    """A config on its GPUs, with the lengths of its update."""

    config: TrainConfig
    model: Architecture
    hardware: Hardware
    work: Workload
    max_steps: int
    gpus: int
    nodes: int

    @property
    def batches(self) -> Batches:
        return arithmetic(self.config, self.gpus, self.max_steps)

    @property
    def rollouts(self) -> int:
        return self.config.rollout.num_groups * self.config.rollout.group_size

    @property
    def turns(self) -> tuple[tuple[float, float], ...]:
        """The update as (turns, members still playing)."""
        first = min(self.work.solved, self.max_steps)
        return (first, self.rollouts), (self.max_steps - first, self.rollouts * (1 - self.work.success))

    @property
    def rows(self) -> float:
        """Rows of the table of training: the turns that members played until they ended."""
        return sum(turns * members for turns, members in self.turns)

    @property
    def sampled(self) -> tuple[tuple[float, float], ...]:
        """As `turns`, with the members that are sampled."""
        if self.work.kept and self.work.success < 1:
            return ((self.max_steps, self.rollouts),)
        return self.turns

    def compute(self, operations: float) -> float:
        """Seconds of `operations` on all GPUs together."""
        return operations / (self.gpus * self.hardware.flops * self.hardware.flops_share)

    def move(self, size: float) -> float:
        """Seconds in which every GPU gathers, or reduces, tensors of `size` bytes that lie sharded on all.

        They go around a ring. On several nodes it passes from node to node through all adapters of a node.
        """
        rate = self.hardware.link
        if self.nodes > 1:
            rate = min(rate, self.gpus // self.nodes * self.hardware.network)
        return size * (self.gpus - 1) / self.gpus / rate


def estimate(job: Job) -> tuple[Phase, ...]:
    """The seconds of an update by phase. Raises `ConfigError` for groups and GPUs that cannot be dealt."""
    check_nodes(job.gpus, job.nodes)
    for message in contradictions(job.config, job.gpus, job.model):
        raise ConfigError(message)
    return (*_rollout(job), *_training(job))


def validations(run: TrainConfig) -> int:
    """How many validations a run has: one before training, one after each `eval.every` updates and one at the end."""
    return -(-run.updates // run.eval.every) + 1


def whole_run(job: Job) -> float:
    """Seconds of all updates, the validations between them, and both tests."""
    run = job.config
    evaluated = validations(run) * _evaluation(job, run.eval.episodes) + 2 * _evaluation(job, run.eval.test_episodes)
    return run.updates * total(estimate(job)) + evaluated


def _evaluation(job: Job, episodes: int) -> float:
    """Seconds in which `episodes` are played, each by itself."""
    rollout = job.config.rollout.model_copy(update={"num_groups": episodes, "group_size": 1})
    return total(tuple(_rollout(replace(job, config=job.config.model_copy(update={"rollout": rollout})))))


def total(phases: tuple[Phase, ...]) -> float:
    """The seconds of all phases."""
    return sum(phase.seconds for phase in phases)


# ---- sampling -----------------------------------------------------------------------------------------------------


def _rollout(job: Job) -> Iterator[Phase]:
    work = job.work
    side_by_side = work.workers or job.gpus
    waves = max(1.0, job.rollouts / side_by_side)
    yield Phase("reset", "reset", waves * work.reset, "CPU")
    sampled = sum(turns * members for turns, members in job.sampled)
    prompt = forward(job.model, work.prompt, 1, work.shared)
    yield Phase("prefill", "generate", job.compute(sampled * prompt), "operations")
    steps, seconds = decode(job)
    yield Phase("decode", "generate", seconds, f"{steps:,.0f} steps of {1e3 * seconds / steps:.1f} ms")
    stepped = sum(turns * max(1.0, members / side_by_side) for turns, members in job.turns if members)
    yield Phase("environments", "environments", stepped * work.step, "CPU")


def decode(job: Job) -> tuple[float, float]:
    """Decode steps of an engine, and their seconds."""
    reply, limit, engines = job.work.reply, job.config.rollout.max_new_tokens, job.batches.engines
    if not job.work.lockstep:
        steps = played = 0.0
        for turns, members in job.sampled:
            played += turns
            if turns > 0 and members > 0:
                steps = max(steps, longest_chain(members, played, reply, limit))
        live = sum(turns * members for turns, members in job.sampled) * reply / engines / steps
        return steps, steps * decode_step(job, live)
    on = going_on(reply, limit)
    steps = seconds = 0.0
    for turns, members in job.sampled:
        for k in range(limit):
            tail = on**k
            waiting = 1 - (1 - tail) ** members  # whether any reply, of any engine, goes on
            steps += turns * waiting
            seconds += turns * waiting * decode_step(job, members * tail / engines)
    return steps, seconds


def decode_step(job: Job, live: float) -> float:
    """Seconds of a step of one engine that samples a token for each of `live` members.

    It reads the weights once and the keys and values of every member. Each of the engine's GPUs has its part of both.
    """
    model, parallel = job.model, job.config.generator.tensor_parallel
    context = job.work.prompt + job.work.reply / 2
    head = model.vocabulary * model.hidden
    size = 4 if job.config.policy.precision == "float32" else 2
    weights = size * (model.parameters - model.outside + head) / parallel
    cache = live * context * model.kv_bytes * size / 2 / min(parallel, model.kv_heads)
    read = (weights + cache) / (job.hardware.memory * job.hardware.memory_share)
    attention = 4 * model.layers * model.hidden * context
    operations = live * (2 * (model.parameters - model.outside + head) + attention) / parallel
    computed = operations / (job.hardware.flops * job.hardware.flops_share)
    if engine_of(job.config).is_transformers:
        return max(model.layers * job.hardware.eager, read, computed)
    return model.layers * job.hardware.layer + max(read, computed)


# ---- training -----------------------------------------------------------------------------------------------------


def forward(model: Architecture, length: float, scored: float, known: float = 0.0) -> float:
    """Operations of a forward pass over one row of `length` tokens, of which the first `known` were read before, with
    logits at `scored` of them.

    Two for each weight of the blocks and each token, and causal attention. A vision tower counts as if it read tokens.
    """
    read, blocks = length - known, model.parameters - model.outside
    attention = 2 * model.layers * model.hidden * (length**2 - known**2)
    return 2 * read * blocks + attention + 2 * scored * model.hidden * model.vocabulary


def _training(job: Job) -> Iterator[Phase]:
    config, model = job.config, job.model
    known = job.work.shared if job.hardware.shares else 0.0
    rows = job.rows * forward(model, job.work.prompt + job.work.reply, job.work.reply, known)
    size = 2 if config.policy.precision == "bfloat16" else 4
    steps = config.optim.epochs * ceil(job.rows / config.optim.minibatch)
    gathered = size * model.parameters
    alike, optim = (config, job.work, model.vision, job.rows, job.gpus), config.optim
    padded, passes = computed(*alike, optim.minibatch, optim.microbatch)
    row, passes = rows * padded, passes * optim.epochs
    # All rows of the update together, so that their lengths are alike.
    padded, scoring = computed(*alike, DRAWN, optim.score_microbatch or optim.microbatch)
    scored = rows * padded
    yield Phase("credit", "step_credit", job.rows * CREDIT, "CPU")
    if not engine_of(config).is_transformers:
        yield _passes(job, "old log-probabilities", "old", scored, scoring * gathered)
    if config.loss.kl:
        yield _passes(job, "reference", "reference", config.optim.epochs * row, passes * gathered)
    # Backward costs two forwards, one for the inputs and one for the weights; checkpointing repeats the forward.
    times = config.optim.epochs * (1 + bool(config.policy.gradient_checkpointing))
    full, policy = times + 2 * config.optim.epochs, times + config.optim.epochs * (1 if config.policy.lora_rank else 2)
    if config.credit.method == CRITIC:
        yield _passes(job, "values", "values", scored, scoring * gathered)
        yield _passes(job, "critic", "critic", full * row, passes * (2 * gathered + 4 * model.parameters))
    reduced = 4 * trained(config, model)
    yield _passes(job, "forward and backward", "train", policy * row, passes * (2 * gathered + reduced))
    memory = job.hardware.memory * job.hardware.memory_share
    yield Phase("optimizer", "train", steps * ADAM * trained(config, model) / job.gpus / memory, "memory")
    copied = (4 + size) * model.parameters / memory  # read as gathered, written as the engine has it
    yield Phase("weights to the engine", "weights", job.move(4 * model.parameters) + copied, "links and memory")


def _passes(job: Job, name: str, key: str, operations: float, moved: float) -> Phase:
    computed, exchanged = job.compute(operations), job.move(moved)
    return Phase(name, key, max(computed, exchanged), "operations" if computed >= exchanged else "links")
