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
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecNormalize

from crbc_envs import GroupVectorEnv, VectorDiscreteActions
from crbc_envs.sokoban.rules import MOVES
from crbc_rl import credit
from crbc_rl.adapters.rounds import Rounds
from crbc_rl.adapters.sb3 import GroupCredit, GroupVecEnv, LiveRolloutBuffer
from crbc_rl.errors import ConfigError

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
    agent_of(rounds, n_epochs=2).learn(2 * HORIZON * GROUPS * SIZE, callback=[spy, GroupCredit(method)])
    wanted = [
        advantage
        for rollouts in spy.played
        for group in credit.advantages_batch(rollouts.groups(), method)
        for rollout in group
        for advantage in rollout.tolist()
    ]
    size = len(spy.rows)
    assert len(seen) == 2 * size and size == len(wanted) == rounds.live_steps < 2 * HORIZON * GROUPS * SIZE
    # Equal rows may have different credit, so rows and credits are compared as sorted pairs.
    for epoch in (seen[:size], seen[size:]):
        for (row, found), (own, value) in zip(sorted(epoch), sorted(zip(spy.rows, wanted, strict=True)), strict=True):
            assert row == own
            assert found == pytest.approx(value, rel=1e-6, abs=1e-6)
    assert seen[:size] != seen[size:]  # an order of its own
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


def test_equal_seeds_learn_alike_and_every_round_has_new_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[dict[str, list[int]]] = []
    reset = VectorDiscreteActions.reset

    def kept(self: VectorDiscreteActions, *, options: dict[str, Any], **rest: Any) -> Any:
        drawn.append(options)
        return reset(self, options=options, **rest)

    monkeypatch.setattr(VectorDiscreteActions, "reset", kept)

    def learnt(seed: int) -> tuple[torch.Tensor, list[dict[str, list[int]]]]:
        drawn.clear()
        agent = agent_of(rounds_of(), seed=seed)
        for _ in range(2):  # the second call resets the environments again
            agent.learn(2 * HORIZON * GROUPS * SIZE, callback=GroupCredit())
        return torch.cat([weight.detach().ravel() for weight in agent.policy.parameters()]), list(drawn)

    (weights, options), (again, same), (other, others) = learnt(0), learnt(0), learnt(1)
    assert torch.equal(weights, again) and not torch.equal(weights, other)
    assert options == same and len(options) == 2 * 3  # a reset, and one after each of two rounds
    seeds = [seed for each in options + others for seed in each["group_seed"]]
    assert len(set(seeds)) == len(seeds) == 12 * GROUPS
    places = [place for each in options + others for place in each["task"]]
    assert set(places) <= set(range(8)) and len({tuple(each["task"]) for each in options}) > 4


def test_learning_goes_on_after_it_was_stopped_between_two_credits() -> None:
    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return self.n_calls < HORIZON + 3

    rounds = rounds_of()
    agent = agent_of(rounds)
    agent.learn(10**6, callback=[Stop(), GroupCredit()])
    assert (len(rounds.finished), rounds.time) == (1, 3)
    agent.learn(2 * HORIZON * GROUPS * SIZE, callback=[spy := Spy(), GroupCredit()])
    assert len(spy.played) == 2 and (rounds.finished, rounds.time) == ([], 0)


def test_an_episode_is_told_once_at_its_end_and_a_round_forgets_the_one_before() -> None:
    """Member 0 solves task 4 in five steps, then only makes malformed replies, as member 1 does from the beginning."""
    envs = GroupVectorEnv("CRBC-Sokoban-v0", 1, 2, **recorded_groups.KWARGS)
    vec = GroupVecEnv(Rounds(VectorDiscreteActions(envs, 5, 256)))
    vec.set_options({"task": [4]})
    start = vec.reset()
    solution = [MOVES.index(action) for action in ("down", "left", "left", "up", "right")]
    ends: list[tuple[int, int, dict[str, Any]]] = []
    shown, earned = [start], []
    for step in range(16):
        seen, rewards, dones, infos = vec.step(np.array([[*solution, *[4] * 11][step], 4]))
        assert rewards.dtype == np.float32 and [bool(info) for info in infos] == dones.tolist()
        ends += [(step + 1, m, infos[m]) for m in np.flatnonzero(dones).tolist()]
        shown.append(seen)
        earned.append(rewards)
    won, idle = [-0.1] * 4 + [10.9], [0.0] * 3  # 1 for the box on its place and 10 for the last one
    np.testing.assert_allclose(np.transpose(earned), [[*won, *idle, *[-0.1] * 8], [-0.1] * 16], rtol=1e-6)
    last = [(5, 0, shown[5][0]), (8, 1, start[1]), (16, 0, shown[8][0]), (16, 1, shown[8][1])]
    for (step, m, info), (at, member, observation) in zip(ends, last, strict=True):
        assert (step, m) == (at, member)
        np.testing.assert_array_equal(info["terminal_observation"], observation)
        assert (info["is_success"], info["TimeLimit.truncated"]) == (at == 5, at != 5)
        assert info["episode"] == pytest.approx({"r": 10.5 if at == 5 else -0.8, "l": 5 if at == 5 else 8, "t": 0.0})
    assert not np.array_equal(shown[8][1], start[1])


