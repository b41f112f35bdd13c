"""Agents that learn in exact worlds: their rollouts, their exact success, and what the study makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import refusal

from crbc_envs.sokoban.panels import Level, SokobanPanel
from crbc_envs.sokoban.rules import MOVES
from crbc_lab import cli
from crbc_lab.statistics import smallest_difference
from crbc_lab.studies.estimators import Estimator
from crbc_lab.studies.learning import board, page, study, tables, whole
from crbc_lab.studies.learning.agents import EPOCHS, LOSS, Networks, Tables
from crbc_lab.studies.learning.processes import Processes, play
from crbc_lab.studies.learning.settings import SECONDS, SETTINGS, Draws
from crbc_lab.studies.learning.study import Grid
from crbc_lab.studies.learning.training import Budget, Credit, scaled, shuffled, train, truth
from crbc_lab.studies.mdp import evaluate, visits
from crbc_lab.studies.worlds import WORLDS
from crbc_lab.studies.worlds.behaviours import behaviour
from crbc_rl import credit
from crbc_rl.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("hub", "gamble", "search", "distractors", "slip", "alfworld-observation", "stop", "coloured")


@pytest.fixture(autouse=True, scope="module")
def few_rooms() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, count in (("TRAINED", 12), ("TESTED", 6), ("TAUGHT", 12)):
            patch.setattr(board, name, count)
        yield
    board.Rooms.of.cache_clear()
    board.taught.cache_clear()


def generators(*seeds: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in seeds]


def agents(name: str, *seeds: int, count: int = 2) -> Any:
    return SETTINGS[name].make(Draws(0, chosen_on=False, count=count), generators(*seeds))


def policy_of(runs: Any, run: int) -> Any:
    """The chance of each action in each state, (N, A)."""
    everywhere = np.arange(len(runs.processes))
    return runs.chances(np.full(len(everywhere), run), everywhere)


@pytest.mark.parametrize("name", ["lucky", "shop", "alfworld-observation"])
def test_success_and_advantages_are_those_of_each_process(name: str) -> None:
    each = [WORLDS[name].make(1, index) for index in range(3)]
    processes, rng = Processes.of(each), np.random.default_rng(0)
    policies = [behaviour(mdp, "soft0.3", rng) for mdp in each]
    policy = np.zeros((len(processes), processes.num_actions))
    first = 0
    for mdp, own in zip(each, policies, strict=True):
        policy[first : first + len(mdp), : mdp.num_actions] = own
        truths = evaluate(mdp, own)
        d = visits(mdp, own)
        step, state = (column.ravel() for column in np.indices(d.shape))
        for action in range(mdp.num_actions):
            there = mdp.admissible[state, action] & (d.ravel() > 0)
            found = processes.advantages(policy, first + state[there], np.full(there.sum(), action), step[there])
            # A truth's credit is the mean over the times and the states of an anchor.
            weight = d.ravel()[there]
            total = np.bincount(mdp.anchor[state[there]], weight * found, mdp.num_anchors)
            mass = np.bincount(mdp.anchor, d.sum(axis=0), mdp.num_anchors)
            np.testing.assert_allclose(total / np.where(mass > 0, mass, 1), truths.credit[:, action], atol=1e-12)
        first += len(mdp)
    exact = [evaluate(mdp, own).success for mdp, own in zip(each, policies, strict=True)]
    np.testing.assert_allclose(processes.success(policy), exact, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_rollouts_follow_the_policy_and_the_process(name: str) -> None:
    runs = agents(name, 1, 2)
    played = runs.play(300)
    processes = runs.processes
    for rollouts, exact in zip(played.rollouts, runs.success(), strict=True):
        assert (rollouts.group == np.repeat(np.arange(2), 300)).all()
        assert np.abs(rollouts.success.reshape(2, 300).mean(axis=1) - exact).max() < 4 * (0.25 / 300) ** 0.5
        assert (rollouts.length[rollouts.truncated] == processes.horizon).all()
    policy = np.stack([policy_of(runs, run) for run in range(2)])
    assert (policy[played.run, played.state, played.action] > 0).all()
    inner = np.flatnonzero(np.append(played.step[1:] == played.step[:-1] + 1, False))
    after = processes.successor[played.state[inner], played.action[inner]]
    likely = processes.probability[played.state[inner], played.action[inner]] > 0
    assert ((after == played.state[inner + 1][:, None]) & likely).any(axis=1).all()


def test_networks_are_asked_where_success_is_in_reach_alone() -> None:
    runs = agents("board-weak", 1)
    rooms = board.Rooms.of("test", board.BOXES, board.TESTED, board.HORIZON)
    with torch.no_grad():
        everywhere = runs._networks[0](rooms.features).softmax(dim=1).double().numpy()
    np.testing.assert_array_equal(runs.success()[0], rooms.processes.success(everywhere))
    assert 0 < len(runs._open) < len(rooms.processes)


@pytest.mark.parametrize("name", ["slip", "board-weak"])
def test_the_exact_advantage_asks_the_played_processes_alone(name: str) -> None:
    runs = agents(name, 1, 2)
    played = runs.play(2)
    found = truth(runs, played)
    for run in range(2):
        own = played.run == run
        columns = (column[own] for column in (played.state, played.action, played.step))
        np.testing.assert_array_equal(found[own], runs.processes.advantages(policy_of(runs, run), *columns))


def test_a_run_does_not_depend_on_those_beside_it() -> None:
    for name in ("slip", "board-weak"):
        many = train(agents(name, 3, 4, 5), Estimator("crbc", "crbc"), 0.003, Budget(updates=2, group_size=4))
        one = train(agents(name, 4), Estimator("crbc", "crbc"), 0.003, Budget(updates=2, group_size=4))
        np.testing.assert_array_equal(many[:, 1:2], one)


def test_a_table_climbs_the_learners_objective() -> None:
    """At the first step its gradient is sum A grad log pi over the steps of a group's mean rollout."""
    runs = agents("shop", 0)
    assert isinstance(runs, Tables)
    before = runs.logits.clone()
    played = runs.play(8)
    advantages = np.random.default_rng(0).normal(size=len(played.run))
    expected = np.zeros(before.shape[1:])
    policy = policy_of(runs, 0)
    for state, action, value in zip(played.state, played.action, advantages, strict=True):
        anchor = runs.processes.anchor[state]
        expected[anchor] -= value * policy[state] / 8
        expected[anchor, action] += value / 8
    runs.learn(played, advantages, 1e-9)
    np.testing.assert_allclose((runs.logits - before)[0].numpy() / 1e-9 / 4, expected, atol=1e-5)
    assert (LOSS.clip, LOSS.dual_clip) == (0.2, 3.0), "those of the learner"


