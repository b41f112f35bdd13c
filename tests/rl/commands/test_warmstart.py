"""Warm starts: lessons, and what a step of imitation does."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch
from learner_fixtures import fresh_policy
from paths import ROOT

from crbc_rl.batches import Turn
from crbc_rl.commands.warmstart import WarmstartConfig, _backward, _demonstrations, load_warmstart_config, warmstart
from crbc_rl.config import load_config
from crbc_rl.policies.load import load_policy

TEXT_WORLDS = ["alfworld", "webshop"]


def gradients(turns, parts):
    policy = fresh_policy()
    nll = _backward(policy, turns, parts)
    return nll, [p.grad for p in policy.model.parameters()]


def test_a_batch_read_in_parts_has_the_gradient_of_the_whole():
    turns = [Turn(list(range(5, 9 + 7 * i)), [3, 4 + i, 1], [0.0] * 3) for i in range(7)]
    whole, parts = (gradients(turns, parts) for parts in (1, 3))
    assert whole[0] == pytest.approx(parts[0], rel=1e-5)
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(whole[1], parts[1], strict=True))


def test_a_step_of_the_decay_is_a_step_at_a_smaller_rate(tmp_path):
    def weights(**changes):
        config = WarmstartConfig(
            out=str(tmp_path / "w"), threads=1, teacher={"hasty": 0.5}, steps=1, batch=4, warmup=1, **changes
        )
        return warmstart(config).model.state_dict()

    decayed, small, full = weights(lr=4e-3, decay=4), weights(lr=1e-3), weights(lr=4e-3)
    assert all(torch.equal(decayed[name], small[name]) for name in small)
    assert not all(torch.equal(full[name], small[name]) for name in small)


@pytest.mark.parametrize("world", TEXT_WORLDS)
def test_the_teacher_s_replies_fit_the_training_config(world):
    """What it teaches in the shipped tokens is neither cut short in training nor beyond the model's positions."""
    config = load_config(ROOT / "configs" / f"{world}_tiny.yaml")
    lessons = load_warmstart_config(ROOT / "configs" / f"warmstart_{world}.yaml")
    assert Path(lessons.out) == Path(config.model)
    policy = load_policy(config.model)
    assert sum(parameter.numel() for parameter in policy.model.parameters()) <= 1_200_000
    for prompt, reply in islice(_demonstrations(lessons), 300):
        length = len(policy.tokenizer.encode(reply)) + 1
        assert length <= config.rollout.max_new_tokens, reply
        assert len(policy.encode(prompt)) + length <= policy.model.config.max_position_embeddings