def test_infos_that_were_handed_out_stay_as_they_were() -> None:
    rounds = rounds_of(1, 2)
    rounds.reset(seed=0)
    steps = [rounds.step(np.array([4, 4]))[4] for _ in range(HORIZON)]  # malformed: -0.1 a step
    assert [infos["_episode"].tolist() for infos in steps] == [[False] * 2] * (HORIZON - 1) + [[True] * 2]
    returns = [infos["episode"]["r"] for infos in steps]
    np.testing.assert_allclose(returns, [[-0.1 * (step + 1)] * 2 for step in range(HORIZON)])


def test_the_masks_of_all_members_are_told_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """As MaskablePPO asks: whether there are masks, and then for those of every member."""
    envs = GroupVectorEnv("CRBC-ALFWorld-v0", 2, 2, max_steps=4)
    vec = GroupVecEnv(Rounds(VectorDiscreteActions(envs, 128, 8192), num_tasks=8))
    vec.reset()
    assert vec.has_attr("action_masks") and not vec.has_attr("nothing")
    masks = np.stack(vec.env_method("action_masks"))
    assert masks.shape == (4, 128) and masks.sum(axis=1).tolist() == [len(texts) for texts in vec.get_attr("texts")[0]]
    asked: list[None] = []
    ask = VectorDiscreteActions.action_masks
    monkeypatch.setattr(VectorDiscreteActions, "action_masks", lambda self: asked.append(None) or ask(self))
    np.testing.assert_array_equal(vec.env_method("action_masks", indices=[2, 0]), masks[[2, 0]])
    assert len(asked) == 1


def test_maskable_ppo_trains_on_admissible_actions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sb3_contrib", reason="not yet set up: bash scripts/setup.sh dev")
    from sb3_contrib import MaskablePPO
    from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer

    class MaskableLiveRolloutBuffer(LiveRolloutBuffer, MaskableRolloutBuffer):
        """As docs/adapters/sb3.md has it."""

    envs = VectorDiscreteActions(GroupVectorEnv("CRBC-Sokoban-v0", 3, 4, observation="text", max_steps=HORIZON), 9, 256)
    rounds, batches, chosen = Rounds(envs, num_tasks=8), [], []
    options = {"n_steps": 2 * HORIZON, "batch_size": 7, "n_epochs": 1, "vf_coef": 0.0, "seed": 0, "device": "cpu"}
    agent = MaskablePPO("MlpPolicy", GroupVecEnv(rounds), rollout_buffer_class=MaskableLiveRolloutBuffer, **options)
    step, get = VectorDiscreteActions.step, MaskableLiveRolloutBuffer.get

    def watched(self: VectorDiscreteActions, actions: Any) -> Any:
        chosen.extend(np.asarray(actions)[envs.active].tolist())
        return step(self, actions)

    def captured(self: Any, batch_size: int | None = None) -> Any:
        for batch in get(self, batch_size):
            batches.append(batch)
            yield batch

    monkeypatch.setattr(VectorDiscreteActions, "step", watched)
    monkeypatch.setattr(MaskableLiveRolloutBuffer, "get", captured)
    before = torch.cat([weight.detach().ravel() for weight in agent.policy.parameters()])
    agent.learn(2 * HORIZON * GROUPS * SIZE, callback=GroupCredit("crbc", reward="step"))
    assert not torch.equal(before, torch.cat([weight.detach().ravel() for weight in agent.policy.parameters()]))
    assert set(chosen) == {0, 1, 2, 3} and sum(len(batch.actions) for batch in batches) == rounds.live_steps
    for batch in batches:
        assert torch.equal(batch.action_masks, (torch.arange(9) < 4).float().expand(len(batch.actions), 9))


def test_members_are_asked_by_their_numbers_and_are_alike() -> None:
    vec = GroupVecEnv(rounds_of(2, 2, render_mode="ansi"))
    vec.reset()
    boards = vec.rounds.env.render()
    assert boards[0] != boards[3]
    assert vec.env_method("render", indices=[3, 0]) == [boards[3], boards[0]] and len(vec.env_method("render")) == 4
    assert vec.get_attr("horizon", [1, 2]) == [HORIZON] * 2 and vec.env_is_wrapped(gymnasium.Wrapper, 1) == [False]
    with pytest.raises(NotImplementedError, match="members of a group are alike"):
        vec.set_attr("horizon", 3)


def test_steps_off_the_horizon_and_a_missing_callback_are_refused() -> None:
    with pytest.raises(ValueError, match="7 steps are wanted, a multiple of the horizon 6; 1 rounds and 1 steps"):
        agent_of(rounds_of(), n_steps=7).learn(84, callback=GroupCredit())
    with pytest.raises(ValueError, match="call learn.*GroupCredit"):
        agent_of(rounds_of()).learn(84)
    agent = agent_of(rounds_of())
    agent.learn(2 * HORIZON * GROUPS * SIZE, callback=GroupCredit())
    with pytest.raises(
        ValueError, match="call learn.*GroupCredit"
    ):  # the credit of the rollout before is no longer there
        agent.learn(2 * HORIZON * GROUPS * SIZE)


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


def test_rounds_want_a_limit_of_steps() -> None:
    with pytest.raises(ConfigError, match="register the environment with max_episode_steps"):
        Rounds(VectorDiscreteActions(GroupVectorEnv("foreign_envs:Countdown-v0", 1, 2), 4, 64))


def test_the_episodes_of_members_are_told_and_not_counted_anew() -> None:
    """SB3 counts the steps of what is in no `Monitor` itself, and would add idle ones to the next episode."""
    envs = GroupVecEnv(rounds_of())
    assert envs.env_is_wrapped(Monitor) == [True] * GROUPS * SIZE and not any(envs.env_is_wrapped(VecNormalize))