def test_four_steps_of_a_table_are_clipped_by_the_first_ones_policy() -> None:
    """Against the whole table, of which most anchors were not met."""
    runs = agents("house", 0, 1)
    played = runs.play(8)
    advantages = 3.0 * np.random.default_rng(1).normal(size=len(played.run))
    logits, old = runs.logits.clone(), None
    run, state, action = (torch.from_numpy(column) for column in (played.run, played.state, played.action))
    barred = ~torch.from_numpy(runs.processes.admissible[played.state])
    for _ in range(EPOCHS):
        logits.requires_grad_()
        chances = logits[run, torch.from_numpy(runs.processes.anchor)[state]].masked_fill(barred, -torch.inf)
        taken = chances.log_softmax(dim=1).gather(1, action[:, None])[:, 0]
        old = taken.detach() if old is None else old
        ratio, signal = (taken - old).exp(), torch.from_numpy(advantages)
        least = torch.minimum(ratio * signal, ratio.clamp(0.8, 1.2) * signal)
        gain = torch.where(signal < 0, torch.maximum(least, 3.0 * signal), least)
        (gradient,) = torch.autograd.grad(gain.sum() / 8, logits)
        logits = logits.detach() + 2.0 * gradient
    before = runs.logits.clone()
    runs.learn(played, advantages, 2.0)
    torch.testing.assert_close(runs.logits, logits)
    assert ((runs.logits != before).any(dim=2).float().mean() < 0.9) and ((taken - old).abs() > 0.3).any()


