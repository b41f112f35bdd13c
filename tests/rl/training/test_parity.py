"""The actor's loss, figures and gradient against two others: a plain one in loops, which reads every row alone
and without padding, and TRL's GRPO trainer.

Over a real model, with prompts of unequal lengths, several groups, repeated turns, and old log-probabilities a little
off, so that all three kinds of clipping act on some of the tokens.

Where TRL agrees and where not. Its "dapo" is our aggregation "token", its "grpo" our "step"; "group" it lacks. Its
`delta` bounds the ratio above before anything else is done, our `dual_clip` bounds ratio * A where A < 0: one and
the same as long as the bound lies above 1 + clip, for there the clipped ratio decides where A > 0. A bound below
1 + clip would be overruled by TRL's min(). Its KL is ours without the guards against overflow once
`use_bias_correction_kl` is off; by default it multiplies each token's KL by its ratio, which eq. 15 does not. Its
"sequence" ratio is a geometric mean where eq. 2 has the product, and its `clip_ratio` leaves out what the dual clip
cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learner_fixtures import fresh_policy, small
from tables import table
from torch import Tensor

from crbc_envs.prompts import Prompt
from crbc_rl.batches import RolloutBatch, Turn, collate, micro_batches
from crbc_rl.config import LossConfig, TrainConfig
from crbc_rl.distributed import Distributed
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.training.actor import Actor

PROMPTS = [
    "Sokoban\n# # #\n# @ #\n# # #\nYour move?",
    "up",
    "Sokoban\n# _\nYour move?",
    "up",
    "left right stuck",
    "Sokoban\n# # #\n# _ #\n# @ #\n# # #\nYour move?",
]
GROUPS = [0, 0, 0, 1, 1, 2]
LOSS: dict[str, Any] = {"clip": 0.2, "dual_clip": 1.5, "kl": 0.05, "entropy": 0.02}
TEMPERATURE = 0.7


@dataclass(frozen=True)
class Row:
    """A turn as an optimizer step reads it."""

    turn: Turn
    group: int
    advantage: float
    old: list[float]


@dataclass(frozen=True)
class Case:
    """A policy, its reference, and one mini-batch of rows."""

    policy: TransformersPolicy
    reference: TransformersPolicy
    rows: list[Row]
    folder: Path
    """Where the reference is saved."""

    @property
    def batch(self) -> RolloutBatch:
        """The rows as a table."""
        return table(
            [row.turn for row in self.rows],
            group=[row.group for row in self.rows],
            advantage=[row.advantage for row in self.rows],
            old=[row.old for row in self.rows],
        )


@dataclass(frozen=True)
class Result:
    """A loss, its figures and the gradient of every weight, in one vector."""

    loss: float
    figures: dict[str, float]
    gradient: Tensor


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    policy, reference = fresh_policy(), fresh_policy()
    noise = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for mine, theirs in zip(policy.model.parameters(), reference.model.parameters(), strict=True):
            mine.mul_(3.0 if mine.dim() > 1 else 1.0)  # sharp, so that a wrong position, mask or temperature shows
            theirs.copy_(mine + 0.01 * torch.randn(mine.shape, generator=noise))
    turns = [
        policy.generate([Prompt(text)], [i], TEMPERATURE, length)[0]
        for i, (text, length) in enumerate(zip(PROMPTS * 2, [6, 3, 1, 5, 6, 2] * 2, strict=True))
    ]
    turns += [turns[0], turns[2], turns[2], turns[5]]  # members of a group that give one reply at one anchor
    rows = [
        Row(
            turn,
            (GROUPS * 3)[i],
            advantage=float(2.0 * torch.randn((), generator=noise)),
            old=(torch.tensor(turn.logprobs) + 0.4 * torch.randn(len(turn.response), generator=noise)).tolist(),
        )
        for i, turn in enumerate(turns)
    ]
    rows.sort(key=lambda row: row.group)  # groups stand together
    assert len({len(turn.prompt) for turn in turns}) >= 4
    assert len({len(turn.response) for turn in turns}) >= 2
    folder = tmp_path_factory.mktemp("parity") / "model"
    reference.save(folder)
    return Case(policy, reference, rows, folder)


def config(**changes: Any) -> LossConfig:
    return LossConfig(**{**LOSS, **changes})


def gradient(policy: TransformersPolicy, loss: Tensor) -> Tensor:
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(policy.model.parameters()))])


def ours(case: Case, loss: LossConfig, size: int | None = None, temperature: float = TEMPERATURE) -> Result:
    """One optimizer step of the actor over the case, in passes of at most `size` distinct turns."""
    actor = actor_of(case, loss, size, temperature)
    found: list[Tensor] = []
    actor.optimizer.register_step_pre_hook(
        lambda *_: found.append(torch.cat([p.grad.flatten() for _, p in actor.named]).cpu())
    )
    figures = actor.optimise(case.batch, np.random.default_rng(0))
    (total,) = found
    assert figures.pop("skipped_steps") == 0
    assert figures.pop("grad_norm") == pytest.approx(total.double().norm().item(), rel=1e-4)
    return Result(figures.pop("loss"), figures, total)


def actor_of(case: Case, loss: LossConfig, size: int | None, temperature: float) -> Actor:
    optim = {"minibatch": 64, "microbatch": size, "lr": 1e-9, "grad_clip": 1e9}
    changes = {"optim": optim, "loss": loss.model_dump(), "rollout": {"temperature": temperature}}
    actor = Actor(small(case.folder, **changes), Distributed())
    actor.policy.model.load_state_dict(case.policy.model.state_dict())
    return actor


def plain(case: Case, loss: LossConfig) -> Result:
    """Eqs. 2 and 15 in loops: every row alone, as often as it is there, with nothing padded."""
    steps_of = [sum(row.group == g for row in case.rows) for g in range(3)]
    tokens = sum(len(row.turn.response) for row in case.rows)
    figures = dict.fromkeys(("entropy", "ratio_max", "clip_share", "drift", "kl"), 0.0)
    total = torch.zeros(())
    for row in case.rows:
        length = len(row.turn.response)
        weight = {
            "token": 1 / tokens,
            "step": 1 / len(case.rows) / length,
            "group": 1 / 3 / steps_of[row.group] / length,
        }[loss.aggregation]
        scores = plain_scores(case.policy, row)
        with torch.no_grad():
            anchored = plain_scores(case.reference, row)
        chosen = [scores[k, token] for k, token in enumerate(row.turn.response)]
        log_ratios = [chosen[k] - row.old[k] for k in range(length)]
        for k, token in enumerate(row.turn.response):
            ratio = torch.exp(sum(log_ratios) if loss.ratio == "response" else log_ratios[k])
            gain = ratio * row.advantage
            if row.advantage >= 0 and ratio > 1 + loss.clip:
                gain = torch.tensor((1 + loss.clip) * row.advantage)
            elif row.advantage < 0 and ratio < 1 - loss.clip:
                gain = torch.tensor((1 - loss.clip) * row.advantage)
            elif row.advantage < 0 and ratio > loss.dual_clip:
                gain = torch.tensor(loss.dual_clip * row.advantage)
            d = anchored[k, token] - chosen[k]
            kl = torch.exp(d) - d - 1
            entropy = -(scores[k].exp() * scores[k]).sum()
            total = total + weight * (-gain - loss.entropy * entropy + loss.kl * kl)
            figures["entropy"] += weight * entropy.item()
            figures["kl"] += weight * kl.item()
            figures["clip_share"] += weight * (not gain.requires_grad)
            figures["drift"] += weight * abs(log_ratios[k].item())
            figures["ratio_max"] = max(figures["ratio_max"], ratio.item())
    return Result(total.item(), figures, gradient(case.policy, total))


def plain_scores(policy: TransformersPolicy, row: Row) -> Tensor:
    """log pi at `TEMPERATURE` of every word of the vocabulary, at each place of the response."""
    ids = torch.tensor([[*row.turn.prompt, *row.turn.response]])
    logits = policy.model(input_ids=ids).logits[0, len(row.turn.prompt) - 1 : -1]
    return torch.log_softmax(logits / TEMPERATURE, dim=-1)


def close(one: Result, other: Result, names: Sequence[str] = ()) -> bool:
    """Whether losses, the figures in `names` and gradients agree to 1e-5, of their size where that exceeds 1."""
    mine, theirs = (Tensor([r.loss, *(r.figures[name] for name in names)]) for r in (one, other))
    scale = max(1.0, other.gradient.abs().max().item())
    return torch.allclose(mine, theirs, 1e-5, 1e-5) and torch.allclose(one.gradient, other.gradient, 0, 1e-5 * scale)


@pytest.mark.parametrize("ratio", ["token", "response"])
@pytest.mark.parametrize("aggregation", ["token", "step", "group"])
def test_loss_figures_and_gradient_are_the_plain_ones(case: Case, aggregation: str, ratio: str) -> None:
    loss = config(aggregation=aggregation, ratio=ratio)
    expected = plain(case, loss)
    for size in (None, 3):
        assert close(ours(case, loss, size), expected, tuple(expected.figures)), f"passes of {size}"
    assert expected.gradient.abs().max() > 0.1, "1e-5 would say nothing"


def test_padded_and_unpadded_passes_agree(case: Case) -> None:
    loss = config()
    batches = {size: list(micro_batches(case.batch, np.arange(16), None, case.policy.pad, size)) for size in (None, 1)}
    assert any(batch.ids.numel() > batch.prompt.sum() + batch.real.sum() for batch in batches[None])
    assert all(len(batch.ids) == 1 for batch in batches[1])
    padded, unpadded = ours(case, loss), ours(case, loss, size=1)
    assert close(padded, unpadded, tuple(padded.figures))


def test_every_kind_of_clipping_acts_on_some_tokens(case: Case) -> None:
    batch = collate(case.batch, case.policy.pad)
    with torch.no_grad():
        logprobs, _ = case.policy.logprobs(batch, TEMPERATURE)
    ratio, good, real = (logprobs - batch.old_logprobs).exp(), batch.advantages > 0, batch.response_mask > 0
    kinds = {
        "above": good & (ratio > 1.2),
        "below": ~good & (ratio < 0.8),
        "dual": ~good & (ratio > 1.5),
        "free": (ratio > 0.8) & (ratio < 1.2),
    }
    counts = {name: int((kind & real).sum()) for name, kind in kinds.items()}
    assert all(counts.values()), counts


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.0])
def test_a_policy_that_is_its_reference_has_no_kl_and_is_not_pulled(case: Case, temperature: float) -> None:
    """At any temperature: both are read at that of rollouts."""
    same = replace(case, policy=case.reference, rows=[replace(row, advantage=0.0) for row in case.rows])
    found = ours(same, config(kl=1.0, entropy=0.0), temperature=temperature)
    assert found.figures["kl"] < 1e-9 and abs(found.loss) < 1e-9
    assert found.gradient.abs().max() < 1e-5
    other = ours(replace(same, policy=case.policy), config(kl=1.0, entropy=0.0), temperature=temperature)
    assert other.figures["kl"] > 1e-4 and other.loss == pytest.approx(other.figures["kl"])
    assert other.gradient.abs().max() > 1e-3


# ---- TRL ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def theirs(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Callable[[TrainConfig], Result]:
    """TRL's loss on the case, its figures under our names, and its gradient."""
    pytest.importorskip("trl", reason="the extra [dev] brings TRL")
    from benchmarks.grpo import grpo_trainer

    folder = tmp_path_factory.mktemp("trl")

    def run(settings: TrainConfig) -> Result:
        trainer = grpo_trainer(case.folder, settings, folder / "output")
        trainer.model.load_state_dict(case.policy.model.state_dict())
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = 1  # its loop sets it
        loss = trainer.compute_loss(trainer.model, trainer.inputs(case.batch, np.arange(16)))
        metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
        figures = {"entropy": metrics["entropy"], "kl": metrics["kl"], "clip_share": metrics["clip_ratio/region_mean"]}
        parameters = dict(trainer.model.named_parameters())
        names = [name for name, _ in case.policy.model.named_parameters()]
        grads = torch.autograd.grad(loss, [parameters[name] for name in names])
        return Result(loss.item(), figures, torch.cat([g.flatten() for g in grads]))

    return run


