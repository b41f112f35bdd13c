"""What holds for every environment the suite registers, whichever they are."""

from __future__ import annotations

import os
import pickle
import re
import threading
import warnings
from contextlib import closing
from copy import deepcopy
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from effort import effort
from gymnasium.utils.env_checker import check_env
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory
from paths import ROOT

import crbc_envs
from anchors import INVALID
from crbc_envs import DiscreteActions, GroupVectorEnv
from crbc_envs.alfworld.engine.textworld import TextWorldGame
from crbc_envs.checking.fuzz import MALFORMED, fuzzed_reply
from crbc_envs.spaces import UnicodeText
from crbc_envs.webshop.site.browser import missing
from crbc_envs.webshop.site.env import WebShopSiteEnv

IDS = sorted(env_id for env_id in gymnasium.registry if env_id.startswith("CRBC-"))

ACTIONS = {"CRBC-ALFWorld-v0": 128, "CRBC-Sokoban-v0": 4}
"""The most actions that are admissible at once, as far as a test plays; 64 unless named here."""

BROWSER = ("CRBC-WebShopSite-v0",)
"""Ids that run a browser: two seconds for every instance and a tenth of one for every step. They are left out
where a hundred thousand steps or a hundred members are played (as their text twins play them, to which
`test_webshop_browser.py` holds them), are checked with fewer walks, and only by scripts/full.sh."""

WITHOUT_BROWSER = [env_id for env_id in IDS if env_id not in BROWSER]

TABLE = (ROOT / "docs/environments.md").read_text(encoding="utf-8").partition("## What `info` holds")[2]
ROWS = re.findall(r"^\| `(\w+)` \| (.*?) \| `(\w+)` \| (\w+)", TABLE, re.M)
"""Each key of `info` in the docs: what it is, its type alone, and its dtype in a group."""

WITH_BROWSER = [pytest.mark.full, pytest.mark.skipif(bool(missing()), reason=f"no browser: {missing()}")]
EVERY_ID = [pytest.param(env_id, marks=WITH_BROWSER if env_id in BROWSER else []) for env_id in IDS]

RESETS = {"CRBC-BabyAI-v0": 1_000, "CRBC-FrozenLake-v0": 2_000, "CRBC-WebShop-v0": 10_000}
"""How often an id is reset to see whether it leaks; 20,000 times unless named here, where half the memory is a leak. By
scripts/full.sh five times as often."""

FREE_TEXT = {"CRBC-WebShop-v0": "search["}
"""How actions begin that are admissible whatever they go on with."""


def discrete(env_id):
    env = gymnasium.make(env_id)
    queries = ["a gift"] if env.unwrapped.placeholder else None
    return DiscreteActions(env, num_actions=ACTIONS.get(env_id, 64), length=8192, queries=queries)


def test_the_suite_registers_something():
    assert "CRBC-Sokoban-v0" in IDS


@pytest.mark.parametrize("env_id", EVERY_ID)
def test_gymnasiums_checker_is_content(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(env_id).unwrapped)


@pytest.mark.parametrize("env_id", EVERY_ID)
def test_stable_baselines_checker_is_content(env_id):
    # It knows no text; this is the view that its agents would train on.
    from stable_baselines3.common.env_checker import check_env as check_sb3_env

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        check_sb3_env(discrete(env_id), warn=True)


@pytest.mark.usefixtures("one_hash_seed")
@pytest.mark.parametrize("env_id", EVERY_ID)
@pytest.mark.slow
def test_our_checker_is_content(env_id):
    size = (
        {"fuzz": 50, "tasks": 2, "episodes": 2, "split_tasks": 2}
        if env_id in BROWSER
        else {"fuzz": 200, "tasks": 2, "episodes": 6, "split_tasks": 3}
    )
    with closing(gymnasium.make(env_id)) as env:
        report = crbc_envs.check_anchor_env(env, **size)
    assert report.fuzzed == size["fuzz"]
    assert not report.skipped


