"""Optimizer steps over rows, with a model of one weight whose gradient can be counted by hand: the loss of a token is
the weight times the token's advantage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from learner_fixtures import fresh_policy, small
from tables import by_turn, table
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from crbc_envs.prompts import Prompt, View
from crbc_envs.tasks import rng
from crbc_rl.batches import RolloutBatch, TokenBatch, Turn
from crbc_rl.distributed import Distributed
from crbc_rl.errors import ConfigError
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.runs.transcripts import recorded
from crbc_rl.training.actor import Actor
from crbc_rl.training.loss import seen
from crbc_rl.training.trainable import Metrics, Trainable, mean


class OneWeight(Trainable):
    """`seen` has the advantages of every pass, `gradients` what each optimizer step was handed."""

    def __init__(self, loss: dict[str, Any] | None = None, **optim: Any) -> None:
        model = nn.Linear(1, 1, bias=False, device=Distributed().device)
        nn.init.ones_(model.weight)
        self.seen: list[list[float]] = []
        self.steps: list[list[list[float]]] = []
        self.gradients: list[float] = []
        settings = {"minibatch": 100, "grad_clip": 1e9, "lr": 0.1, "weight_decay": 0.0, **optim}
        policy: Any = SimpleNamespace(model=model, pad=0, reach=None, packs=False)
        config = small(Path("unused"), optim=settings, loss=loss or {})
        super().__init__(policy, config, Distributed(), settings["lr"])
        self.optimizer.register_step_pre_hook(self._keep)

    def _keep(self, *_: object) -> None:
        self.gradients.append(self.model.weight.grad.item())
        self.steps.append(self.seen)
        self.seen = []

    def loss(self, batch: TokenBatch) -> tuple[Tensor, Metrics]:
        self.seen.append(batch.advantages[:, 0].tolist())
        total = (batch.advantages * batch.weights[:, None] * batch.response_mask).sum()
        return total * self.model.weight.sum(), {
            "count": float(len(batch.turn)),
            "ratio_max": batch.advantages.max().item(),
        }


def test_a_rate_is_a_share_of_the_config_s() -> None:
    made = OneWeight(lr=0.1, warmup=4)
    for update, share in ((2, 0.5), (2, 0.5), (4, 1.0), (5, 1.0)):
        made.set_rate(update)
        assert [parameters["lr"] for parameters in made.optimizer.param_groups] == [0.1 * share] == [made.rate]


Rows = list[tuple[Turn, float]]


def _rows(lengths: Sequence[int], first: int = 0) -> Rows:
    """Row i has the advantage first + i + 1 and a turn of its own."""
    return [(Turn([first + i + 1], [7] * n, [0.0] * n), float(first + i + 1)) for i, n in enumerate(lengths)]


def _table(*groups: Rows) -> RolloutBatch:
    rows = [row for group in groups for row in group]
    numbers = [g for g, group in enumerate(groups) for _ in group]
    return table([turn for turn, _ in rows], group=numbers, advantage=[advantage for _, advantage in rows])


def _flat(step: list[list[float]]) -> list[float]:
    return [value for one in step for value in one]


# ---- mini-batches -------------------------------------------------------------------------------------


def test_an_epoch_reads_every_row_once_a_step_for_each_mini_batch() -> None:
    one = OneWeight(minibatch=5)
    figures = one.train_epochs(_table(*(_rows([1, 2, 3], 3 * g) for g in range(4))), rng("x"))
    assert [len(_flat(step)) for step in one.steps] == [4, 4, 4]
    assert sorted(value for step in one.steps for value in _flat(step)) == [float(n) for n in range(1, 13)]
    assert [step["count"] for step in figures] == [4, 4, 4]


def test_epochs_are_read_each_in_an_order_of_its_own() -> None:
    one = OneWeight(minibatch=3, epochs=4, order="group")
    one.train_epochs(_table(*(_rows([1, 1, 1], 3 * g) for g in range(8))), rng("x"))
    assert len(one.steps) == 4 * 8
    epochs = [[sorted(_flat(step)) for step in one.steps[8 * e : 8 * e + 8]] for e in range(4)]
    groups = [[3.0 * g + 1, 3.0 * g + 2, 3.0 * g + 3] for g in range(8)]
    assert all(sorted(epoch) == groups for epoch in epochs)
    assert len({str(epoch) for epoch in [groups, *epochs]}) == 5


def test_the_order_is_that_of_the_draws() -> None:
    def order(*path: int) -> list[list[list[float]]]:
        one = OneWeight(minibatch=3)
        one.train_epochs(_table(*(_rows([1, 1, 1], 3 * g) for g in range(8))), rng("shuffle", *path))
        return one.steps

    assert order(0, 1) == order(0, 1) != order(0, 2)


def test_a_step_without_an_advantage_is_one_of_momentum_and_decay() -> None:
    one = OneWeight(weight_decay=0.5)
    one.by_advantage = True
    one.train_epochs(table([Turn([1], [7], [0.0])] * 2, advantage=[0.0, 0.0]), rng("x"))
    assert one.model.weight.item() == pytest.approx(1 - 0.1 * 0.5)


@pytest.mark.parametrize("microbatch", [None, 1, 2, 3])
@pytest.mark.parametrize(
    ("aggregation", "gradient"),
    [
        ("token", (1 * 1 + 2 * 2 + 3 * 3 + 4 * 4) / 10),  # advantage times length, over all tokens
        ("step", (1 + 2 + 3 + 4) / 4),
        ("group", ((1 + 2 + 3) / 3 + 4) / 2),
    ],
)
def test_a_step_s_gradient_is_the_mean_over_its_mini_batch_however_it_is_read(
    aggregation: str, gradient: float, microbatch: int | None
) -> None:
    one = OneWeight({"aggregation": aggregation}, microbatch=microbatch)
    (figures,) = one.train_epochs(_table(_rows([1, 2, 3]), _rows([4], 3)), rng("x"))
    assert one.gradients == pytest.approx([gradient])
    assert figures["grad_norm"] == pytest.approx(gradient)
    assert figures["count"] == 4 and figures["ratio_max"] == 4  # a sum and a maximum over passes
    assert len(one.steps[0]) == {None: 1, 1: 4, 2: 2, 3: 2}[microbatch]


def test_mini_batches_have_their_share_of_the_update_s_weight_and_start_without_a_gradient() -> None:
    one = OneWeight(minibatch=2, order="group")
    one.train_epochs(_table(_rows([1, 2]), _rows([4], 10)), np.random.default_rng(0))
    assert sorted(one.gradients) == pytest.approx([2 * (1 + 2 * 2) / 7, 2 * 4 * 11 / 7])
    one.gradients.clear()
    one.train_epochs(_table(_rows([1])), rng("x"))
    assert one.gradients == pytest.approx([1.0])


def test_repeated_turns_are_read_once_and_count_each() -> None:
    rows = [(Turn([1], [2, 3], [0.0, 0.0]), value) for value in (1.0, 5.0, -3.0)]
    one = OneWeight()
    one.train_epochs(_table(rows, _rows([1], 8)), rng("x"))
    assert sorted(_flat(one.steps[0])) == [-3.0, 1.0, 5.0, 9.0]
    assert one.gradients == pytest.approx([(2 * (1 + 5 - 3) + 9) / 7])


def test_figures_of_steps_are_averaged() -> None:
    assert mean([{"a": 1.0, "b": 0.0}, {"a": 4.0, "b": 1.0}]) == {"a": 2.5, "b": 0.5}


# ---- the step -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("clip", "handed"), [(0.25, 0.25), (2.0, 2.0), (4.0, 3.0), (100.0, 3.0)])
def test_no_gradient_longer_than_the_clip_is_handed_on_and_its_own_length_told(clip: float, handed: float) -> None:
    one = OneWeight(grad_clip=clip)
    (figures,) = one.train_epochs(_table(_rows([1], 2)), rng("x"))
    assert one.gradients == pytest.approx([handed], rel=1e-5)
    assert figures["grad_norm"] == pytest.approx(3.0)
    assert figures["skipped_steps"] == 0.0


def test_the_clip_holds_for_all_weights_together(model: Path) -> None:
    """And keeps the direction."""
    handed = []
    for clip in (0.01, 1e9):
        actor = Actor(small(model, loss={"kl": 0.0}, optim={"grad_clip": clip, "lr": 1e-9}), Distributed())
        turns = actor.policy.generate([Prompt("up")] * 4, range(4), 1.0, 4)
        keep: list[Tensor] = []
        actor.optimizer.register_step_pre_hook(
            lambda *_, t=actor, k=keep: k.append(torch.cat([p.grad.flatten() for _, p in t.named]).cpu())
        )
        figures = actor.optimise(table(turns, advantage=[5.0] * 4), rng("x"))
        handed.append((keep[0].clone(), figures["grad_norm"]))
    (clipped, told), (whole, told_whole) = handed
    assert whole.norm() > 0.1 and clipped.norm() == pytest.approx(0.01, rel=1e-3)
    assert told == pytest.approx(told_whole, rel=1e-4) and told == pytest.approx(whole.double().norm().item(), rel=1e-4)
    assert torch.nn.functional.cosine_similarity(clipped, whole, dim=0) > 0.9999


@pytest.mark.parametrize("advantage", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_moves_nothing(advantage: float) -> None:
    one = OneWeight()
    bad = (Turn([9], [1, 1], [0.0] * 2), advantage)  # as long as the others: infinity times 0 is nan
    (figures,) = one.train_epochs(_table([*_rows([2, 2]), bad]), rng("x"))
    assert figures["skipped_steps"] == 1.0 and str(abs(figures["grad_norm"])) == str(abs(advantage))
    assert one.model.weight.item() == 1.0 and not one.optimizer.state
    (figures,) = one.train_epochs(_table(_rows([1, 2])), rng("x"))
    assert figures["skipped_steps"] == 0.0
    assert one.model.weight.item() == pytest.approx(0.9), "Adam's first step is the learning rate"
    assert one.gradients == pytest.approx([5 / 3])


def test_learning_rate_and_weight_decay_are_those_of_the_config() -> None:
    for lr, decay in ((0.1, 0.0), (0.01, 0.0), (0.1, 0.5)):
        one = OneWeight(lr=lr, weight_decay=decay)
        one.train_epochs(_table(_rows([1])), rng("x"))
        assert one.model.weight.item() == pytest.approx(1.0 * (1 - lr * decay) - lr)


def test_a_step_goes_against_the_loss_and_no_gradient_is_left_behind() -> None:
    one = OneWeight(epochs=3)
    one.train_epochs(_table(_rows([1])), rng("x"))
    assert one.model.weight.item() == pytest.approx(0.7, abs=1e-4)
    assert one.model.weight.grad is None or not one.model.weight.grad.any()
    assert not one.model.training


# ---- reading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 1, 3])
def test_what_is_read_is_given_back_row_by_row(size: int | None) -> None:
    """In the order of the rows, whatever order they were read in, and without the padding."""
    one = OneWeight(microbatch=size)
    turns = [turn for turn, _ in _rows([3, 1, 2, 5, 1, 4, 2])]
    turns += [turns[0], turns[3]]
    sizes: list[int] = []

    def what(batch: TokenBatch) -> Tensor:
        assert not torch.is_grad_enabled()
        sizes.append(len(batch.ids))
        return batch.ids[:, :1][batch.turn] * 10.0 + torch.arange(batch.response_length, device=batch.ids.device)

    batch = table(turns)
    read = by_turn(batch, one.forward_no_grad(batch, what))
    assert read == [[10.0 * turn.prompt[0] + k for k in range(len(turn.response))] for turn in turns]
    assert max(sizes) <= (size or 7)
    assert sum(sizes) == 7, "equal turns are read once"


# ---- the policy's log-probabilities -------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.0])
def test_scores_are_those_of_sampling_at_the_temperature_of_rollouts(model: Path, temperature: float) -> None:
    actor = Actor(small(model, rollout={"temperature": temperature}), Distributed())
    with torch.no_grad():
        for p in actor.policy.model.parameters():
            p.mul_(2.0 if p.dim() > 1 else 1.0)  # sharper
    turns = actor.policy.generate([Prompt("up" * n) for n in (1, 2, 3)], range(3), temperature, 5)
    batch = table(turns)
    for mine, turn in zip(by_turn(batch, actor.score(batch)), turns, strict=True):
        assert mine == pytest.approx(turn.logprobs, abs=1e-4)
    other = actor.policy.generate([Prompt("up")], [0], 0.7, 5)
    assert actor.score(table(other)).tolist() != pytest.approx(other[0].logprobs, abs=1e-2)


def test_the_first_step_starts_where_sampling_stood_and_later_ones_drift(model: Path) -> None:
    config = small(model, rollout={"temperature": 0.4}, optim={"lr": 1e-2, "epochs": 3, "minibatch": 2})
    actor = Actor(config, Distributed())
    turns = actor.policy.generate([Prompt("up" * n) for n in (1, 2)], range(2), 0.4, 4)
    steps = actor.train_epochs(table(turns, advantage=[1.0] * len(turns)), rng("x"))
    assert steps[0]["drift"] < 1e-4 and abs(steps[0]["ratio_max"] - 1.0) < 1e-4 and steps[0]["clip_share"] == 0.0
    assert steps[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert steps[1]["drift"] > 0.01 < steps[2]["drift"]
    assert steps[2]["kl"] > 1e-3


def test_optimise_tells_the_drift_of_its_first_step_and_the_mean_of_all_else(model: Path) -> None:
    config = small(model, optim={"lr": 1e-2, "epochs": 2, "minibatch": 2})
    tolds = []
    for name in ("optimise", "train_epochs"):
        actor = Actor(config, Distributed())
        turns = actor.policy.generate([Prompt("up" * n) for n in (1, 2)], range(2), 1.0, 4)
        tolds.append(getattr(actor, name)(table(turns, advantage=[1.0] * len(turns)), rng("x")))
    told, (first, second) = tolds
    assert told["drift"] == first["drift"] < second["drift"]
    assert told["entropy"] == pytest.approx((first["entropy"] + second["entropy"]) / 2)


def watched(model: Path, optim: dict[str, Any] | None = None, **loss: Any) -> tuple[RolloutBatch, Any, Metrics]:
    config = small(model, optim={"lr": 0.05, "minibatch": 2, **(optim or {})}, loss={"kl": 0.0, **loss})
    actor = Actor(config, Distributed())
    turns = actor.policy.generate([Prompt("up" * n) for n in (1, 2, 3, 4)], range(4), 1.0, 4)
    batch = table(turns, advantage=[1.0, -0.5, 0.25, -2.0])
    return batch, actor, actor.optimise(batch, rng("x"), watch=True)


def test_what_a_step_saw_of_each_token_is_kept(model: Path) -> None:
    """The figures of the update come of it again, where every token weighs the same."""
    batch, actor, told = watched(model)
    trained, ratio, advantage, clipped = actor.seen
    assert advantage.tolist() == pytest.approx(np.repeat(batch.advantage, batch.response_length).tolist())
    assert ratio == pytest.approx(np.exp(trained - batch.old), rel=1e-5)
    assert told["ratio_max"] == pytest.approx(ratio.max(), rel=1e-5) and clipped.any()
    assert told["clip_share"] == pytest.approx(clipped.mean(), rel=1e-5)
    low, high = clipped * (advantage < 0), clipped * (advantage > 0)
    assert (told["clip_share_low"], told["clip_share_high"]) == pytest.approx((low.mean(), high.mean()), rel=1e-5)
    assert actor.watched is None
    actor.optimise(batch, rng("x"))
    assert actor.seen is None, "nobody asked"


def test_of_several_epochs_the_last_one_is_seen(model: Path) -> None:
    (batch, first, _), (_, second, _) = (
        watched(model, optim={"epochs": epochs, "minibatch": 100}) for epochs in (1, 2)
    )
    assert abs(first.seen[1] - 1).max() < 1e-4 < 1e-2 < abs(second.seen[1] - 1).max()
    assert second.seen[0] == pytest.approx(first.score(batch), abs=1e-4), "after the first epoch's step"


def test_the_ratio_of_a_reply_is_that_of_all_its_tokens(model: Path) -> None:
    batch, actor, told = watched(model, ratio="response")
    trained, ratio, _, clipped = actor.seen
    for begin, end in zip(batch.ends - batch.response_length, batch.ends, strict=True):
        assert ratio[begin:end] == pytest.approx(math.exp((trained - batch.old)[begin:end].sum()), rel=1e-4)
    assert told["clip_share"] == pytest.approx(clipped.mean(), rel=1e-5)


def test_rows_that_are_copied_are_seen_once(model: Path) -> None:
    optim = {"order": "ranks", "minibatch": 8, "epochs": 1}
    assert abs(watched(model, optim)[1].seen[1] - 1).max() < 1e-4, "the mean over copies, not their sum"


def test_what_no_step_read_is_unknown(model: Path) -> None:
    """Of a run that ends since no step is finite, and of replies that count nowhere."""
    batch = table([Turn([5], [6, 7], [-1.0, -2.0]), Turn([5], [8], [-1.0])], advantage=[1.0, 1.0])
    told = seen(batch, np.array([math.nan, -2.5, -1.5]), small(model).loss)
    assert np.isnan(told[:, 0]).all() and np.isfinite(told[:, 1:]).all()
    masked = seen(replace(batch, masked=np.array([False, True])), np.array([-1.0, -2.5, -1.5]), small(model).loss)
    assert np.isfinite(masked[:, :2]).all() and np.isnan(masked[:, 2]).all()
    first, second = recorded(replace(batch, seen=told), lambda turn: "")
    assert first.ratios == () and second.ratios and second.trained == (-1.5,)

    actor = Actor(small(model, optim={"lr": 1e-2, "minibatch": 1}, loss={"kl": 0.0}), Distributed())
    turns = [Turn([5 + n], [6], [-1.0]) for n in range(6)]
    with torch.no_grad():
        for _, weight in actor.named:
            weight.fill_(math.nan)
    actor.optimise(table(turns, advantage=[1.0] * 6), rng("x"), watch=True)
    assert actor.skipped == 3 and np.isnan(actor.seen).all()


def test_replies_that_did_well_become_likelier_and_others_less_likely(model: Path) -> None:
    actor = Actor(small(model, optim={"lr": 1e-3, "minibatch": 8}, loss={"kl": 0.0}), Distributed())
    good, bad = actor.policy.generate([Prompt("up"), Prompt("up")], [1, 2], 1.0, 4)
    assert good.response[0] != bad.response[0]
    batch = table([good, bad], advantage=[1.0, -1.0])
    before = [sum(values) for values in by_turn(batch, actor.score(batch))]
    actor.optimise(batch, rng("x"))
    after = [sum(values) for values in by_turn(batch, actor.score(batch))]
    assert after[0] > before[0] + 0.01 and after[1] < before[1] - 0.01


def test_weights_that_are_sharded_are_those_of_the_step_before(model: Path) -> None:
    """A forward pass leaves some of them whole: with the next step's they would be old, and could not be read."""
    told, weights = [], []
    optim = {"lr": 1e-2, "minibatch": 3, "microbatch": 2, "epochs": 2}
    for every in (False, True):
        actor = Actor(small(model, policy={"precision": "bfloat16"}, optim=optim, loss={"kl": 0.0}), Distributed())
        turns = [Turn([5, 6, 7 + n], [8, 9 + n % 3, actor.policy.eos], [-5.0] * 3) for n in range(6)]
        batch = table(turns, advantage=[1.0, 0.0, 0.0, -0.5, 0.0, 0.0])
        actor.by_advantage &= not every
        told.append(actor.optimise(batch, rng("x")))
        weights.append(torch.cat([tensor.flatten() for _, tensor in actor.policy.weights()]))
    Distributed().leave()
    assert told[0] == pytest.approx(told[1], rel=1e-2, abs=1e-3)
    assert (weights[0] - weights[1]).abs().mean() < 1e-3


