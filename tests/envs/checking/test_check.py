"""check_anchor_env: sound environments pass with sane figures, broken ones fail the check they should."""

from __future__ import annotations

import re

import gymnasium
import lake_env  # registers Lake-v0
import numpy as np
import pytest
import toy_env  # registers Corridor-v0
from paths import ROOT, SUPPORT

import crbc_envs
from anchors import INVALID, anchor_key
from crbc_envs.actions import requested_action
from crbc_envs.checking.check import AnchorEnvError
from crbc_envs.checking.fuzz import MALFORMED, MEGABYTE, fuzzed_reply
from crbc_envs.checking.probe import plain
from crbc_envs.demonstrations import expert_steps, random_successes
from crbc_envs.vector.members import make_member

PAGE = ROOT / "docs" / "your_own_environment.md"
LONG = pytest.mark.full

# Which check finds which breakage, and what it says about it.
BREAKAGES = {
    "ResetReturnsTheObservationAlone": ("gymnasium", "was not a tuple"),
    "NoAnchorInInfo": ("contract", "info has no 'anchor'"),
    "AnchorIsTheLabel": ("contract", "an anchor is 32 hex digits"),
    "AnchorInCapitals": ("contract", "an anchor is 32 hex digits"),
    "StepCountsByTwo": ("contract", r"info\['step'\] is 2 after 1 steps"),
    "ScoreAboveOne": ("gymnasium", r"the score is 10.0 \(float\); return a number from 0 to 1"),
    "NothingIsAdmissible": ("contract", "no action is admissible"),
    "AdmissibleButNeverRead": ("contract", "an admissible action was refused, after the reply 'take key now"),
    "PromptRaises": ("prompt 'odd'", "AttributeError: 'View' object has no attribute 'nothing'"),
    "PromptIsEmpty": ("prompt 'odd'", "it is '', and no text"),
    "OneTaskInTwoSplits": ("splits", "27 of 27 validation tasks are tasks of the train split too"),
    "NeverEnds": ("contract", "has not ended in 500 steps"),
    "AnchorIsDrawnWhenAsked": ("stability", "asked for again"),
    "RenderingMoves": ("stability", "while rendering ansi"),
    "AnchorFromAnAddress": ("determinism", r"info\['anchor'\] is .* from a fresh instance"),
    "RewardOfNoSeed": ("determinism", r"reward is .* when played again"),
    "MemoryOfEarlierEpisodes": ("determinism", r"observation is .* when played again"),
    "AnchorCountsSteps": ("identity", "the label .* has two anchors"),
    "AnchorForgetsTheKey": ("identity", "the anchor .* stands for two labels, 'cell"),
    "OneListForAllSteps": ("sharing", "data of step 0 is handed out again"),
    "ViewsOfOneBuffer": ("sharing", r"info\['features'\] is .* once later steps were taken"),
    "PlaysWhatItHandsOut": ("sharing", "once the data of earlier steps are overwritten"),
    "InvalidMoves": ("invalid", r"an invalid reply, this one or an earlier, made info\['anchor'\]"),
    "InvalidHasAnEffectLater": ("invalid", r"an invalid reply, this one or an earlier, made info\['anchor'\]"),
    "InvalidIsFree": ("invalid", r"info\['step'\] is 0 after 1 steps"),
    "InvalidIsNotCounted": ("invalid", "has not ended in 500 steps"),
    "InvalidHasItsOwnName": ("invalid", "valid is False, action '<invalid: >'"),
    "InvalidIsWaiting": ("invalid", "a malformed reply is the action '<invalid>', not 'wait'"),
    "InvalidEnds": ("invalid", "a malformed reply has ended the episode"),
    "InvalidRaises": ("invalid", "KeyError: 'no such action', after the reply"),
    "SurrogatesRaise": ("fuzz", "UnicodeEncodeError"),
    "MembersShareTheirState": ("group", "member 0 is at anchor .*; alone it would be at"),
    "MembersStartApart": ("group", "not identical at reset: member 1 has anchor"),
    "TasksByHash": ("processes", "in a process with PYTHONHASHSEED="),
    "StartsBySeed": ("determinism", "after a reset with another seed"),
    "ShowsMoreThanItDeclares": ("contract", "the observation is not in the observation_space"),
    "OneIdForAllTasks": ("splits", "its task_id 'corridor' is that of another task"),
    "OneTaskCannotBePlayed": ("splits", "test task 20, step 0: KeyError: 'the file is damaged'"),
    "OneTaskIsOutOfBounds": ("splits", "test task 20, step 0: ValueError: the file is damaged"),
    "OneTaskNeverEnds": ("splits", "train task 2, .* has not ended in 500 steps"),
    "OneTaskIsStuck": ("splits", "train task 2, step 1: no action is admissible"),
    "ExpertRaises": ("expert", "KeyError: 'no such plan'"),
    "MuchInEverySplit": ("splits", "32 of 32 validation tasks are tasks of the train split too"),
    "OnlyHere": ("processes", "another process could not play it: .*KeyError: 'pytest'"),
}