def test_what_the_network_sees_is_the_board_about_the_player() -> None:
    room = SokobanPanel("train", Level.of_size(num_boxes=3))[5].content
    state = room.move(room.start, MOVES[0])
    walls, boxes, targets = board.seen(room, [room.start, state])[1].reshape(board.SEEN)
    row, column = divmod(state.player, room.width)
    for dy in range(-board.REACH, board.REACH + 1):
        for dx in range(-board.REACH, board.REACH + 1):
            inside = 0 <= row + dy < room.height and 0 <= column + dx < room.width
            cell = (row + dy) * room.width + column + dx
            there = (dy + board.REACH, dx + board.REACH)
            assert walls[there] == (not (inside and cell in room.floor))
            assert boxes[there] == (inside and cell in state.boxes)
            assert targets[there] == (inside and cell in room.targets)


def test_shuffled_credit_stays_in_its_group_and_scaled_credit_has_one_size() -> None:
    runs = agents("house", 0, 1)
    played = runs.play(4)
    values = np.random.default_rng(2).normal(size=len(played.run))
    rollouts = played.rollouts[0]
    own, group = values[played.run == 0], rollouts.group[rollouts.rollout]
    mixed = shuffled(own, group, generators(0)[0])
    for one in range(rollouts.num_groups):
        here = group == one
        assert sorted(mixed[here]) == sorted(own[here]) and (mixed[here] != own[here]).any()
    even = scaled(values, played)
    for run in range(2):
        assert np.square(even[played.run == run]).mean() == pytest.approx(1.0)
    assert not scaled(np.zeros(len(values)), played).any()


def test_the_truth_learns_and_shuffled_credit_does_not() -> None:
    ends = {
        name: train(agents("house", *range(3), count=4), Estimator(name, name), 3.0, Budget(updates=15))[-1].mean()
        for name in ("truth", "crbc", "shuffled")
    }
    assert min(ends["truth"], ends["crbc"]) > 0.9 and ends["shuffled"] < 0.2


def test_credit_is_the_librarys() -> None:
    runs = agents("slip", 0)
    played = runs.play(8)
    values = Credit(Estimator("x", "crbc", {"depth": 1}), runs)(played)
    assert np.isfinite(values).all() and len(values) == len(played.run)
    assert np.abs(Credit(Estimator("truth", "truth"), runs)(played) - truth(runs, played)).max() == 0


def test_the_rate_falls_to_0_and_success_is_taken_every_few_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, rates = agents("stop", 0), list[float]()
    monkeypatch.setattr(runs, "learn", lambda played, advantages, rate: rates.append(rate))
    found = train(runs, Estimator("grpo", "grpo"), 2.0, Budget(updates=8, group_size=2))
    assert rates == pytest.approx([2.0, 1.75, 1.5, 1.25, 1.0, 0.75, 0.5, 0.25])
    assert found.shape == (3, 1, 2), "at the start, after five and at the end"


THREE = tuple(map(study.named, ("crbc", "grpo", "truth")))
GRID = Grid(THREE, ("hub", "stop"), (0, 1), instances=3, choosing=1, budget=Budget(5, 4))


def test_a_study_goes_on_where_it_stopped_and_workers_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = study.run(GRID, tmp_path / "one")
    done: list[tuple[int, int]] = []

    def stop(finished: int, total: int) -> None:
        done.append((finished, total))
        if finished == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.run(GRID, tmp_path / "two", stop)
    study.run(GRID, tmp_path / "two", lambda finished, total: done.append((finished, total)), jobs=2)
    assert done[:4] == [(0, 6), (1, 6), (2, 6), (2, 6)] and done[-1] == (6, 6)
    files = {path.relative_to(tmp_path / "one"): path.read_bytes() for path in (tmp_path / "one").rglob("*.json")}
    assert len(files) == 6
    assert files == {
        path.relative_to(tmp_path / "two"): path.read_bytes() for path in (tmp_path / "two").rglob("*.json")
    }
    for result in whole:
        np.testing.assert_allclose(result.curve.mean(axis=0), result.values.mean(axis=1), atol=1e-4)
        assert result.areas[result.rate].mean() == pytest.approx(result.area, abs=1e-4)
        assert result.rate == result.chosen_on.mean(axis=1).argmax()