def test_a_reference_that_is_sharded_is_whole_for_its_passes_alone(model: Path) -> None:
    actor = Actor(small(model, policy={"precision": "bfloat16"}, loss={"kl": 0.1}), Distributed())
    assert actor.reference is not None
    table_of = [Turn([5, 6, 7], [8, 9, actor.policy.eos], [-5.0] * 3)]
    actor.optimise(table(table_of, advantage=[1.0]), rng("x"))
    assert {type(weight) for weight in actor.reference.model.parameters()} == {
        type(weight) for weight in actor.policy.model.parameters()
    }
    Distributed().leave()


@pytest.mark.parametrize("loss", [{"kl": 0.0}, {"kl": 0.0, "entropy": 0.01}, {"kl": 0.1}])
def test_only_rows_that_teach_are_read_for_a_gradient(
    model: Path, monkeypatch: pytest.MonkeyPatch, loss: dict[str, float]
) -> None:
    """And the step and its metrics are those of reading all rows for one."""
    told, weights, taught = [], [], list[float]()
    scored = TransformersPolicy.logprobs

    def counted(self: TransformersPolicy, batch: TokenBatch, *rest: Any, **beside: Any) -> Any:
        if torch.is_grad_enabled():
            taught.extend(batch.advantages[:, 0].tolist())
        return scored(self, batch, *rest, **beside)

    for every in (False, True):
        actor = Actor(small(model, optim={"lr": 1e-3, "minibatch": 6, "microbatch": 2}, loss=loss), Distributed())
        turns = actor.policy.generate([Prompt("up" * (1 + n // 2)) for n in range(6)], range(6), 1.0, 4)
        batch = table(turns, advantage=[1.0, 0.0, 0.0, -0.5, 0.0, 0.0])
        actor.by_advantage &= not every
        with monkeypatch.context() as patch:
            if not every:
                patch.setattr(TransformersPolicy, "logprobs", counted)
            told.append(actor.optimise(batch, rng("x")))
        weights.append(torch.cat([p.detach().flatten() for p in actor.model.parameters()]))
    assert told[0] == pytest.approx(told[1], rel=1e-4, abs=1e-6)
    assert (weights[0] - weights[1]).abs().max() < 2e-5
    assert sorted(taught) == ([-0.5, 1.0] if loss == {"kl": 0.0} else [-0.5, 0.0, 0.0, 0.0, 0.0, 1.0])


def test_a_reference_pulls_the_policy_back_and_stays_where_it_is(model: Path) -> None:
    """With no advantage at all a policy that has gone astray returns, and the more so the more the KL weighs."""
    gaps = []
    for kl in (0.0, 1.0):
        actor = Actor(small(model, optim={"lr": 1e-3, "epochs": 5}, loss={"kl": 0.01}), Distributed())
        actor.config = small(model, optim={"lr": 1e-3, "epochs": 5}, loss={"kl": kl})
        with torch.no_grad():
            noise = torch.Generator().manual_seed(0)
            for p in actor.policy.model.parameters():
                p.add_(0.05 * torch.randn(p.shape, generator=noise).to(p.device))
        kept = [p.clone() for p in actor.reference.model.parameters()]
        turns = actor.policy.generate([Prompt("up")] * 8, range(8), 1.0, 4)
        steps = actor.train_epochs(table(turns, advantage=[0.0] * 8), rng("x"))
        gaps.append((steps[0]["kl"], steps[-1]["kl"]))
        assert all(torch.equal(p, old) for p, old in zip(actor.reference.model.parameters(), kept, strict=True))
    (still, stays), (first, returned) = gaps
    assert still == first > 0.01
    assert stays == pytest.approx(still, rel=0.01) and returned < 0.9 * first


def test_training_reads_prompts_up_to_the_limit_of_the_config(model: Path) -> None:
    def template(view: View) -> str:
        return f"Sokoban\n{view.observation}\nYour move?"

    view = View("", "# # #\n# _ #\n# @ #\n" * 4, (), 0, ())
    prompt = Prompt(template(view), (), None, (template, view))
    for limit, truncation in ((40, "shorten"), (None, "error"), (40, "error")):
        rollout = {"max_prompt_tokens": limit, "truncation": truncation}
        policy = Actor(small(model, rollout=rollout), Distributed()).policy
        whole = policy.encode(prompt)
        assert len(whole) > 40
        if limit and truncation == "error":
            with pytest.raises(ConfigError, match="rollout.max_prompt_tokens=40"):
                policy.generate([prompt], [0], 1.0, 1)
            continue
        (turn,) = policy.generate([prompt], [0], 1.0, 1)
        assert len(turn.prompt) <= 40 if limit else turn.prompt == whole


def test_a_policy_goes_on_from_its_checkpoint_and_its_reference_from_the_start(model: Path, tmp_path: Path) -> None:
    config = small(model, optim={"lr": 1e-2})
    actor = Actor(config, Distributed())
    turns = actor.policy.generate([Prompt("up")] * 4, range(4), 1.0, 4)
    batch = table(turns, advantage=[1.0] * len(turns))
    actor.optimise(batch, rng("x"))
    actor.save(tmp_path, {})
    again = Actor(config, Distributed(), tmp_path)
    start = Actor(config, Distributed()).policy.model.state_dict()
    moved = 0
    for name, weight in again.policy.model.state_dict().items():
        assert torch.equal(weight, actor.policy.model.state_dict()[name])
        assert torch.equal(again.reference.model.state_dict()[name], start[name])
        moved += not torch.equal(weight, start[name])
    assert moved > 10
    one, other = actor.optimise(batch, rng("y")), again.optimise(batch, rng("y"))
    assert one == other and one["kl"] > 0
    for (_, mine), (_, theirs) in zip(actor.named, again.named, strict=True):
        assert torch.equal(mine, theirs), "the optimizer goes on, too"


def test_checkpointed_layers_that_drop_by_themselves_do_not(tmp_path: Path) -> None:
    """OPT's call the function, and not a module that is in evaluation mode."""
    tokenizer = fresh_policy().tokenizer
    shape = {"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 64, "num_hidden_layers": 2}
    config = AutoConfig.for_model("opt", vocab_size=len(tokenizer), num_attention_heads=4, dropout=0.5, **shape)
    TransformersPolicy(AutoModelForCausalLM.from_config(config), tokenizer).save(tmp_path)
    actor = Actor(small(tmp_path, policy={"gradient_checkpointing": True}), Distributed())
    turns = actor.policy.generate([Prompt("up"), Prompt("left")], [0, 1], 1.0, 4)
    metrics = actor.optimise(table(turns, advantage=[1.0, -1.0]), np.random.default_rng(0))
    assert metrics["drift"] == pytest.approx(0.0, abs=1e-5)