@pytest.mark.parametrize("env_id", EVERY_ID)
def test_a_number_is_the_admissible_action_of_that_place(env_id):
    by_number, by_text = discrete(env_id), gymnasium.make(env_id)
    by_number.reset(seed=3)
    _, info = by_text.reset(seed=3)
    rng = np.random.default_rng(0)
    over = False
    while not over:
        mask = by_number.action_masks()
        assert mask.sum() == len(info["admissible_actions"])
        number = int(rng.integers(mask.sum() + 1))
        text = info["admissible_actions"][number] if number < mask.sum() else INVALID
        text = text.replace("<your query>", "a gift")
        seen, reward, terminated, truncated, told = by_number.step(number)
        _, *rest, info = by_text.step(text)
        assert seen in by_number.observation_space
        assert (reward, terminated, truncated, told) == (*rest, info)
        over = terminated or truncated


def played(env, info, seed, most=12):
    """What random play shows from here on."""
    rng, shown, over = np.random.default_rng(seed), [], False
    while not over and len(shown) < most:
        reply = str(rng.choice(info["admissible_actions"])).replace("<your query>", "a gift")
        seen, reward, terminated, truncated, info = env.step(reply)
        over = terminated or truncated
        shown.append((seen.tolist() if isinstance(seen, np.ndarray) else seen, reward, over, info))
    return shown


PICKLED = [(env_id, {}) for env_id in WITHOUT_BROWSER] + [
    ("CRBC-FrozenLake-v0", {"slippery": True}),
    ("CRBC-Sokoban-v0", {"engine": "gym"}),
]


@pytest.mark.parametrize(("env_id", "options"), PICKLED, ids=str)
def test_a_pickle_goes_on_as_the_environment_does(env_id, options):
    env = gymnasium.make(env_id, **options)
    _, info = env.reset(seed=3)
    *_, info = env.step(info["admissible_actions"][0])
    other = pickle.loads(pickle.dumps(env))  # noqa: S301
    again = pickle.loads(pickle.dumps(other))  # noqa: S301
    assert played(env, info, 1) == played(other, info, 1) == played(again, info, 1)
    after = other.reset(seed=5)[1]
    assert env.reset(seed=5)[1] == after and played(env, after, 2) == played(other, after, 2)


def test_what_runs_an_engine_or_a_browser_says_why_it_is_no_pickle():
    for kind in (WebShopSiteEnv, TextWorldGame):
        with pytest.raises(TypeError, match="so it cannot be pickled; .* can"):
            pickle.dumps(kind.__new__(kind))


@pytest.mark.parametrize("env_id", WITHOUT_BROWSER)
def test_gymnasiums_own_worker_processes_show_what_it_shows_in_one_process(env_id):
    def shown(mode):
        with closing(gymnasium.make_vec(env_id, num_envs=2, vectorization_mode=mode)) as envs:
            observations, infos = envs.reset(seed=3)
            told = [observations]
            for step in range(6):
                actions = [listed[step % len(listed)] for listed in infos["admissible_actions"]]
                observations, rewards, *flags, infos = envs.step(actions)
                told.append((observations, rewards, *flags, list(infos["anchor"])))
            return told

    np.testing.assert_equal(shown("async"), shown("sync"))


def test_texts_of_any_length_share_memory():
    space = UnicodeText(max_length=5)
    memory = create_shared_memory(space, n=3)
    texts = read_from_shared_memory(space, memory, n=3)
    assert list(texts) == ["", "", ""]
    for index, text in ((0, "\U0001f600" * 5), (2, "\ud800a"), (1, "abc"), (1, "é")):
        write_to_shared_memory(space, index, text, memory)
    kept = deepcopy(texts)
    assert kept == ("\U0001f600" * 5, "é", "\ud800a") and kept in gymnasium.spaces.Tuple([space] * 3)
    write_to_shared_memory(space, 0, "", memory)
    assert (texts[0], kept[0], len(texts)) == ("", "\U0001f600" * 5, 3)


