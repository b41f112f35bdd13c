"""The induction head: a fresh tiny model copies what its prompt spells out."""

from __future__ import annotations

import torch
from learner_fixtures import fresh_policy

from crbc_lab import tiny


def share_copied(policy, length=100, span=20, rows=16):
    """How often the likeliest next token is the right one while a random stretch of random text is repeated."""
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(0, policy.model.config.vocab_size, (rows, length), generator=generator)
    start = torch.randint(0, length - span, (rows, 1), generator=generator)
    repeated = text.gather(1, start + torch.arange(span))
    with torch.no_grad():
        logits = (
            policy.model(torch.cat([text, repeated], dim=1).to(policy.device), logits_to_keep=span).logits[:, :-1].cpu()
        )
    return (logits.argmax(-1) == repeated[:, 1:]).float().mean().item()


def test_a_fresh_model_copies_only_with_an_induction_head():
    plain = fresh_policy()
    copying = tiny.build(plain.tokenizer, torch.Generator().manual_seed(0), copies=True)
    assert share_copied(plain) < 0.05
    assert share_copied(copying) > 0.8


def test_two_tokens_of_context_tell_places_apart_that_one_does_not():
    """Every other token is the same one, as spaces are."""
    policy = tiny.build(fresh_policy().tokenizer, torch.Generator().manual_seed(0), copies=True)
    generator = torch.Generator().manual_seed(1)
    rows, words = 16, 40
    text = torch.full((rows, 2 * words), 7)
    for row in text:
        row[::2] = 10 + torch.randperm(300, generator=generator)[:words]
    repeated = text[:, 20:40]
    with torch.no_grad():
        logits = policy.model(torch.cat([text, repeated], dim=1), logits_to_keep=20).logits[:, 1:-1:2]
    assert (logits.argmax(-1) == repeated[:, 2::2]).float().mean() > 0.8


def test_it_is_drawn_from_the_generator_alone():
    tokenizer = fresh_policy().tokenizer
    torch.manual_seed(1)
    one = tiny.build(tokenizer, torch.Generator().manual_seed(3), copies=True).model.state_dict()
    torch.manual_seed(2)
    other = tiny.build(tokenizer, torch.Generator().manual_seed(3), copies=True).model.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
