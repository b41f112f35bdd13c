"""Prompts share what they have in common: the same replies, each prefix read once, within a bound of bytes."""

from __future__ import annotations

from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from learner_fixtures import fresh_policy, small
from tables import table
from transformers import AutoConfig, AutoModelForCausalLM

from crbc_envs.prompts import Prompt
from crbc_rl.batches import Turn
from crbc_rl.distributed import Distributed
from crbc_rl.policies.lora import adapt
from crbc_rl.policies.prefixes import PASS, Counts, Prefixes, _buckets
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.training.actor import Actor

BOARDS = ["# # #\n# @ _\n# # #", "# # #\n# _ @\n# # #", "# # #\n# $ @\n# # #\n# . _", "up", "# # #"]


@pytest.fixture(params=["whole", "lora"])
def policy(request: pytest.FixtureRequest, device: torch.device) -> TransformersPolicy:
    policy = fresh_policy()
    with torch.no_grad():  # sharpen it, so that a wrong position or mask would show
        for weight in policy.model.parameters():
            weight.mul_(3.0 if weight.dim() > 1 else 1.0)
    if request.param == "lora":
        adapt(policy.model, 2, 0)
        policy.adapted = True
        with torch.no_grad():
            for name, weight in policy.model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(0.0, 0.1, generator=torch.Generator().manual_seed(1))
    policy.model.to(device)
    return policy


def known(policy: TransformersPolicy) -> Prefixes:
    assert policy.prefixes is not None
    return policy.prefixes


def calls(policy: TransformersPolicy, number: int = 4) -> list[list[Turn]]:
    """Replies to prompts of which some return, some go on with others, and some come twice."""
    rng, replies = np.random.default_rng(0), []
    for call in range(number):
        texts = ["\n".join(rng.choice(BOARDS, size=1 + int(rng.integers(4)))) for _ in range(6)]
        prompts = [Prompt(text) for text in [*texts, texts[0]]]
        replies.append(policy.generate(prompts, [100 * call + i for i in range(7)], 1.0, 5))
    return replies


def distinct(turns: list[list[Turn]]) -> set[tuple[int, ...]]:
    """The prefixes of all prompts: the nodes of their tree."""
    prompts = {tuple(turn.prompt) for call in turns for turn in call}
    return {prompt[:end] for prompt in prompts for end in range(1, len(prompt) + 1)}


def assert_alike(one: list[list[Turn]], other: list[list[Turn]]) -> None:
    for a, b in zip(chain(*one), chain(*other), strict=True):
        assert a.response == b.response
        assert np.allclose(a.logprobs, b.logprobs, rtol=0, atol=1e-5)


def alone(policy: TransformersPolicy) -> list[list[Turn]]:
    prefixes, policy.prefixes = policy.prefixes, None
    replies = calls(policy)
    policy.prefixes = prefixes
    return replies


def test_replies_are_those_of_prompts_read_whole_and_each_prefix_is_read_once(policy: TransformersPolicy) -> None:
    shared = calls(policy)
    assert_alike(shared, alone(policy))
    counts, nodes = known(policy).counts, distinct(shared)
    asked = [len({tuple(turn.prompt) for turn in call}) for call in shared]
    assert len(known(policy)) == len(nodes)
    assert len(nodes) <= counts.read <= len(nodes) + sum(asked) + 4 * PASS  # the last token of each gives its logits
    assert counts.found > 0 and counts.found + counts.read <= counts.asked
    assert known(policy).metrics()["rollout/prefill_tokens"] == counts.read and known(policy).counts == Counts()


def test_new_prompts_of_one_call_read_what_they_share_once(policy: TransformersPolicy) -> None:
    turns = policy.generate([Prompt(PASS * "# " + end) for end in ("up", "@ _")], [0, 1], 1.0, 2)
    assert known(policy).counts.read == len(distinct([turns]))


def test_beyond_the_bound_the_longest_unused_go_and_replies_stay(policy: TransformersPolicy) -> None:
    calls(policy, 1)
    node = known(policy).bytes // len(known(policy))
    for nodes in (0, 7, 40):
        policy.forget()
        known(policy).most_bytes = nodes * node + node // 2
        assert_alike(calls(policy), alone(policy))
        assert len(known(policy)) == nodes and known(policy).bytes <= known(policy).most_bytes


@pytest.mark.parametrize("most", [0, 40, 100])
def test_what_is_read_takes_the_place_of_what_was_used_longest_ago(policy: TransformersPolicy, most: int) -> None:
    """The memory grows beyond the bound for the prompts of one call alone."""
    calls(policy, 1)
    node = known(policy).bytes // len(known(policy))
    policy.forget()
    known(policy).most_bytes = most * node
    rng, largest = np.random.default_rng(0), most
    for _ in range(5):
        words = rng.choice(["up", "down", "@", "#", "left", "$"], size=(3, 20))
        turns = policy.generate([Prompt(" ".join(row)) for row in words], [0, 1, 2], 1.0, 2)
        largest = max(largest, len(distinct([turns])))
        assert len(known(policy).keys[0]) <= largest