def test_what_was_stated_beforehand_holds(tmp_path: Path) -> None:
    told = json.loads(study.write_plan(GRID, tmp_path).read_text())
    assert told["digest"] == GRID.digest() and told["rates"]["hub"] == [0.3, 1.0, 3.0] and told["seeds"] == [0, 1]
    other = Grid(THREE, ("hub",), (0, 1), instances=3)
    with pytest.raises(ConfigError, match=f"states the grid {GRID.digest()} beforehand"):
        study.run(other, tmp_path)
    with pytest.raises(ConfigError, match="beforehand"):
        study.write_plan(other, tmp_path)
    study.check_plan(GRID, tmp_path)
    assert study.planned(tmp_path) == GRID and study.planned(tmp_path / "none") is None
    (tmp_path / study.PLAN).write_text(json.dumps({**told, "instances": told["instances"] + 1}))
    with pytest.raises(ConfigError, match=f"states the grid {GRID.digest()} beforehand"):
        study.planned(tmp_path)
    with pytest.raises(ConfigError, match="at most 500 of one thousand"):
        study.run(Grid(GRID.estimators, GRID.settings, (999, 1000)), tmp_path / "other")


def test_seeds_of_another_thousand_have_other_instances() -> None:
    first, other = (SETTINGS["lucky"].make(Draws(block, False, 3), generators(0)).processes for block in (0, 1))
    chosen_on = SETTINGS["lucky"].make(Draws(0, True, 3), generators(0)).processes
    assert len({one.probability.tobytes() for one in (first, other, chosen_on)}) == 3


def test_instances_are_built_once_and_a_training_leaves_no_mark_on_them() -> None:
    first = agents("lucky", 0)
    learned = train(first, Estimator("crbc", "crbc", {}), 1.0, Budget(updates=2))
    again = agents("lucky", 0)
    assert again.processes is first.processes and not np.array_equal(again.logits, first.logits)
    assert np.array_equal(train(again, Estimator("crbc", "crbc", {}), 1.0, Budget(updates=2)), learned)


def test_tables_compare_by_seed_and_instance_and_correct_for_all_that_is_compared(tmp_path: Path) -> None:
    results = study.run(GRID, tmp_path)
    found = tables.table(results)
    by_name = {(setting, row.result.estimator): row for setting, rows in found.items() for row in rows}
    grpo = [by_name[setting, "grpo"] for setting in GRID.settings]
    p = sorted(row.beside.p for row in grpo if row.beside is not None)
    assert sorted(row.beside.corrected for row in grpo if row.beside is not None)[0] == pytest.approx(
        min(1.0, 2 * p[0]), abs=1e-12
    )
    for setting, rows in found.items():
        crbc = by_name[setting, "crbc"].result
        for row in rows:
            if row.beside is not None:
                assert row.beside.difference.value == pytest.approx(row.result.area - crbc.area)
    areas = np.array([[0.5], [0.97], [1.0], [0.96], [0.2]])
    crbc = results[0]
    wide = study.Result("hub", "x", (0.1, 0.3, 1.0, 3.0, 10.0), areas, areas, 2, crbc.values, crbc.curve)
    assert tables.working(wide) == pytest.approx(10.0)


def test_the_command_prints_its_tables_and_what_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--world", "stop", "--method", "crbc", "--method", "grpo", "--seeds", "0-1", "--instances", "2"]
    cli.main(["study", "learning", *asked, "--updates", "2", "--out", str(tmp_path), "--plan"])
    cli.main(["study", "learning", "--jobs", "1", "--out", str(tmp_path)])  # as it is stated
    said = capsys.readouterr().out
    assert "stop now or go on" in said and "left out, methods: " in said and "area by rate" in said
    assert (tmp_path / "learning.png").stat().st_size > 5_000
    assert "--world shup: there is no such setting" in refusal(capsys, "study", "learning", "--world", "shup")


