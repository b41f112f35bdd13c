"""examples/sb3_webshop.py: a discrete agent of another library learns to buy, and nothing it meets is cut."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture
def sb3_webshop(project):
    spec = importlib.util.spec_from_file_location("sb3_webshop", project / "examples" / "sb3_webshop.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("as_bytes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_it_runs(sb3_webshop, as_bytes, capsys):
    for result in sb3_webshop.main(steps=1024, episodes=3, as_bytes=as_bytes):
        assert 0 <= result.success <= result.score <= result.purchases <= 1
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("as_bytes", [False, True])
def test_an_admissible_walk_searches_and_buys(sb3_webshop, as_bytes):
    env = sb3_webshop.make_env("test", as_bytes)
    seen, info = env.reset(seed=0)
    for wanted in ("search[", "click[b0gen", "click[buy now]"):
        texts = env.get_wrapper_attr("texts")
        seen, reward, terminated, _, info = env.step([text.startswith(wanted) for text in texts].index(True))
        assert seen in env.observation_space and info["valid"]
    assert terminated and reward == info["score"]


def test_random_play_meets_sizes_below_those_of_the_example(sb3_webshop):
    import gymnasium

    from crbc_envs import DiscreteActions

    shop = gymnasium.make("CRBC-WebShop-v0", **sb3_webshop.SHOP)
    sizes = DiscreteActions.measure(shop, episodes=300, queries=sb3_webshop.task_text)
    assert sizes.num_actions < sb3_webshop.NUM_ACTIONS and sizes.length < sb3_webshop.LENGTH


@pytest.mark.full
def test_it_learns_to_buy(sb3_webshop):
    before, after = sb3_webshop.main(episodes=100)
    assert after.purchases > 2 * before.purchases > 0
    assert after.score > 2 * before.score