for name in BREAKAGES:
    gymnasium.register(f"Broken{name}-v0", entry_point=f"broken_envs:{name}")


def make(env_id="Corridor-v0", **options):
    return gymnasium.make(env_id, **options)


class Foreign(gymnasium.Env):
    """No AnchorEnv, no panel and no label: an environment that only keeps to the contract."""

    def __init__(self):
        self.inner = toy_env.CorridorEnv()
        self.action_space, self.observation_space = self.inner.action_space, self.inner.observation_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        obs, info = self.inner.reset(options={"task": int(self.np_random.integers(8))})
        return obs, self._bare(info)

    def step(self, action):
        *rest, info = self.inner.step(action)
        return *rest, self._bare(info)

    def _bare(self, info):
        return {key: value for key, value in info.items() if key not in ("label", "data")}


# ---- sound environments -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"observation": "text", "replies": "tags"}], ids=["rgb", "text"])
def test_sokoban_passes_with_sane_figures(options, one_hash_seed):
    report = crbc_envs.check_anchor_env(make("CRBC-Sokoban-v0", **options), fuzz=300, split_tasks=2)
    assert (report.environment, report.tasks, report.episodes) == ("CRBC-Sokoban-v0", 4, 32)
    assert report.skipped == {}
    assert report.steps == pytest.approx(report.mean_length * 32)
    assert 5 < report.mean_length <= 15
    assert 0 < report.success_rate < 0.5
    assert 20 < report.anchors < report.steps
    assert 0.2 < report.shared < 1
    assert (report.aliasing, report.label_collisions) == (0, 0)
    assert 0.9 < report.invalid < 1


def test_the_toy_passes_and_the_same_seed_gives_the_same_report(one_hash_seed):
    report = crbc_envs.check_anchor_env(make(), seed=3, fuzz=50)
    assert report == crbc_envs.check_anchor_env(make(), seed=3, fuzz=50)
    assert report != crbc_envs.check_anchor_env(make(), seed=4, fuzz=50)
    assert report.skipped == {}
    assert 0 < report.success_rate < 1
    assert [len(group) for group in report.groups] == [8] * 4 and report.groups[0].rollouts[0].steps[0].label


@pytest.mark.filterwarnings("ignore:.*spec")
def test_aliasing_and_label_collisions_are_counted():
    class Vague(toy_env.CorridorEnv):
        """Observations also tell the time, and anchors the task."""

        def _observation(self):
            return f"{super()._observation()} {self._steps}"

        def _anchor(self):
            return anchor_key(f"{self._task.id} {self._label()}")

    report = crbc_envs.check_anchor_env(Vague(), tasks=8, episodes=64, fuzz=0)
    assert report.aliasing > 0.5
    assert report.label_collisions > 0  # the agent holds the key in every corridor
    with pytest.warns(UserWarning, match="spec"):
        plainly = crbc_envs.check_anchor_env(toy_env.CorridorEnv(), tasks=8, episodes=64, fuzz=0)
    assert (plainly.aliasing, plainly.label_collisions) == (0, 0)
    assert plainly.anchors == report.anchors


class Echo(toy_env.CorridorEnv):
    """The anchor holds the answer to an invalid reply, until a valid one; with `lasting`, for ever."""

    echoes = True
    lasting = False

    def _begin(self, task):
        super()._begin(task)
        self.answer = ""

    def _execute(self, action):
        self.answer = "What?" if action == INVALID else self.answer if self.lasting else ""
        return super()._execute(action)

    def _label(self):
        return f"{self.answer}{super()._label()}"