def test_what_was_used_last_is_kept_with_all_that_leads_to_it(policy: TransformersPolicy) -> None:
    prompts = [Prompt("a b c d"), Prompt("e f g h"), Prompt("a b c d")]
    for prompt in prompts[:2]:
        policy.generate([prompt], [0], 1.0, 2)
    whole = len(policy.encode(prompts[0]))
    known(policy).most_bytes = whole * known(policy).bytes // len(known(policy))
    policy.generate([prompts[2]], [0], 1.0, 2)
    assert len(known(policy)) == whole
    before = known(policy).counts.read
    policy.generate([prompts[0]], [1], 1.0, 2)
    assert known(policy).counts.read == before + 1  # the last token alone


def test_changed_weights_forget_all_and_a_forgetful_policy_repeats_its_bytes(policy: TransformersPolicy) -> None:
    first = calls(policy)
    policy.forget()
    assert len(known(policy)) == 0 and calls(policy) == first  # to the bit, log-probabilities too
    optimizer = torch.optim.AdamW([p for p in policy.model.parameters() if p.requires_grad], lr=1e-2)
    sum(p.sum() for p in policy.model.parameters() if p.requires_grad).backward()
    optimizer.step()
    changed = calls(policy)
    assert_alike(changed, alone(policy))
    assert changed != first


def test_an_optimizer_step_of_the_actor_forgets_them_whatever_the_kernel(tmp_path: Path) -> None:
    fresh_policy().save(tmp_path)
    actor = Actor(small(tmp_path, optim={"lr": 1e-2}), Distributed())
    actor.optimizer.param_groups[0]["fused"] = True  # as on a GPU: no tensor counts its changes
    first = calls(actor.policy)
    turns = actor.policy.generate([Prompt("up")] * 4, range(4), 1.0, 4)
    actor.optimise(table(turns, advantage=[1.0, -1.0, 2.0, -2.0]), np.random.default_rng(0))
    changed = calls(actor.policy)
    assert changed != first
    actor.policy.forget()
    assert_alike(changed, calls(actor.policy))


def test_what_was_read_in_part_is_read_again(policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an interruption, or an error of a served model: its nodes are there, and their keys are not."""

    def fail(*_: object) -> None:
        raise MemoryError

    expected = alone(policy)
    policy.generate([Prompt("stuck")], [0], 1.0, 2)
    with monkeypatch.context() as patched:
        patched.setattr(Prefixes, "_copy", fail)
        with pytest.raises(MemoryError):
            calls(policy)
    assert_alike(calls(policy), expected)


@pytest.mark.parametrize("kind", ["mpt", "gpt_neo"])
def test_models_that_count_columns_read_prompts_whole(kind: str) -> None:
    """Padding between a known prefix and what goes on would be a part of their distances."""
    tokenizer = fresh_policy().tokenizer
    own = {"attention_types": [[["global", "local"], 1]], "window_size": 16} if kind == "gpt_neo" else {}
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, vocab_size=len(tokenizer), hidden_size=32, num_layers=2, num_heads=4, **own)
    policy = TransformersPolicy(AutoModelForCausalLM.from_config(config), tokenizer)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.mul_(8.0 if weight.dim() > 1 else 1.0)
    prompts = [Prompt(40 * "# " + end) for end in ("", "@", "up _ $ . left @ _ #")]
    policy.generate(prompts[:1], [0], 1.0, 1)
    for turn in policy.generate(prompts[1:], [1, 2], 1.0, 2):
        ids = torch.tensor([turn.prompt + turn.response])
        with torch.no_grad():
            scores = policy.model(input_ids=ids).logits[0, len(turn.prompt) - 1 : -1].log_softmax(-1)
        alone = scores.gather(1, ids[0, len(turn.prompt) :, None])[:, 0]
        assert turn.logprobs == pytest.approx(alone.tolist(), abs=1e-4)


@pytest.mark.parametrize("lengths", [[5], [1, 1, 1], [90, 88, 2, 1], [300, 290, 150, 149, 20, 1], [70, 60, 50, 40, 30]])
def test_passes_cost_least(lengths: list[int]) -> None:
    def cost(parts: list[list[int]]) -> int:
        return sum(PASS + len(part) * max(part) for part in parts)

    ordered = sorted(lengths, reverse=True)
    ways = [
        [ordered[a:b] for a, b in zip((0, *cuts), (*cuts, len(ordered)), strict=True)]
        for size in range(len(ordered))
        for cuts in combinations(range(1, len(ordered)), size)
    ]
    made = _buckets(range(len(lengths)), lengths)
    assert sorted(chain(*made)) == list(range(len(lengths)))
    assert cost([[lengths[row] for row in rows] for rows in made]) == min(map(cost, ways))