def test_all_is_every_method_in_every_setting_and_says_its_hours_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grids = whole.grids()
    assert SECONDS.keys() == SETTINGS.keys()
    assert {one.name for one in grids["methods"].estimators} == {*credit.METHODS, *study.BOUNDS}
    assert grids["methods"].settings == tuple(SETTINGS) and grids["alike"].budget.alike
    assert {len(grid.seeds) for grid in grids.values()} == {10, 20}
    rollouts = {grid.budget.updates * grid.budget.group_size for grid in grids.values()}
    assert rollouts == {320}, "other group sizes have as many"
    for grid in grids.values():
        assert grid.block == 3, "no choice was made with these instances"

    small = Grid(THREE[:2], ("stop",), (3000, 3001), instances=2, choosing=1, budget=Budget(2, 2))
    monkeypatch.setattr(whole, "grids", lambda: {"a": small, "b": replace(small, budget=Budget(2, 2, alike=True))})
    seconds = whole.cpu_seconds({tmp_path: small})
    assert seconds == pytest.approx(2 * SECONDS["stop"] * 3 / 15 * 4 / 320 * 2 / 16)
    board = whole.cpu_seconds({tmp_path: replace(small, settings=("board",), instances=64)})
    assert board == pytest.approx(2 * SECONDS["board"] * 3 / 15 * 4 / 320), "tested in the same rooms in any case"
    cli.main(["study", "learning", "--all", "--out", str(tmp_path), "--plan"])
    cli.main(["study", "learning", "--all", "--out", str(tmp_path), "--jobs", "1"])
    said = capsys.readouterr().out
    assert said.index("b: about 0.0 hours with 1 workers") < said.index("a: 1 of 2 estimators")
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("crbc.json")} == {
        "a/own/stop/crbc.json",
        "b/alike/stop/crbc.json",
    }
    assert whole.cpu_seconds({tmp_path / "a": small}) == 0, "of what is left"
    assert len(page.kept(tmp_path / "b")["stop"]) == 2
    refused = refusal(capsys, "study", "learning", "--all", "--group-size", "4", "--out", str(tmp_path))
    assert "leave the other options out" in refused


@pytest.mark.parametrize("name", ["results.md", "credit/learning.md"])
def test_the_documents_have_what_the_kept_studies_make(name: str) -> None:
    path, shown = ROOT / "docs" / name, list[str]()

    def picture(name: str, title: str, draw: Any) -> str:
        shown.append(name)
        return f"![{title}]({path.stem}/{name}.png)"

    text = path.read_text()
    assert len(page.MARK.findall(text)) == text.count("<!-- learning: ") > 0
    assert page.rebuilt(text, ROOT / "results", picture) == text, "run: crbc results rebuild"
    assert all((path.with_suffix("") / f"{one}.png").is_file() for one in shown)


