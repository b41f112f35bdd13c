"""check_anchor_env on stochastic environments: one start, one play for the same seeds, noise within reach."""

from __future__ import annotations

import gymnasium
import noisy_envs
import pytest
import wrapped_envs  # noqa: F401  registers ids

import crbc_envs
from crbc_envs.checking.check import AnchorEnvError

FEW = {"episodes": 4, "fuzz": 60, "split_tasks": 1}

pytestmark = pytest.mark.usefixtures("one_hash_seed")


@pytest.mark.parametrize("env_id", noisy_envs.IDS)
def test_stochastic_environments_pass(env_id):
    report = crbc_envs.check_anchor_env(gymnasium.make(env_id), **FEW)
    assert report.noise > 0.5
    assert "noise" not in report.skipped
    assert f"{report.noise:.1%} of the walks came out otherwise under other noise" in str(report)


def test_a_deterministic_environment_has_no_figure_of_noise():
    report = crbc_envs.check_anchor_env(gymnasium.make("Corridor-v0"), **FEW)
    assert report.noise is None
    assert "noise" not in str(report)


class Shaky(noisy_envs.WindyCorridor):
    """What it shows is noisy from the start, and its situation is not."""

    def _observation(self):
        return f"{super()._observation()} {self.np_random.integers(9)}"


def test_a_noisy_observation_may_differ_at_the_start():
    gymnasium.register("Shaky-v0", entry_point=Shaky)
    assert crbc_envs.check_anchor_env(gymnasium.make("Shaky-v0"), **FEW).noise > 0.5


def test_noise_that_is_not_declared_is_told():
    gymnasium.register("Slips-v0", entry_point="broken_envs:SlipsWithoutSayingSo")
    report = crbc_envs.check_anchor_env(gymnasium.make("Slips-v0"), **FEW)
    assert report.noise is None and "does not declare stochastic = True" in report.skipped["noise"]
    assert "noise" not in crbc_envs.check_anchor_env(gymnasium.make("Corridor-v0"), **FEW).skipped


def test_noise_out_of_sight_is_told():
    report = crbc_envs.check_anchor_env(gymnasium.make("HiddenNoise-v0"), **FEW)
    assert report.noise == 0.0
    assert "no walk came out otherwise under other noise" in report.skipped["noise"]


@pytest.mark.parametrize(
    ("env_id", "check", "told"),
    [
        ("OwnGenerator-v0", "noise", "TypeError: OwnGenerator keeps a Generator in 'rng'"),
        ("TremblingAlone-v0", "determinism", "when played again"),
        ("Entropy-v0", "determinism", "when played again"),
    ],
)
def test_noise_that_no_seed_reaches_is_a_fault(env_id, check, told):
    with pytest.raises(AnchorEnvError, match=told) as caught:
        crbc_envs.check_anchor_env(gymnasium.make(env_id), **FEW)
    assert caught.value.check == check


class Forgets(noisy_envs.WindyCorridor):
    """Its noise depends on the episode before as well."""

    drawn = 0

    def seed_noise(self, seed):
        super().seed_noise(seed + type(self).drawn)
        type(self).drawn += 1


def test_noise_of_an_episode_before_is_a_fault():
    with pytest.raises(AnchorEnvError, match="when played again under the same noise"):
        crbc_envs.check_anchor_env(Forgets(), **FEW)


def test_a_malformed_reply_may_draw_noise_and_must_still_change_nothing():
    class Moves(noisy_envs.WindyCorridor):
        def _execute(self, action):
            return super()._execute("right" if action == "<invalid>" and self.cell < 8 else action)

    with pytest.raises(AnchorEnvError, match="check 'invalid'.* an invalid reply"):
        crbc_envs.check_anchor_env(Moves(), **FEW)