@pytest.mark.filterwarnings("ignore:.*spec")
def test_an_anchor_may_echo_an_invalid_reply_if_it_says_so_and_forgets_it():
    assert crbc_envs.check_anchor_env(Echo(), fuzz=100).invalid > 0
    for change in ({"echoes": False}, {"lasting": True}):
        with pytest.raises(AnchorEnvError, match=r"an invalid reply, this one or an earlier, made info\['anchor'\]"):
            crbc_envs.check_anchor_env(type("Changed", (Echo,), change)(), fuzz=100)


@pytest.mark.filterwarnings("ignore:.*spec")
def test_rows_of_one_array_are_not_shared():
    class Rows(toy_env.CorridorEnv):
        """An array for each episode, and a row of it for each step."""

        def _begin(self, task):
            super()._begin(task)
            self.rows = iter(np.zeros((self.max_steps + 1, 2)))

        def _info(self):
            return super()._info() | {"features": next(self.rows)}

    assert crbc_envs.check_anchor_env(Rows(), episodes=4, fuzz=0).episodes == 4


# ---- what is skipped is said ------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*spec")
def test_without_a_spec_the_report_says_what_was_skipped():
    report = crbc_envs.check_anchor_env(toy_env.CorridorEnv(), fuzz=10)
    assert set(report.skipped) == {"rendering", "a fresh instance", "a group", "other processes"}
    assert "  skipped         other processes: the environment has no spec; make it by a registered id" in str(report)
    assert "passed, as far as it could be checked" in str(report)


@pytest.mark.filterwarnings("ignore:.*spec")
def test_a_foreign_environment_is_checked_by_its_info_alone():
    report = crbc_envs.check_anchor_env(Foreign(), fuzz=50)
    assert report.skipped["anchors asked for again"].startswith("the environment is not an AnchorEnv")
    assert (report.tasks, report.episodes, report.aliasing) == (4, 32, 0)


@pytest.mark.parametrize("where", ["__main__", "elsewhere"])
def test_a_class_another_process_cannot_import_is_said_to_be_skipped(where):
    class Local(toy_env.CorridorEnv):
        pass

    if where == "__main__":
        Local.__module__, Local.__qualname__ = "__main__", "Local"
    gymnasium.register("Local-v0", entry_point=Local)
    try:
        report = crbc_envs.check_anchor_env(make("Local-v0"), episodes=4, fuzz=0)
    finally:
        del gymnasium.registry["Local-v0"]
    assert list(report.skipped) == ["other processes"]
    assert "cannot be imported elsewhere" in report.skipped["other processes"]


# ---- broken environments ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_broken_environment_fails_the_check_it_should(name, monkeypatch):
    for module in ("probe", "splits"):
        monkeypatch.setattr(f"crbc_envs.checking.{module}.MAX_STEPS", 500)
    check, message = BREAKAGES[name]
    with pytest.raises(AnchorEnvError, match=f"(?s){message}") as caught:
        crbc_envs.check_anchor_env(make(f"Broken{name}-v0"))
    assert caught.value.check == check
    assert str(caught.value).startswith(f"check {check!r}")
    if check not in ("gymnasium", "splits", "expert") and name != "OnlyHere":
        assert re.fullmatch(r"task \d+", caught.value.task)
        assert caught.value.step is not None
    assert isinstance(caught.value, AssertionError)
    assert len(str(caught.value)) < 3_000


def test_a_time_limit_of_the_registration_is_kept(one_hash_seed):
    gymnasium.register("Limited-v0", entry_point="toy_env:CorridorEnv", max_episode_steps=7)
    try:
        report = crbc_envs.check_anchor_env(make("Limited-v0"), episodes=8, fuzz=50, split_tasks=1)
    finally:
        del gymnasium.registry["Limited-v0"]
    assert report.mean_length <= 7
    assert report.skipped == {}