def test_tables_are_of_all_that_a_plan_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a\n<!-- learning: differences x -->\n<!-- end -->\nb\n<!-- learning: settings y -->\nold\n<!-- end -->\nc"
    empty = "a\n<!-- learning: differences x -->\nNot run yet.\n<!-- end -->\nb\n"
    assert page.rebuilt(text, tmp_path, lambda *given: "").startswith(empty), "and what stands between parts stays"
    study.write_plan(GRID, tmp_path / "x")
    study.run(GRID, tmp_path / "x")
    made = page.rebuilt(text, tmp_path, lambda *given: "").splitlines()
    assert made[:2] == ["a", "<!-- learning: differences x -->"] and "old" not in made and "b" in made
    area = f"{100 * study.read(study.place(GRID.parts()[0], tmp_path / 'x')).area:.1f}"
    assert made[3] == "|  | crbc | grpo minus crbc | to be seen |", "no row that bounds others"
    assert made[5].startswith(f"| hub | {area} | ")
    hub = {row.result.estimator: row.beside for row in page.kept(tmp_path / "x")["hub"]}["grpo"]
    assert hub is not None and made[5].endswith(f" | {100 * hub.smallest:.1f} |")
    assert hub.smallest == smallest_difference(hub.error, hub.freedom, 0.05 / 2), "the family: one method, two worlds"
    crbc, grpo = (100 * study.read(study.place(part, tmp_path / "x")).curve[-1].mean() for part in GRID.parts()[:2])
    ends = page.rebuilt(text.replace("differences", "ends"), tmp_path, lambda *given: "").splitlines()
    assert ends[5] == f"| hub | {crbc:.1f} | {grpo - crbc:+.1f} |"
    monkeypatch.setattr(page, "WIDE", 1)
    wide = page.rebuilt(text, tmp_path, lambda *given: "").splitlines()
    assert wide[3] == "|  | crbc | grpo | to be seen |" and " (" not in wide[5], "no intervals"
    assert made[5].startswith(wide[5].rpartition(" | ")[0])
    with pytest.raises(ConfigError, match="several folders have hub; name one"):
        page.rebuilt(text.replace("differences x", "differences x x"), tmp_path, lambda *given: "")
    other = replace(GRID, instances=4)
    (tmp_path / "x" / study.PLAN).unlink()
    study.write_plan(other, tmp_path / "x")
    assert not page.kept(tmp_path / "x"), "these results are of another plan"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["--method", "gigpo", "--method", "grpo"], "all are compared with crbc"),
        (["--seeds", "0"], "two seeds and instances or more, such as --seeds 0-4"),
        (["--instances", "1"], "two seeds and instances or more"),
        (["--method", "crbc", "--method", "crbc"], "all are compared with crbc: ask for it and another"),
        (["--group-size", "1"], "a group has at least 2 rollouts"),
        (["--world", "slip", "--instances", "501"], "--instances 501: slip has 500 that no other seeds have"),
        (["--world", "slip", "--seeds", "50000-50001"], "slip has instances for seeds below 50000"),
        (["--world", "board", "--seeds", "7000-7001"], "board has instances for seeds below 7000"),
        (["--method", "crbc", "--method", "crbc,w_step=+1", "--method", "crbc,w_step= 1"], "would be kept in"),
        (["--method", "crbc", "--method", "crbc,trust=0.5"], 'trust must be None, "slope"'),
        (["--method", "crbc", "--method", "gigpo,mode=foo"], "mode must be"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_it_is_trained(
    asked: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why in refusal(capsys, "study", "learning", "--world", "stop", *asked, "--out", str(tmp_path))
    assert not any(tmp_path.iterdir())


def test_long_parts_are_trained_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, part = list[str](), study._part
    monkeypatch.setattr(study, "_part", lambda one: trained.append(one.settings[0]) or part(one))
    results = study.run(replace(GRID, settings=("stop", "hub")), tmp_path)
    assert SECONDS["hub"] > SECONDS["stop"] and trained == ["hub"] * 3 + ["stop"] * 3
    assert [result.setting for result in results] == ["stop"] * 3 + ["hub"] * 3, "in the order that was asked for"


OWN_WORLD = """
from crbc_lab.studies.worlds.build import LOST, WON, table

def corridor(seed, index):
    def outcomes(place):
        on = WON if place == 2 + index % 2 else place + 1
        return {0: [(on, 1.0)], 1: [(LOST, 1.0)]}

    return table(0, outcomes, horizon=6)

def alone(seed):
    return corridor(seed, 0)
"""


def test_a_world_of_ones_own_is_learned_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "halls.py").write_text(OWN_WORLD)
    monkeypatch.chdir(tmp_path)
    asked = [
        "study",
        "learning",
        "--method",
        "crbc",
        "--method",
        "grpo",
        "--seeds",
        "0-1",
        "--instances",
        "2",
        "--world",
    ]
    few = ["--updates", "5", "--out", "out"]
    assert "--allow-import" in refusal(capsys, *asked, "halls:corridor", *few)
    monkeypatch.setenv("CRBC_ALLOW_IMPORT", "1")
    assert "name a function of (seed, index)" in refusal(capsys, *asked, "halls:alone", *few)
    assert "has no 'corridors'; did you mean 'corridor'" in refusal(capsys, *asked, "halls:corridors", *few)
    assert "there is no such setting; did you mean 'hub'" in refusal(capsys, *asked, "hubb", *few)
    twice = ("hub", "--world", "hub", "--plan", "--out", "twice")
    cli.main([*asked, *twice])
    stated = study.planned(tmp_path / "twice")
    assert stated is not None and stated.settings == ("hub",)
    assert not Path("out").exists()
    cli.main([*asked, "halls:corridor", *few, "--plan"])
    cli.main([*asked, "halls:corridor", *few, "--jobs", "2"])
    kept = page.kept(tmp_path / "out")["halls:corridor"]
    assert [row.result.estimator for row in kept] == ["crbc", "grpo"] and kept[0].result.curve[-1].mean() > 0.1
    assert (
        page.rebuilt("<!-- learning: settings out -->\n<!-- end -->", tmp_path, lambda *given: "").count(
            "halls:corridor"
        )
        == 1
    )


def test_an_own_estimator_stands_beside_all_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "even.py").write_text("def ones(process):\n    return [1.0] * len(process.steps()[1])\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRBC_ALLOW_IMPORT", "1")
    asked = ["study", "learning", "--method", "all", "--method", "even:ones", "--world", "hub", "--out", "out"]
    cli.main([*asked, "--plan"])
    stated = study.planned(tmp_path / "out")
    assert stated is not None
    methods = [one.method for one in stated.estimators]
    assert set(credit.METHODS) <= set(methods) and methods[-1] == "even:ones" and len(methods) == len(set(methods))


