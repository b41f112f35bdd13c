"""Stable-Baselines3: its loss gets the credit of each step, at that step's own row, and nothing of idle members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import recorded_groups
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure

from crbc_envs import GroupVectorEnv, VectorDiscreteActions
from crbc_envs.sokoban.rules import MOVES
from crbc_rl import credit
from crbc_rl.adapters.rounds import Rounds
from crbc_rl.adapters.sb3 import GroupCredit, GroupVecEnv, LiveRolloutBuffer

GROUPS, SIZE, HORIZON = 3, 4, 6


def rounds_of(groups: int = GROUPS, size: int = SIZE, **kwargs: Any) -> Rounds:
    envs = GroupVectorEnv("CRBC-Sokoban-v0", groups, size, observation="text", max_steps=HORIZON, **kwargs)
    return Rounds(VectorDiscreteActions(envs, 4, 256), num_tasks=8)


def agent_of(rounds: Rounds, **kwargs: Any) -> PPO:
    options = {"n_steps": 2 * HORIZON, "batch_size": 7, "n_epochs": 1, "normalize_advantage": False, "vf_coef": 0.0}
    made = {**options, "seed": 0, "device": "cpu", "rollout_buffer_class": LiveRolloutBuffer, **kwargs}
    return PPO("MlpPolicy", GroupVecEnv(rounds), **made)


class Spy(BaseCallback):
    """Keeps what a rollout was: the rows before they are flattened, and its groups."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[bytes, int, float]] = []
        self.played: list[Any] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer
        self.played += self.training_env.unwrapped.rounds.finished
        for number, rollouts in enumerate(self.played):
            for step, member in zip(rollouts.step.tolist(), rollouts.rollout.tolist(), strict=True):
                at = number * HORIZON + step, member
                self.rows.append(key(buffer.observations[at], buffer.actions[at], buffer.log_probs[at]))


def key(observation: Any, action: Any, log_prob: Any) -> tuple[bytes, int, float]:
    return np.asarray(observation, np.uint8).tobytes(), int(np.asarray(action).item()), float(log_prob)


@pytest.mark.parametrize("method", ["crbc", "grpo"])
def test_the_loss_gets_the_credit_of_its_rows(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[tuple[bytes, int, float], float]] = []
    get = LiveRolloutBuffer.get

    def captured(self: LiveRolloutBuffer, batch_size: int | None = None) -> Any:
        for batch in get(self, batch_size):
            rows = zip(batch.observations, batch.actions, batch.old_log_prob, batch.advantages, strict=True)
            seen.extend((key(o, a, p), float(advantage)) for o, a, p, advantage in rows)
            yield batch

    monkeypatch.setattr(LiveRolloutBuffer, "get", captured)
    rounds, spy = rounds_of(), Spy()
    agent_of(rounds).learn(2 * HORIZON * GROUPS * SIZE, callback=[spy, GroupCredit(method)])
    wanted = [
        advantage
        for rollouts in spy.played
        for group in credit.advantages_batch(rollouts.groups(), method)
        for rollout in group
        for advantage in rollout.tolist()
    ]
    assert len(seen) == len(spy.rows) == len(wanted) == rounds.live_steps < 2 * HORIZON * GROUPS * SIZE
    # Equal rows may have different credit, so rows and credits are compared as sorted pairs.
    for (row, found), (own, value) in zip(sorted(seen), sorted(zip(spy.rows, wanted, strict=True)), strict=True):
        assert row == own
        assert found == pytest.approx(value, rel=1e-6, abs=1e-6)
    assert any(value for value in wanted)


def test_gae_is_stable_baselines_own_without_idle_rows() -> None:
    """Before idle rows are left out, the buffer holds what PPO's own holds."""
    kept: dict[bool, list[np.ndarray]] = {}
    for ours in (True, False):
        rounds = rounds_of()
        agent = agent_of(rounds, **({} if ours else {"rollout_buffer_class": None}))

        class Keep(BaseCallback):
            def _on_step(self) -> bool:
                return True

            def _on_rollout_end(self) -> None:
                kept.setdefault(ours, []).append(self.model.rollout_buffer.advantages.copy())  # noqa: B023

        agent.learn(2 * HORIZON * GROUPS * SIZE, callback=[*([GroupCredit("gae")] if ours else []), Keep()])
    np.testing.assert_array_equal(kept[True][0], kept[False][0])


def test_ppo_saves_loads_and_logs(tmp_path: Path) -> None:
    rounds = rounds_of()
    agent = agent_of(rounds)
    agent.set_logger(configure(str(tmp_path), ["csv"]))
    agent.learn(2 * HORIZON * GROUPS * SIZE, callback=GroupCredit("gigpo", gamma=0.9))
    header, first, *_ = (tmp_path / "progress.csv").read_text().splitlines()
    logged = dict(zip(header.split(","), first.split(","), strict=True))
    assert int(logged["time/live_steps"]) == rounds.live_steps and "rollout/success_rate" in logged
    agent.save(tmp_path / "agent.zip")
    other = rounds_of()
    again = PPO.load(tmp_path / "agent.zip", env=GroupVecEnv(other), device="cpu")
    for one, two in zip(agent.policy.parameters(), again.policy.parameters(), strict=True):
        assert torch.equal(one, two)
    again.learn(2 * HORIZON * GROUPS * SIZE, callback=GroupCredit("crbc"), reset_num_timesteps=False)
    assert again.num_timesteps == 2 * agent.num_timesteps and other.live_steps > 0
    returns, lengths = evaluate_policy(
        again, GroupVecEnv(rounds_of(4, 1)), n_eval_episodes=8, warn=False, return_episode_rewards=True
    )
    assert len(returns) == 8 and max(lengths) <= HORIZON


