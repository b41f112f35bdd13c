"""Groups of environments that are no AnchorEnv, or one in wrappers: whatever keeps the contract of anchors."""

from __future__ import annotations

import functools
from contextlib import closing

import foreign_envs  # registers Countdown-v0 and wrapped Sokobans
import gymnasium
import numpy as np
import pytest
from worker_play import traces

import crbc_envs
from anchors import INVALID, TransitionCounts
from crbc_envs import GroupVectorEnv
from crbc_envs.demonstrations import expert_steps, random_successes
from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.vector.contract import ForeignEnv
from crbc_envs.vector.members import make_member

FOREIGN = ["Countdown-v0", "HintedSokoban-v0", "UnrecordedSokoban-v0", "HintsAddedSokoban-v0"]


def one_episode(envs, seed=0):
    """Random admissible actions to the end. Returns every info."""
    rng = np.random.default_rng(seed)
    _, info = envs.reset(seed=seed)
    infos = [info]
    while envs.active.any():
        admissible = infos[-1]["admissible_actions"]
        infos.append(envs.step([rng.choice(admissible[m]) if on else None for m, on in enumerate(envs.active)])[-1])
    return infos


@pytest.mark.parametrize("env_id", FOREIGN)
def test_they_play_alike_here_and_in_worker_processes(env_id):
    assert traces(env_id, 3, 2, backend="process", num_workers=2) == traces(env_id, 3, 2)


@pytest.mark.usefixtures("one_hash_seed")
@pytest.mark.parametrize("env_id", FOREIGN)
def test_the_check_accepts_what_a_group_accepts(env_id):
    report = crbc_envs.check_anchor_env(gymnasium.make(env_id), episodes=4, fuzz=50, split_tasks=1)
    windowless = {"rendering"} if env_id == "Countdown-v0" else set()
    assert set(report.skipped) == {"anchors asked for again"} | windowless


@pytest.mark.parametrize(
    ("env_id", "word"), [("HintedSokoban-v0", "by the entry point"), ("HintsAddedSokoban-v0", "by the spec")]
)
def test_wrappers_are_kept(env_id, word):
    with closing(GroupVectorEnv(env_id, 2, 2)) as envs:
        infos = one_episode(envs)
        assert set(infos[0]["hint"]) == {f"{word} 0"}
        assert envs.domain == "sokoban"
        assert envs.panel[7].id == "sokoban-v3/train/7"
        assert set(envs.reset(options={"task": [7, 8]})[1]["task_id"]) == {"sokoban-v3/train/7", "sokoban-v3/train/8"}


def test_a_label_of_its_own_is_kept_and_else_it_is_the_anchor():
    labelled, bare = make_member("HintedSokoban-v0", {}), make_member("Countdown-v0", {})
    for env, own in ((labelled, True), (bare, False)):
        infos = [env.reset(options={"task": 0})[1], env.step(INVALID)[4]]
        assert [(info["label"] != info["anchor"]) for info in infos] == [own, own]
    assert labelled.reset(options={"task": 0})[1]["label"] == labelled.unwrapped.reset(options={"task": 0})[1]["label"]


def test_a_success_on_the_last_step_of_a_time_limit_is_not_cut():
    env = make_member("HintedSokoban-v0", {})
    limited = ForeignEnv(gymnasium.wrappers.TimeLimit(env.env, max_episode_steps=1), "HintedSokoban-v0")
    observation, info = limited.reset(options={"task": 0})  # one move from its solution
    move = limited.expert(np.random.default_rng(0))(observation, info)
    _, _, terminated, truncated, info = limited.step(move)
    assert (terminated, truncated, info["success"]) == (True, False, True)


def test_wrapping_changes_no_result():
    with (
        closing(GroupVectorEnv("HintedSokoban-v0", 2, 3)) as wrapped,
        closing(GroupVectorEnv("CRBC-Sokoban-v0", 2, 3, observation="text")) as plain,
    ):
        one_episode(wrapped, 3), one_episode(plain, 3)
        assert wrapped.groups() == plain.groups()


def test_a_spec_makes_a_group_with_its_wrappers_and_arguments():
    env = foreign_envs.Hints(gymnasium.make("CRBC-Sokoban-v0", observation="text", max_steps=4), "mine")
    with closing(GroupVectorEnv(env.spec, 1, 2, backend="process")) as envs:
        infos = one_episode(envs)
    assert len(infos) == 5
    assert set(infos[0]["hint"]) == {"mine 0"}


def test_the_wrappers_of_gymnasium_alone_are_removed_and_their_limit_is_kept():
    member = make_member("CRBC-Sokoban-v0", {"max_episode_steps": 4})
    assert type(member) is SokobanEnv and member.max_steps == 4
    assert make_member("CRBC-Sokoban-v0", {"max_episode_steps": 4, "max_steps": 3}).max_steps == 3
    twice = gymnasium.wrappers.TimeLimit(gymnasium.make("CRBC-Sokoban-v0", max_episode_steps=5), 7).spec
    assert make_member(twice, {}).max_steps <= 7
    kept = make_member("HintsAddedSokoban-v0", {})
    assert isinstance(kept, ForeignEnv) and kept.batch(4) is None
    assert GroupVectorEnv("HintsAddedSokoban-v0", 1, 1).members.envs[0].spec.max_episode_steps == 9