def test_what_is_known_is_not_stated_beforehand(tmp_path: Path) -> None:
    study.run(GRID, tmp_path)
    with pytest.raises(ConfigError, match="has results of it: what is known already cannot be stated beforehand"):
        study.write_plan(GRID, tmp_path)
    assert not (tmp_path / study.PLAN).exists()


def test_results_of_other_seeds_are_not_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["study", "learning", "--world", "hub", "--method", "crbc", "--method", "grpo", "--out", str(tmp_path)]
    study.run(GRID, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    assert "is of other seeds, instances or options: choose another --out" in refusal(capsys, *asked, "--seeds", "0-2")
    assert before and before == {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    (damaged := min(before)).write_text("{")
    assert f"{damaged} is damaged (" in refusal(capsys, *asked)


def test_an_estimator_has_options_or_is_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert study.named("crbc,depth=0,trust=slope").options == {"depth": 0, "trust": "slope"}
    for text, why in (
        ("crcb", "take one of crbc, "),
        ("crbc,depht=0", "has no option 'depht'; did you mean 'depth'"),
        ("crbc,depth", "'depth' is no option=value"),
        ("truth,depth=2", "truth has no options"),
    ):
        with pytest.raises(ConfigError, match=why):
            study.named(text)
    (tmp_path / "flat.py").write_text(
        "def ones(process, by=1.0):\n    return [by] * len(process.steps()[1])\n\ndef one(process):\n    return [1.0]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRBC_ALLOW_IMPORT", "1")
    own, runs = study.named("flat:ones,by=2"), agents("stop", 0)
    played = runs.play(2)
    assert set(Credit(own, runs)(played)) == {2.0}
    grid = Grid((own,), ("stop",), (0,), instances=2, choosing=1, budget=Budget(1, 2))
    assert study.run(grid, tmp_path / "out", jobs=2)[0].estimator == "flat:ones,by=2"
    before = grid.digest()
    with (tmp_path / "flat.py").open("a") as file:
        file.write("# changed\n")
    assert grid.digest() != before
    with pytest.raises(ConfigError, match="--method flat:one: "):
        study.run(replace(grid, estimators=(study.named("flat:one"),)), tmp_path / "out", jobs=2)


def test_an_own_estimator_may_need_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loo.py").write_text(
        "def others(process):\n    return process.steps()[0].length / (process.num_rollouts - 1)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRBC_ALLOW_IMPORT", "1")
    assert study.named("loo:others").method == "loo:others"


def test_networks_begin_as_they_were_taught_and_differ_by_seed() -> None:
    runs = agents("board-weak", 0, 1)
    assert isinstance(runs, Networks)
    start = runs.success()
    np.testing.assert_array_equal(start[0], start[1])
    found = train(runs, Estimator("grpo", "grpo"), 1e-3, Budget(updates=1))
    assert (found[0] == start).all() and (found[1][0] != found[1][1]).any()
    assert torch.get_num_threads() >= 1


def test_processes_of_several_horizons_are_refused() -> None:
    with pytest.raises(ValueError, match="have one horizon"):
        Processes.of([WORLDS["sokoban"].make(0, 0), WORLDS["sokoban-h50"].make(0, 0)])
    alone = Processes.of([WORLDS["stop"].make(0, 0)])
    uniform = alone.admissible / alone.admissible.sum(axis=1, keepdims=True)
    assert len(play(alone, np.zeros((1, 1), dtype=int), 2, lambda run, state: uniform[state], generators(0)).run) > 1