def test_the_same_seed_learns_the_same() -> None:
    policies = []
    for _ in range(2):
        agent = agent_of(rounds_of())
        agent.learn(2 * HORIZON * GROUPS * SIZE, callback=GroupCredit())
        policies.append(torch.cat([weight.detach().ravel() for weight in agent.policy.parameters()]))
    assert torch.equal(*policies)


def test_steps_off_the_horizon_and_a_missing_callback_are_refused() -> None:
    with pytest.raises(ValueError, match="7 steps are wanted, a multiple of the horizon 6; 1 rounds and 1 steps"):
        agent_of(rounds_of(), n_steps=7).learn(84, callback=GroupCredit())
    with pytest.raises(ValueError, match="call learn.*GroupCredit"):
        agent_of(rounds_of()).learn(84)


def test_a_round_ends_with_the_last_observations_of_its_members() -> None:
    rounds = rounds_of()
    rounds.reset(seed=1)
    alone = VectorDiscreteActions(
        GroupVectorEnv("CRBC-Sokoban-v0", GROUPS, SIZE, observation="text", max_steps=HORIZON), 4, 256
    )
    rng, tasks = np.random.default_rng(1), {}
    tasks = {name: rng.integers(most, size=GROUPS).tolist() for name, most in (("task", 8), ("group_seed", 2**31))}
    alone.reset(options=tasks)
    draws = np.random.default_rng(0)
    for time in range(HORIZON):
        actions = draws.integers(4, size=GROUPS * SIZE)
        observations, rewards, *flags, infos = rounds.step(actions)
        wanted, wanted_rewards, *wanted_flags, _ = alone.step(actions)
        last = infos["final_obs"] if time == HORIZON - 1 else observations
        np.testing.assert_array_equal(last, wanted)
        np.testing.assert_array_equal(rewards, wanted_rewards)
        np.testing.assert_array_equal(flags, wanted_flags)
    assert rounds.time == 0 and len(rounds.finished) == 1
    found, live = rounds.advantages(HORIZON, "crbc")
    groups = alone.groups()
    for m, advantage in enumerate(a for group in credit.advantages_batch(groups) for a in group):
        np.testing.assert_array_equal(found[: len(advantage), m], advantage)
        assert live[:, m].sum() == len(advantage)
    with pytest.raises(ValueError, match="0 rounds"):
        rounds.advantages(HORIZON, "crbc")
    assert isinstance(rounds, gymnasium.vector.VectorEnv)


SCORED = [("scores", {"scores": "by length"}), ("scores", {"scores": "by length", "kind": "reward", "gamma": 0.9})]


@pytest.mark.parametrize(("method", "options"), [*recorded_groups.KINDS, *SCORED], ids=str)
def test_the_recorded_groups_reach_the_loss(
    method: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PPO plays the recorded actions: each row of its loss has the advantage of `credit.advantages`."""
    groups = recorded_groups.read()
    members = [rollout for group in groups for rollout in group.rollouts]
    horizon, size = recorded_groups.KWARGS["max_steps"], recorded_groups.SIZE
    envs = GroupVectorEnv(recorded_groups.ENV_ID, len(groups), size, **recorded_groups.KWARGS)
    rounds = Rounds(VectorDiscreteActions(envs, 5, 256))  # the fifth number is no action of this environment
    drawn = {"task": [g.task for g in groups], "group_seed": [g.seed for g in groups]}
    monkeypatch.setattr(rounds, "reset", lambda **_: Rounds.reset(rounds, options=drawn))
    agent = agent_of(rounds, n_steps=horizon)
    forward, time = agent.policy.forward, iter(range(horizon))

    def recorded(observations: Any, deterministic: bool = False) -> Any:
        t = next(time)
        rows = [member.rows[t] if t < len(member.rows) else None for member in members]
        actions = torch.tensor([MOVES.index(row["action"]) if row and row["valid"] else 4 for row in rows])
        _, values, _ = forward(observations, deterministic)
        # The row's number in place of its log-probability: PPO carries it to the loss beside the advantage.
        return actions, values, torch.arange(len(members)).float() * horizon + t

    monkeypatch.setattr(agent.policy, "forward", recorded)
    seen: dict[int, float] = {}
    evaluate_actions = agent.policy.evaluate_actions
    batches: list[Any] = []
    get = LiveRolloutBuffer.get

    def captured(self: LiveRolloutBuffer, batch_size: int | None = None) -> Any:
        for batch in get(self, batch_size):
            seen.update(zip(batch.old_log_prob.int().tolist(), batch.advantages.tolist(), strict=True))
            batches.append(batch.actions)
            yield batch

    evaluated: list[Any] = []

    def evaluate(observations: Any, actions: Any) -> Any:
        evaluated.append(actions)
        return evaluate_actions(observations, actions)

    monkeypatch.setattr(LiveRolloutBuffer, "get", captured)
    monkeypatch.setattr(agent.policy, "evaluate_actions", evaluate)
    given = dict(options)
    if method == "scores":  # a function of the table; here it knows the replies behind the rows
        flat = [recorded_groups.score(reply) for member in members for reply in member.replies]
        given["scores"] = lambda rollouts: np.array(flat)[: len(rollouts.rollout)]
        options = {name: value for name, value in options.items() if name != "scores"}
    agent.learn(horizon * len(members), callback=GroupCredit(method, **given))
    wanted = {
        m * horizon + t: value
        for m, values in enumerate(recorded_groups.advantages(groups, method, **options))
        for t, value in enumerate(values.tolist())
    }
    assert seen == pytest.approx(wanted, abs=1e-6)
    assert sum(map(len, evaluated)) == sum(map(len, batches)) == len(wanted)