def settings(temperature: float = TEMPERATURE, **loss: Any) -> TrainConfig:
    values = {"rollout": {"temperature": temperature}, "optim": {"minibatch": 16}}
    return small(Path("unused"), **values, loss={**LOSS, "entropy": 0.0, **loss})


def test_loss_figures_and_gradient_are_trl_s(case: Case, theirs: Callable[[TrainConfig], Result]) -> None:
    """Over all tokens; TRL counts no token that the dual clip cuts, so here it lies beyond every ratio."""
    wide = config(entropy=0.0, dual_clip=50.0)
    expected = theirs(settings(dual_clip=50.0))
    for size in (None, 3):
        found = ours(case, wide, size)
        assert close(found, expected, ("kl", "entropy", "clip_share")), f"passes of {size}"
    assert expected.figures["clip_share"] > 0.1
    assert expected.figures["kl"] > 1e-3


def test_loss_and_gradient_are_trl_s_with_the_dual_clip(case: Case, theirs: Callable[[TrainConfig], Result]) -> None:
    assert close(ours(case, config(entropy=0.0)), theirs(settings()), ("kl", "entropy"))


def test_a_mean_over_steps_is_trl_s_grpo(case: Case, theirs: Callable[[TrainConfig], Result]) -> None:
    """Its figures stay means over tokens."""
    assert close(ours(case, config(entropy=0.0, aggregation="step")), theirs(settings(aggregation="step")))


def test_an_entropy_bonus_is_trl_s(case: Case, theirs: Callable[[TrainConfig], Result]) -> None:
    assert close(ours(case, config()), theirs(settings(entropy=LOSS["entropy"])), ("kl", "entropy"))


@pytest.mark.parametrize(
    "other",
    [
        {"temperature": 0.71},
        {"kl": 0.051},
        {"clip": 0.21},
        {"dual_clip": 1.6},
        {"aggregation": "step"},
        {"entropy": 1e-3},
    ],
    ids=lambda other: next(iter(other)),
)
def test_any_other_setting_of_trl_would_show(
    case: Case, theirs: Callable[[TrainConfig], Result], other: dict[str, Any]
) -> None:
    assert not close(ours(case, config(entropy=0.0)), theirs(settings(**other)))


def test_wrong_rows_would_show(case: Case) -> None:
    loss = config()
    expected = ours(case, loss)
    first = case.rows[0]
    for wrong in (
        replace(first, advantage=first.advantage + 0.01),
        replace(first, old=[value + 0.01 for value in first.old]),
        replace(first, turn=replace(first.turn, prompt=first.turn.prompt[1:])),
    ):
        assert not close(ours(replace(case, rows=[wrong, *case.rows[1:]]), loss), expected)