@pytest.mark.parametrize("episodes_over", ["success", "cut"])
def test_figures_are_those_of_the_walks(episodes_over, one_hash_seed):
    """With one step to an episode every figure is known."""
    steps = {"success": 1_000, "cut": 2}[episodes_over]
    report = crbc_envs.check_anchor_env(make(max_steps=steps), tasks=2, episodes=6, fuzz=0, split_tasks=0)
    assert (report.tasks, report.episodes) == (2, 6)
    if episodes_over == "cut":
        assert (report.steps, report.mean_length, report.success_rate) == (12, 2.0, 0.0)
    else:
        assert report.success_rate == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": 0}, "tasks must be at least 1, got 0"),
        ({"episodes": 3}, "episodes must be at least 4, got 3"),
        ({"fuzz": -1}, "fuzz must be at least 0, got -1"),
    ],
)
def test_numbers_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        crbc_envs.check_anchor_env(toy_env.CorridorEnv(), **options)


@pytest.mark.parametrize("what", [None, "Corridor-v0", toy_env.CorridorEnv, gymnasium.vector.VectorEnv()])
def test_only_one_environment_can_be_checked(what):
    with pytest.raises(TypeError, match="takes a gymnasium.Env, got"):
        crbc_envs.check_anchor_env(what)


@pytest.mark.filterwarnings("ignore:.*spec")
def test_the_panel_may_be_smaller_than_the_number_of_tasks():
    assert crbc_envs.check_anchor_env(toy_env.CorridorEnv(), tasks=28, episodes=28, fuzz=0).tasks == 27


def test_a_group_whose_counts_are_not_its_rollouts_fails(monkeypatch):
    def twice(envs, counts_of=crbc_envs.GroupVectorEnv.transition_counts):
        return [counts + counts for counts in counts_of(envs)]

    monkeypatch.setattr(crbc_envs.GroupVectorEnv, "transition_counts", twice)
    with pytest.raises(AnchorEnvError, match="check 'group', .* its counts are not those of its rollouts"):
        crbc_envs.check_anchor_env(make(), fuzz=0)


def test_a_group_that_does_not_end_fails(monkeypatch):
    monkeypatch.setattr(crbc_envs.checking.group, "MAX_STEPS", 3)
    with pytest.raises(AnchorEnvError, match="check 'group', .*, step 4: the group has not ended in 3 steps"):
        crbc_envs.check_anchor_env(make(), fuzz=0)


@pytest.mark.filterwarnings("ignore:.*spec")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda info: {"anchor": info["anchor"].encode()}, r"info\['anchor'\] is of type bytes"),
        (lambda info: {"task_id": 3}, r"info\['task_id'\] is of type int"),
        (lambda info: {"task": f"Hurry, it is step {info['step']}."}, r"info\['task'\] has changed"),
        (lambda info: {"task_id": f"task/{info['step'] // 2}"}, r"info\['task_id'\] has changed"),
        (lambda info: {"admissible_actions": "left"}, "one text, not a sequence"),
        (lambda info: {"admissible_actions": {"left"}}, r"info\['admissible_actions'\] is of type set"),
        (lambda info: {"admissible_actions": (1, 2)}, "an admissible action is text"),
        (lambda info: {"admissible_actions": ("left", "LEFT ")}, "two actions are one, apart from case and spacing"),
        (lambda info: {"valid": 1} if info["step"] else {}, r"info\['valid'\] is of type int"),
        (lambda info: {"valid": False} if info["step"] else {}, "valid is False, action '[a-z]+"),
        (lambda info: {"success": None} if info["step"] else {}, r"info\['success'\] is of type NoneType"),
        (lambda info: {"success": info["step"] == 2} if info["step"] else {}, "a success does not terminate"),
        (lambda info: {"score": -0.5} if info["step"] else {}, "the score -0.5 is not between 0 and 1"),
    ],
)
def test_info_is_held_to_the_contract(change, message):
    class Tampered(toy_env.CorridorEnv):
        def reset(self, **kwargs):
            obs, info = super().reset(**kwargs)
            return obs, info | change(info)

        def step(self, action):
            *rest, info = super().step(action)
            return *rest, info | change(info)

    with pytest.raises(AnchorEnvError, match=message) as caught:
        crbc_envs.check_anchor_env(Tampered())
    assert caught.value.check == "contract"


# ---- the tools --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", MALFORMED, ids=lambda reply: repr(reply[:30]))
def test_malformed_replies_ask_for_nothing(reply):
    assert requested_action(reply) in (None, INVALID)