@pytest.mark.full
@pytest.mark.parametrize("env_id", WITHOUT_BROWSER)
def test_a_hundred_thousand_fuzzed_replies_break_nothing(env_id):
    env = gymnasium.make(env_id, disable_env_checker=True).unwrapped
    rng = np.random.default_rng(0)
    over, valid = True, 0
    for i in range(100_000):
        if over:
            _, info = env.reset(seed=i)
        before = info
        reply = MALFORMED[i % len(MALFORMED)] if i % 20 == 0 else fuzzed_reply(rng, before["admissible_actions"])
        _, _, terminated, truncated, info = env.step(reply)
        over = terminated or truncated
        valid += info["valid"]
        if info["valid"]:
            free = info["action"].startswith(FREE_TEXT.get(env_id, ()))
            assert free or info["action"] in before["admissible_actions"]
            continue
        assert info["action"] == INVALID
        assert not info["success"]
        for unchanged in ("anchor", "label", "admissible_actions", "task_id"):
            assert info[unchanged] == before[unchanged], (i, reply[:200])
    assert valid > 1_000  # the fuzz reaches beyond the parser


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory and descriptors from /proc")
@pytest.mark.parametrize("env_id", WITHOUT_BROWSER)
def test_resets_leak_nothing(env_id):
    resets = RESETS.get(env_id, 20_000) * effort(1, full=5)
    with closing(GroupVectorEnv(env_id, num_groups=4, group_size=25)) as envs:
        rng = np.random.default_rng(0)
        tasks = min(200, len(envs.panel))  # the panel's own cache of tasks is no leak, and is full by then

        def play(count):
            for i in range(count // envs.num_envs):
                _, info = envs.reset(seed=i, options={"task": rng.integers(tasks, size=4).tolist()})
                envs.step([actions[0] for actions in info["admissible_actions"]])

        play(resets // 5)
        before = resident_bytes(), open_descriptors(), threading.active_count()
        play(resets)
        after = resident_bytes(), open_descriptors(), threading.active_count()
    # Fewer are no leak: what an earlier test left behind may be collected meanwhile.
    assert after[1] <= before[1] and after[2] <= before[2]
    assert after[0] - before[0] < (2.5e6 if env_id in RESETS else 5e6)


@pytest.mark.parametrize("env_id", WITHOUT_BROWSER)
def test_info_has_what_the_docs_say(env_id: str) -> None:
    own = {"ALFWorld": "CRBC-ALFWorld-v0", "WebShop": "CRBC-WebShop-v0"}
    here = [row for row in ROWS if own.get(row[1].partition(":")[0], env_id) == env_id]
    begin = {name for name, what, *_ in here if not what.startswith("after a step")}
    with closing(gymnasium.make(env_id)) as env:
        _, first = env.reset(seed=0)
        action = first["admissible_actions"][0]
        *_, after = env.step(action)
    assert (set(first), set(after)) == (begin, {name for name, *_ in here})
    assert {name: type(after[name]).__name__ for name in after} == {name: kind for name, _, kind, _ in here}
    with closing(GroupVectorEnv(env_id, num_groups=2, group_size=2)) as envs:
        observations, first = envs.reset(seed=0)
        _, reward, terminated, truncated, after = envs.step([some[0] for some in first["admissible_actions"]])
    assert set(first) == begin | {f"_{name}" for name in begin}
    for name, _, _, dtype in here:
        assert (after[name].shape, str(after[name].dtype)) == ((4,), dtype), name
        assert (after[f"_{name}"].shape, after[f"_{name}"].dtype) == ((4,), bool), name
    assert set(after) == {prefix + name for name, *_ in here for prefix in ("", "_")} and len(observations) == 4
    assert (reward.shape, reward.dtype) == ((4,), np.float64)
    assert terminated.shape == truncated.shape == (4,) and terminated.dtype == truncated.dtype == bool
