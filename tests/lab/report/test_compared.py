"""The page of several runs: who is grouped with whom, its table, its curves, and where methods part."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from refusals import refusal
from trained_runs import TASKS, UPDATES, trained

from crbc_lab import cli
from crbc_lab.report import write_report
from crbc_lab.report.charts import number
from crbc_lab.report.compared import compared
from crbc_lab.report.methods import difference, methods_of, runs_in
from crbc_lab.statistics import Outcomes, compare, estimate
from crbc_rl.errors import ConfigError
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("compared")
    for seed in range(5):
        trained(place / "gigpo" / f"seed{seed}", seed, "gigpo")
        trained(place / "crbc" / f"seed{seed}", seed, "crbc", gain=0.5)
    return place


def own_outcomes(folders: Sequence[Path]) -> Outcomes:
    """Read by hand: the last test of each run."""
    rows = [json.loads((folder / "outcomes.jsonl").read_text().splitlines()[-1]) for folder in folders]
    columns = [np.concatenate([row[name] for row in rows]) for name in ("task", "cluster", "success")]
    return Outcomes.of(np.repeat(range(len(folders)), TASKS), *columns)


def test_the_table_is_that_of_the_statistics(both: Path) -> None:
    part = compared("both", [*runs_in(both / "gigpo"), *runs_in(both / "crbc")])
    start, first, second = part["rows"]
    own = {name: own_outcomes(runs_in(both / name)) for name in ("gigpo", "crbc")}
    (expected,) = compare(own, "gigpo")
    assert (start.name, first.name, second.name) == ("gigpo, before training", "gigpo", "crbc")
    assert first.beside is None and second.beside == expected and second.success == estimate(own["crbc"])
    cells = second.cells
    assert cells[0] == "crbc" and cells[1] == "5" and cells[-1] == "2.5", "minutes without the evaluations"
    assert cells[2].startswith(f"{100 * own['crbc'].mean:.1f} (") and cells[4] in ("separated", "not separated")
    assert part["difference"] == [("credit.method", ["gigpo", "crbc"])] and not part["notes"]
    assert start.beside.difference.value < 0 and start.success.value == pytest.approx(0.3, abs=0.15)
    assert start.cells[4:] == [""] * 4, "what comes before training is of no family"


def test_folders_of_seeds_are_found_and_runs_of_one_config_are_together(both: Path, tmp_path: Path) -> None:
    assert len(runs_in(both)) == 10 and runs_in(both / "crbc" / "seed0") == [both / "crbc" / "seed0"]
    twice = trained(tmp_path / "again" / "seed0", 0, "crbc", gain=0.5)
    left_out: list[str] = []
    methods = methods_of([*runs_in(both), both / "crbc" / "seed1", twice], left_out)
    assert [(method.name, len(method.runs)) for method in methods] == [("crbc", 5), ("gigpo", 5)]
    assert len(left_out) == 1 and str(twice) in left_out[0] and "config and seed are those of" in left_out[0]


def test_runs_of_a_module_that_was_edited_are_two_methods(tmp_path: Path) -> None:
    """Its text is a part of the method, though its name is the same."""
    given = {"credit": {"method": "mine:credit"}}
    for name, text in (("first", "x = 1\n"), ("second", "x = 2\n")):
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        module = {"mine": {"file": str(file), "sha256": sha256(text.encode()).hexdigest()}}
        for seed in range(2):
            trained(tmp_path / name / f"seed{seed}", seed, **given, modules=module)
    methods = methods_of([*runs_in(tmp_path / "first"), *runs_in(tmp_path / "second")], [])
    assert [(method.name, len(method.runs)) for method in methods] == [("first", 2), ("second", 2)]
    told = dict(difference(methods))
    assert list(told) == ["modules.mine"] and len(set(told["modules.mine"])) == 2


def test_no_two_methods_have_one_name(both: Path, tmp_path: Path) -> None:
    fast, faster = (
        trained(tmp_path / name / "crbc" / "seed0", 0, "crbc", name="crbc", optim={"lr": lr})
        for name, lr in (("e1", 1e-3), ("e2", 2e-3))
    )
    named = methods_of([both / "crbc" / "seed0", fast.parent.rename(tmp_path / "fast") / "seed0"], [])
    assert [method.name for method in named] == ["crbc", "fast"], "folders where the estimators are the same"
    again = trained(tmp_path / "e1" / "crbc" / "seed0", 0, "crbc", name="crbc", optim={"lr": 1e-3})
    named = methods_of([again, faster], [])
    assert [method.name for method in named] == ["e1/crbc/seed0", "e2/crbc/seed0"]
    assert [row.name for row in compared("x", [again, faster])["rows"][1:]] == ["e1/crbc/seed0", "e2/crbc/seed0"]


def test_methods_part_at_the_first_other_action(both: Path) -> None:
    part = compared("both", [both / "gigpo" / "seed0", both / "crbc" / "seed1", both / "crbc" / "seed0"])
    one, two, three = part["partings"]
    assert (one.task, one.seed, one.step, one.endings) == ("one", 0, None, ("failed, 3 steps", "solved, 3 steps"))
    assert (two.task, two.step, two.actions) == ("two", 1, ("to c", "to b"))
    assert two.links == ("m1-0-last-1/0/1", "m2-0-last-1/0/1")
    assert (three.step, three.actions, three.links[0]) == (2, ("nothing more", "to c"), "m1-0-last-2/0/1")
    keys = {entry.key: entry.title for entry in part["index"]}
    assert {link.split("/")[0] for parting in part["partings"] for link in parting.links} == keys.keys(), "no others"
    assert keys["m1-0-last-1"].startswith("gigpo, seed 0, solved, 3 steps")
    assert "crbc: not compared with gigpo" in " ".join(part["notes"])


def test_what_is_missing_is_said(both: Path, tmp_path: Path) -> None:
    going = trained(tmp_path / "going" / "seed0", 0, "grpo", ended=False)
    part = compared("x", [going, *runs_in(both / "gigpo")])
    assert part["notes"] == ["grpo, seed 0: its last policy is not tested yet, so it is in no table."]
    assert len(part["rows"]) == 2 and part["reference"] == "gigpo", "the first with a tested policy"
    few = [both / "gigpo" / f"seed{seed}" for seed in (0, 1, 2)], [both / "crbc" / f"seed{seed}" for seed in (1, 2, 3)]
    part = compared("x", [*few[0], *few[1]])
    assert [row.seeds for row in part["rows"]] == [2, 2, 2]
    assert part["notes"] == ["The table leaves out 2 runs with seeds that not every compared method has."]
    part = compared("x", [few[0][0], few[1][0]])
    assert "crbc: not compared with gigpo, since fewer than two seeds would be left" in part["notes"][0]
    assert [row.seeds for row in part["rows"]] == [1, 1, 1]
    nothing = tmp_path / "started" / "seed0"
    Run.start(nothing, Run.open(few[0][0]).config, resume=False)
    with pytest.raises(ConfigError, match="no run folder with metrics"):
        write_report(few[0][0], nothing)


def test_one_run_does_not_spoil_the_comparison_of_the_others(both: Path, tmp_path: Path) -> None:
    single = trained(tmp_path / "single" / "seed0", 0, "grpo")
    moved = [trained(tmp_path / "moved" / f"seed{seed}", seed, "hgpo") for seed in range(3)]
    for folder in moved:
        lines = [json.loads(line) for line in (folder / "outcomes.jsonl").read_text().splitlines()]
        shifted = [{**line, "task": [task + 1000 for task in line["task"]]} for line in lines]
        (folder / "outcomes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in shifted))
    broken = trained(tmp_path / "broken" / "seed0", 0, "rloo")
    (broken / "config.yaml").write_text("nothing: known\n")
    part = compared("x", [*runs_in(both / "gigpo"), *runs_in(both / "crbc"), single, *moved, broken])
    rows = {row.name: row for row in part["rows"]}
    assert rows["crbc"].seeds == 5 and rows["crbc"].beside is not None and len(rows) == 5
    assert rows["grpo"].beside is None and rows["hgpo"].beside is None and rows["hgpo"].seeds == 3
    assert any("hgpo: not compared with gigpo, since its test has other tasks" in note for note in part["notes"])
    assert any("broken" in each for each in part["left_out"])


def test_a_run_that_went_on_is_not_of_those_that_ended(both: Path, tmp_path: Path) -> None:
    longer = trained(tmp_path / "crbc" / "seed7", 7)
    with (longer / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"update": UPDATES + 1, "success": 0.5}) + "\n")
    methods = methods_of([*runs_in(both / "crbc"), longer], [])
    assert [len(method.runs) for method in methods] == [5, 1] and not methods[1].ended
    assert methods[1].updates == str(UPDATES + 1)


def test_curves_are_by_updates_and_by_rollouts_with_bands_from_three_seeds_on(both: Path, tmp_path: Path) -> None:
    part = compared("x", [both / "gigpo" / "seed0", both / "gigpo" / "seed1", *runs_in(both / "crbc")])
    titles = ["Success in training, smoothed", "Validation success"]
    assert [chart.title for chart in part["curves_of"]] == [*titles, *(f"{title}, by rollouts" for title in titles)]
    for chart in part["curves_of"]:
        assert [layer.style for layer in chart.layers if "band" in layer.style] == ["band m2"], "two seeds have none"
    given = part["methods"][0].runs[0].run.config.rollout
    size = given.num_groups * given.group_size
    assert part["curves_of"][3].hover["rows"][-1][0] == f"rollouts {UPDATES * size:,}"
    assert part["curves_of"][1].hover["rows"][-1][0] == f"update {UPDATES}"
    rows = [read_metrics(folder)[-1]["validation/success"] for folder in runs_in(both / "crbc")]
    middle, half = np.mean(rows), 2.776 * np.std(rows, ddof=1) / 5**0.5  # Student's t, 4 degrees of freedom
    told = dict(part["curves_of"][1].hover["rows"][-1][1:])["crbc"]
    assert told == f"{number(middle, True)} ({number(middle - half, True)} to {number(min(middle + half, 1), True)})"

    more = trained(tmp_path / "grpo" / "seed0", 0, "grpo")
    played = [{**record, "groups_played": 4 * given.num_groups} for record in read_metrics(more)]
    (more / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in played))
    (method,) = methods_of([more], [])
    assert method.runs[0].rollouts.tolist() == [4 * size * update for update in range(UPDATES + 1)]


def test_the_command_writes_one_page(
    both: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli.main(["report", str(both / "gigpo"), str(both / "crbc")])
    assert capsys.readouterr().out.strip() == "compared.html"
    text = Path("compared.html").read_text()
    assert "<h1>gigpo and crbc</h1>" in text and "Where they part" in text and "smallest to be seen" in text
    assert len(re.findall("<svg", text)) > 6
    assert write_report(both) == both / "report.html", "a folder of folders of seeds"
    assert "5 runs of 4 updates" in (both / "report.html").read_text()
    assert "name a run folder" in refusal(capsys, "report", str(both), str(tmp_path))
    with pytest.raises(ConfigError, match="no run folder with metrics"):
        write_report(both, tmp_path)


def test_names_of_folders_cannot_become_a_page(tmp_path: Path) -> None:
    evil = trained(tmp_path / "<script>alert(1)<" / "seed0", 0, name="x", optim={"lr": 1e-3})
    page = write_report(evil, trained(tmp_path / "b" / "seed0", 0), out=tmp_path / "p.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