def test_fuzzed_replies_are_of_every_kind_and_follow_the_generator():
    rngs = (np.random.default_rng(0), np.random.default_rng(0))
    one, other = ([fuzzed_reply(rng, ("left", "take key")) for _ in range(1_000)] for rng in rngs)
    assert one == other
    everything = "".join(reply for reply in one if len(reply) < MEGABYTE)
    for part in ("\x00", "\ud800", "<script>", "__import__", "DROP TABLE", "<action><action>", "TAKE KEY"):
        assert part in everything
    assert sum(len(reply) >= MEGABYTE for reply in one) in range(3, 25)
    wanted = [requested_action(reply) for reply in one]
    assert {"left", "take key"} <= set(wanted)
    assert None in wanted
    assert [fuzzed_reply(np.random.default_rng(1)) for _ in range(2)] == [fuzzed_reply(np.random.default_rng(1))] * 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x", "y", "z"}, {"z", "y", "x"}),
        (np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2).T.copy().T.reshape(2, 3)),
        (np.array(["a", None], dtype=object), np.array(["a", None], dtype=object)),
        (float("nan"), float("nan")),
        (object(), object()),
    ],
    ids=["dict", "set", "array", "objects", "nan", "unknown"],
)
def test_equal_data_are_equal_text(one, other):
    assert plain(one) == plain(other)


DIFFERENT = [((1, 2), [1, 2]), (1, True), (1, "1"), ({"a": 1}, {"a": 2}), (0.1 + 0.2, 0.3), ("\ud800", "\udfff")]
DIFFERENT += [(np.zeros(2), np.zeros(3)), (np.zeros(2, np.uint8), np.zeros(2, np.int8))]


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=repr)
def test_different_data_are_different_text(one, other):
    assert plain(one) != plain(other)


# ---- the page -----------------------------------------------------------------------------------------


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def saved():
    return {name: (SUPPORT / name).read_text(encoding="utf-8") for name in ("toy_env.py", "lake_env.py")}


def test_the_page_shows_its_environments_as_they_are():
    assert set(saved().values()) <= set(blocks("python"))


def test_the_page_has_the_figures_of_the_lake(one_hash_seed):
    report = crbc_envs.check_anchor_env(make("Lake-v0"), fuzz=0, split_tasks=0)
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"finds {report.anchors} anchors, {report.shared:.1%} of them met by two walks or more" in page
    assert f"random play succeeds in {report.success_rate:.1%} of its episodes" in page
    panel = lake_env.make().panel
    assert f"of the first hundred tasks, {len({panel[index].id for index in range(100)})} differ" in page


@pytest.mark.parametrize(
    ("env_id", "options", "episodes", "sentence"),
    [
        ("Corridor-v0", {}, 400, "{} of the 400 episodes of random play succeed"),
        pytest.param("Lake-v0", {"max_steps": 20}, 6_000, "6,000 episodes of random play ({} succeed)", marks=LONG),
    ],
)
def test_the_page_counts_the_successes_of_random_play(env_id, options, episodes, sentence):
    """As `crbc warmstart` plays, which looks for an expert first."""
    env, rng = make_member(env_id, {**options, "split": "train"}), np.random.default_rng([0, 1]).spawn(1)[0]
    assert next(expert_steps(env, rng), None) is None
    won = random_successes(env, rng, episodes)
    assert sentence.format(len(won)) in " ".join(PAGE.read_text(encoding="utf-8").split())


def test_the_code_on_the_page_prints_what_the_page_says(run_python):
    played = [block for block in blocks("python") if block not in saved().values()]
    code = f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\n" + "".join(played)
    assert run_python(code) == "".join(blocks("text")).strip()


def test_the_configs_of_the_page_are_valid_and_fit_its_environment(tmp_path, monkeypatch):
    from crbc_lab.commands.warmstart_config import load_warmstart_config
    from crbc_rl.config import load_config

    warm, train = blocks("yaml")
    (tmp_path / "toy_env.py").write_text((SUPPORT / "toy_env.py").read_text())
    (tmp_path / "warmstart.yaml").write_text(warm)
    (tmp_path / "train.yaml").write_text(train)
    first, second = load_warmstart_config(tmp_path / "warmstart.yaml"), load_config(tmp_path / "train.yaml")
    assert first.env == second.env and first.out == second.model
    panels = {split: len(toy_env.Corridors(split, 27)) for split in ("validation", "test")}
    assert (second.eval.episodes, second.eval.test_episodes) == tuple(panels.values())