def test_a_limit_is_known_where_a_wrapper_or_the_environment_names_it():
    assert make_member("Countdown-v0", {}).max_steps is None
    countdown = gymnasium.make("Countdown-v0", max_episode_steps=7)
    assert ForeignEnv(countdown, "Countdown-v0").max_steps == 7
    assert make_member("HintedSokoban-v0", {"max_episode_steps": 4}).max_steps == 4  # its own is longer
    with closing(GroupVectorEnv("Countdown-v0", 2, 2)) as envs:
        assert envs.max_steps is None


def test_a_task_is_a_seed_where_there_is_no_panel():
    with closing(GroupVectorEnv("Countdown-v0", 2, 2)) as envs:
        _, info = envs.reset(options={"task": [5, 6]})
        alone = [gymnasium.make("Countdown-v0").reset(seed=seed)[1]["task_id"] for seed in (5, 6)]
        assert info["task_id"].tolist() == np.repeat(alone, 2).tolist()
        assert len(envs.panel) == 2**31
        assert (envs.panel[5].content, envs.panel[5].kind, envs.panel.index(6)) == (5, "", 6)
        with pytest.raises(IndexError, match="task -1 is not in the train panel"):
            envs.reset(options={"task": -1})


def test_attributes_an_environment_lacks_have_defaults():
    with closing(GroupVectorEnv("Countdown-v0", 1, 2)) as envs:
        assert (envs.domain, dict(envs.templates), envs.stochastic, envs.placeholder) == ("Countdown", {}, False, "")
        assert envs.render_mode is None
    with closing(GroupVectorEnv("CRBC-WebShop-v0", 1, 1)) as envs:
        assert envs.placeholder == "<your query>"


def test_the_anchor_is_the_label_where_there_is_none():
    with closing(GroupVectorEnv("Countdown-v0", 1, 4)) as envs:
        one_episode(envs)
        (group,), (counts,) = envs.groups(), envs.transition_counts()
    assert all(step.label == step.anchor for rollout in group.rollouts for step in rollout.steps)
    assert counts == TransitionCounts.from_rollouts(group.rollouts)


def test_scores_stay_fractions_where_some_are_integers():
    with closing(GroupVectorEnv("Countdown-v0", 1, 2)) as envs:
        envs.reset(options={"task": 5})
        envs.step(["one", "half"])
        envs.step(["half", None])
        assert [rollout.score for rollout in envs.groups()[0].rollouts] == [0.5, 0.5]


KEYS = dict.fromkeys(["anchor", "admissible_actions", "task", "task_id", "step"], "at reset")
KEYS |= dict.fromkeys(["action", "valid", "success", "score"], "after a step")


@pytest.mark.parametrize(("key", "when"), KEYS.items())
def test_a_key_that_is_missing_is_named(key, when):
    with pytest.raises(TypeError, match=f"Countdown-v0: info has no '{key}' {when}; .*AnchorEnv or .*AnchorWrapper"):
        GroupVectorEnv("Countdown-v0", missing=key)


def test_actions_that_are_not_text_are_refused():
    with pytest.raises(TypeError, match=r"NumberedSokoban-v0: its actions are not text but Discrete\(4\)"):
        GroupVectorEnv("NumberedSokoban-v0")


def test_a_wrapper_without_a_record_is_said_to_be_skipped():
    env = foreign_envs.Unrecorded(gymnasium.make("Countdown-v0"))
    report = crbc_envs.check_anchor_env(env, episodes=4, fuzz=0)
    for part in ("a fresh instance", "a group", "rendering", "other processes"):
        assert "the wrapper Unrecorded does not record its arguments" in report.skipped[part]


MODULE = """
import foreign_envs
class LateEnv(foreign_envs.CountdownEnv):
    pass
"""


def test_workers_find_modules_in_folders_added_at_run_time(tmp_path, monkeypatch):
    with closing(GroupVectorEnv("Countdown-v0", backend="process")):
        pass  # the server that workers are forked from has started
    (tmp_path / "late_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    gymnasium.register("Late-v0", entry_point="late_module:LateEnv")
    try:
        with closing(GroupVectorEnv("Late-v0", backend="process")) as envs:
            assert one_episode(envs)
            assert envs.restarts == 0
    finally:
        del gymnasium.registry["Late-v0"]


def test_random_play_and_the_expert_demonstrate_in_them():
    env, outcomes = make_member("HintedSokoban-v0", {}), []
    won = random_successes(env, np.random.default_rng(0), 60, outcomes.append)
    assert len(outcomes) == 60 and len(won) == sum(outcomes) > 0
    _, info, reply = next(expert_steps(env, np.random.default_rng(0)))
    assert info["step"] == 0 and reply.startswith("<think>")
    assert next(expert_steps(make_member("Countdown-v0", {}), np.random.default_rng(0)), None) is None


@pytest.mark.parametrize("reply", ["one", " One", "<think>t</think><action>one</action>", "<think>t</think>one"])
def test_a_reply_is_read_for_an_environment_that_reads_none(reply):
    env = make_member("Countdown-v0", {})
    env.reset(options={"task": 0})
    assert env.accepts(reply) and not env.accepts("<action></action>")
    assert env.step(reply)[4]["action"] == "one"
    assert env.step("<think>t</think><action>three</action>")[4]["valid"] is False
    assert random_successes(env, np.random.default_rng(0), 60)


@pytest.mark.parametrize(
    ("reply", "got"),
    [
        ("<think>t</think><action>Say  Hello</action>", "say hello"),
        ("Say  Hello", "Say  Hello"),
        ("<think>", "<think>"),
    ],
)
def test_free_text_comes_without_its_tags_and_all_else_as_it_is(reply, got):
    env = make_member("NumpyCountdown-v0", {})
    env.reset(options={"task": 0})
    env.step(reply)
    assert env.unwrapped.got == got


def test_an_action_as_it_is_listed_is_no_line_of_a_transcript():
    env = make_member("NumpyCountdown-v0", {})
    env._admissible = ("<", ">", ">>", "east")
    assert [env._asked(reply) for reply in (">>", "<", "> east", "<action>>></action>")] == [">>", "<", "east", ">>"]


def test_flags_and_numbers_of_numpy_are_those_of_python():
    with closing(GroupVectorEnv("NumpyCountdown-v0", 1, 2)) as envs:
        info = one_episode(envs)[-1]
        assert (info["success"].dtype, info["step"].dtype, info["score"].dtype) == (bool, int, float)
        assert envs.groups()
    crbc_envs.check_anchor_env(gymnasium.make("NumpyCountdown-v0"), episodes=4, fuzz=20, split_tasks=0)


def test_a_success_that_ends_nothing_is_told_at_its_step():
    with pytest.raises(
        TypeError, match="NumpyCountdown-v0, step 1: a success does not terminate the episode, as it must"
    ):
        GroupVectorEnv("NumpyCountdown-v0", 1, 2, early=True)


def test_an_argument_of_the_environment_may_have_the_name_of_one_of_the_group():
    with closing(GroupVectorEnv("NumpyCountdown-v0", 1, 2, timeout=7, env_kwargs={"timeout": 5})) as envs:
        assert [env.unwrapped.timeout for env in envs.members.envs] == [5, 5]


def test_members_may_be_named_by_an_array():
    with closing(GroupVectorEnv("CRBC-FrozenLake-v0", 1, 4)) as envs:
        envs.reset(seed=0)
        outcome = envs.step_members(np.flatnonzero(envs.active)[:2], ["up", "up"])
        assert len(outcome.rewards) == 2 and envs.active.any()
        envs.step_members(np.flatnonzero(envs.active), ["left"] * int(envs.active.sum()))


def test_what_has_no_picture_shows_none_and_loses_no_worker():
    for backend in ("sync", "process"):
        with closing(GroupVectorEnv("CRBC-FrozenLake-v0", 1, 2, backend=backend)) as envs:
            envs.reset(seed=0)
            assert envs.render() == (None, None) and envs.restarts == 0


def test_the_smaller_of_two_limits_counts_in_make_vec():
    for limits, least in (({"max_steps": 5, "max_episode_steps": 8}, 5), ({"max_episode_steps": 3}, 3)):
        with closing(gymnasium.make_vec("CRBC-Sokoban-v0", num_envs=2, **limits)) as envs:
            assert envs.max_steps == least
    with closing(gymnasium.make_vec("CRBC-Sokoban-v0", num_envs=2, max_episode_steps=100)) as envs:
        assert envs.max_steps == 15


def test_workers_have_the_variables_of_now(monkeypatch):
    with closing(GroupVectorEnv("Countdown-v0", backend="process")):
        pass  # the server that workers are forked from has started
    monkeypatch.setenv("A_VARIABLE_OF_NOW", "set")
    with closing(GroupVectorEnv("Variables-v0", backend="process")) as envs:
        assert envs.reset(seed=0)[1]["variable"].tolist() == ["set"] * 8


def test_an_entry_point_without_a_name_of_its_own_is_told():
    gymnasium.register("Partial-v0", entry_point=functools.partial(foreign_envs.NumpyCountdown, timeout=3))
    try:
        assert GroupVectorEnv("Partial-v0", 1, 1).members.envs[0].unwrapped.timeout == 3
        with pytest.raises(ValueError, match="a worker cannot make Partial-v0: .* cannot be imported by name"):
            GroupVectorEnv("Partial-v0", 1, 1, backend="process")
    finally:
        del gymnasium.registry["Partial-v0"]
