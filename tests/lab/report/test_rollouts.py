"""What the page says of rollouts: numbers are the library's, texts are whole, and every kind of place has a page."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept_rollouts import MODEL, keep, kept_run, random_group, turns_of, walk

from anchors import EmpiricalProcess, RolloutGroup
from crbc_envs.storage.rollouts import decode_frame, write_groups
from crbc_lab.evaluation.record import FORMAT
from crbc_lab.report import write_report
from crbc_lab.report.diagnostics import distances
from crbc_lab.report.estimators import compared, credits
from crbc_lab.report.failures import failures
from crbc_lab.report.scenes import PIECE, Scene, Texts, read_scenes, scenes_of
from crbc_rl import credit
from crbc_rl.config import TrainConfig
from crbc_rl.config.sections import CreditConfig
from crbc_rl.errors import ConfigError
from crbc_rl.runs.folder import Run

OWN: list[dict[str, Any]] = [
    {"method": "crbc", "crbc": {"beta": 0.9, "depth": 2, "w_step": 1.0, "invalid_cost": 0.1, "normalise": "group"}},
    {"method": "crbc_plus", "crbc_plus": {"beta": "auto"}},
    {"method": "gigpo", "gigpo": {"gamma": 0.8, "mode": "mean_norm"}, "weighting": "step"},
    {"method": "graphgpo", "graphgpo": {"omega": 0.8}},
]

AGENT = {
    "name": "react",
    "agent": "react",
    "model": "m",
    "episodes": 2,
    "stopped": "the budget ended it",
    "success": None,
}


def blocks(page: Path) -> dict[str, Any]:
    """The data of each group of a page, by its key."""
    found = re.findall(
        r'id="group-([^"]+)".*?<script type="application/json" class="data">(.*?)</script>', page.read_text(), re.S
    )
    return {key: json.loads(data) for key, data in found}


def plain(value: float) -> str:
    return f"{value:.3f}".replace("-0.000", "0.000").replace("-", "−")


def signed(value: float) -> str:
    text = f"{value:+.3f}".replace("-", "−")
    return "0.000" if text[1:] == "0.000" else text


@pytest.mark.parametrize("config", OWN, ids=lambda config: config["method"])
def test_every_number_is_the_library_s_to_the_printed_digit(config: dict[str, Any], tmp_path: Path) -> None:
    method, group = config["method"], random_group(43)
    scene = Scene("training-1", "training", 1, group, None, CreditConfig.model_validate(config))
    from crbc_lab.report.group import view_group

    data = view_group(scene, Texts())["data"]
    assert scene.credit is not None
    named = dict(zip(data["estimators"], data["credit"], strict=True))
    own = next(name for name in named if name.startswith("this run"))
    expected = {own: credit.advantages(group, method, **scene.credit.options)}
    discount = config[method].get("beta", config[method].get("gamma", 0.98))
    shared = {"weighting": "step"} if "weighting" in config else {}
    section = config.get("crbc", {}) | shared
    for beta in {discount, 0.98}:
        for name, depth in (("K = 0", 0), ("K = 1", 1), ("full", None)):
            options = {**section, "beta": beta, "depth": depth}
            expected[f"CRBC, {name}, β {beta}"] = credit.advantages(group, "crbc", **options)
        if beta != "auto":
            options = {**config.get("gigpo", {}), "gamma": beta, **shared}
            expected[f"GiGPO, γ {beta}"] = credit.advantages(group, "gigpo", **options)
    expected["GraphGPO"] = credit.advantages(group, "graphgpo", **config.get("graphgpo", {}), **shared)
    expected["GRPO"] = credit.advantages(group, "grpo", **shared)
    assert set(named) == set(expected)
    for name, values in expected.items():
        assert [text.split() for text in named[name]] == [[signed(v) for v in some] for some in values], name

    process = EmpiricalProcess.from_group(group)
    closing = {
        "crbc": {"beta": 0.9, "depth": 2, "invalid_cost": 0.1},
        "gigpo": {"beta": 0.8},
        "graphgpo": {"beta": 0.98},
    }
    closing["crbc_plus"] = {"beta": "auto", "horizon": "auto", "truncation": "successor"}
    result = credit.closure(process, **closing[method])
    assert [row[0] for row in data["anchors"]] == [plain(v) for v in result.V]
    assert [row[4] for row in data["pairs"]] == [plain(q) for q in result.Q]
    assert [row[5] for row in data["pairs"]] == [signed(a) for a in result.A]


def test_an_estimator_that_cannot_be_computed_says_why() -> None:
    config = CreditConfig.model_validate({"method": "gae", "reward": "environment"})
    own, *others = credits(random_group(43), compared(config))
    assert isinstance(own, str) and "gae" in own
    assert all(isinstance(text, str) and "reward" in text for text in others if isinstance(text, str))
    assert [one.name for one in compared(None)] == [one.name for one in compared(CreditConfig())][1:]
    own, *_ = credits(random_group(43), compared(CreditConfig.model_validate({"method": "mine:solved"})))
    assert own == "its module is not run to draw a page"


def test_prompts_and_replies_come_back_whole_and_repeat_nothing(kept_page: Path, folder: Path) -> None:
    text = kept_page.read_text()
    pieces = json.loads(re.findall(r'id="pieces">(.*?)</script>', text, re.S)[0])
    assert len(pieces) == len(set(pieces))
    data = blocks(kept_page)
    for scene in scenes_of(Run.open(folder)):
        written = iter(turns_of([scene.group]))
        for rollout, one in zip(scene.group.rollouts, data[scene.key]["rollouts"], strict=True):
            turns = list(islice(written, len(rollout)))
            assert ["".join(pieces[i] for i in prompt) for prompt in one["prompts"]] == [turn.prompt for turn in turns]
            assert ["".join(pieces[i] for i in reply) for reply in one["replies"]] == [turn.reply for turn in turns]
            assert one["causes"] == [turn.cause for turn in turns]
            assert one["pairs"] and len(one["pairs"]) == len(one["rewards"]) == len(turns)
    assert PIECE.findall(",\n\na, b\nc") == [",\n\n", "a,", " b\n", "c"]


def test_the_groups_of_a_run_have_names_in_order(folder: Path, tmp_path: Path) -> None:
    scenes = scenes_of(Run.open(folder))
    assert [scene.key for scene in scenes] == ["training-1", "training-2", "start-0", "start-1", "last-0", "last-1"]
    assert [scene.title for scene in scenes[2:4]] == ["start-0: failed, 5 steps, one", "start-1: solved, 2 steps, two"]
    assert scenes[1].title == "update 2: 3 of 8 solved"
    prefixed = scenes_of(Run.open(folder), "x-")
    assert [scene.key for scene in prefixed][:3] == ["x-training-1", "x-training-2", "x-start-0"]


def test_old_runs_have_recorded_groups_or_bare_ones(tmp_path: Path) -> None:
    run = Run.open(kept_run(tmp_path / "run"))
    for path in (tmp_path / "run/transcripts").iterdir():
        path.unlink()
    assert not scenes_of(run)
    run.keep_group(1, random_group(43))
    (run.folder / "rollouts").mkdir()
    groups = [walk("a", "b", won=True), random_group(43), walk("a", won=True)]
    write_groups(run.folder / "rollouts/000002.parquet", groups, update=2, turns=turns_of(groups))
    bare, recorded = scenes_of(run)
    assert (bare.key, bare.turns, recorded.key) == ("training-1", None, "training-2-1")
    assert recorded.turns is not None and len(recorded.turns) == sum(map(len, recorded.group.rollouts))
    assert 0 < recorded.group.success_rate < 1


def test_a_damaged_file_is_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = kept_run(tmp_path / "run")
    (folder / "transcripts/training-000001.parquet").write_bytes(b"PAR1")
    keep(folder, "test-000002", [walk("a", task=str(i)) for i in range(20)])
    assert list(blocks(write_report(folder))) == ["training-2", "start-0", "start-1", *(f"last-{i}" for i in range(16))]
    assert "training-000001.parquet" in caplog.text and "left out" in caplog.text
    assert re.search("Left out of this page: .*training-000001.parquet", (folder / "report.html").read_text())


def test_a_page_without_rollouts_says_why(tmp_path: Path) -> None:
    run = kept_run(tmp_path / "run")
    for path in (run / "transcripts").iterdir():
        path.unlink()
    assert "this run has no files in its folder <code>transcripts</code>" in write_report(run).read_text()
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("transcripts: 16", "transcripts: 0"))
    assert "as its config says (<code>transcripts: 0</code>)" in write_report(run).read_text()
    evaluation(tmp_path / "F.json")
    assert "--out F.json --transcripts N" in write_report(tmp_path / "F.json").read_text()
    (tmp_path / "F.transcripts.parquet").write_bytes(b"PAR1")
    text = write_report(tmp_path / "F.json").read_text()
    assert re.search("Left out of this page: .*F.transcripts.parquet", text) and "kept no transcripts" not in text
    (tmp_path / "agents.json").write_text(json.dumps(AGENT))
    (tmp_path / "transcripts").mkdir()
    (tmp_path / "transcripts/test-000000.parquet").write_bytes(b"PAR1")
    assert "Left out of this page" in write_report(tmp_path).read_text()


def test_failures_are_gathered_by_where_they_ended_and_turned(folder: Path) -> None:
    start, won = walk("a", "b", "c", "b", "b", "d", task="t"), walk("a", "d", won=True, task="t")
    invalid = RolloutGroup([*walk("a", "e").rollouts, *walk("a", "e").rollouts])
    scenes = [Scene("g", "training", 1, invalid), Scene("s", "start", 0, start), Scene("l", "last", 2, won)]
    found = failures(scenes)
    assert (found["rollouts"], found["failed"]) == (4, 3)
    assert [(row["label"], row["count"], row["links"]) for row in found["lost"]["rows"]] == [
        ("room e", 2, ["g/0/1", "g/1/1"]),
        ("room d", 1, ["s/0/5"]),
    ]
    assert [(row["label"], row["visits"], row["links"]) for row in found["loops"]["rows"]] == [("room b", 3, ["s/0/4"])]
    assert found["tasks"] == [("t", "s/0/5", "failed, 6 steps", "l/0/1", "solved, 2 steps")]
    assert (found["lost"]["total"], found["lost"]["more"], found["won"]) == (3, (0, 0), 1)
    kept = failures(scenes_of(Run.open(folder)))
    assert [row["label"] for row in kept["invalid"]["rows"]] == ["not admissible"]
    assert [row[0] for row in kept["tasks"]] == ["two", "one"], "what the last policy lost comes first"


def test_what_a_table_leaves_out_is_counted(tmp_path: Path) -> None:
    """Seven rollouts end at seven anchors and six at an eighth; of a hundred held-out tasks ten were lost."""
    folder = kept_run(tmp_path / "run")
    lost = [walk("a", f"end {i}", task=str(i)) for i in (*range(7), *[7] * 6)]
    keep(folder, "training-000002", [RolloutGroup([group.rollouts[0] for group in lost])])
    keep(folder, "training-000001", [walk("a", won=True)])
    keep(folder, "test-000000", tasks := [walk("a", won=True, task="one"), walk("a", won=True, task="two")])
    keep(folder, "test-000002", tasks)
    with (folder / "metrics.jsonl").open("a") as file:
        share = {"test/success": 0.9, "test/low": 0.8, "test/high": 0.95, "test/episodes": 100}
        file.write(json.dumps({"update": 2, **share, "seconds/rollout": 100.0, "seconds/credit": 0.001}) + "\n")
    text = write_report(folder).read_text()
    above, _, viewer = text.partition('<div id="viewer">')
    assert "compare signs and order" in above and "N(s): visits of the anchor" in viewer and '"step credit"' in viewer
    assert "ended (all 13)" in text and '<tr><td>and 3 more</td><td class="n">3</td>' in text
    assert "</a> and 2 more</td>" in text, "four links of six"
    assert "2 of the 100 tasks, chosen: 0 of the 10 that the last policy lost and 2 of the 90 that it solved" in text
    assert "solved, 1 step<" in text and "solved, 1 steps" not in text
    assert "less than 0.01% of all time" in text and ">0.00%" not in text


def test_the_distance_of_replies_by_hand() -> None:
    """One prompt: {a, b} and {a, c} share one word of three. Different prompts: with {d} nothing, twice."""
    assert distances([("p", "a b"), ("p", "a c"), ("q", "d")]) == (pytest.approx(2 / 3), 1.0)
    assert distances([("p", "a"), ("p", "a"), ("q", "a")]) == (0.0, 0.0)
    assert distances([("p", "a")]) == (None, None)


@pytest.mark.parametrize(
    ("beta", "shares", "said"),
    [
        (0.9, {"certified/0": 0.0, "certified/3": 0.0}, "2 β³ / (1 − β) = 14.6 times"),
        (0.9, {}, "no anchor had actions of different value"),
        (1.0, {}, "β is 1"),
        ("auto", {"certified/0": 0.0}, "lies above σ(s) at every anchor. It is"),
        (0.9, {"certified/3": 0.1}, ""),
    ],
)
def test_credit_that_is_never_certified_says_why(
    beta: Any, shares: dict[str, float], said: str, tmp_path: Path
) -> None:
    credit = {"method": "crbc", "crbc": {"beta": beta}}
    run = Run.start(tmp_path, TrainConfig.model_validate({"name": "n", "model": MODEL, "credit": credit}), resume=False)
    records = [{"update": 1, "gate_open": 0.5, "mixed_groups": 0.75, **shares}]
    records.append({"update": 2, "mixed_groups": 0.25, **dict.fromkeys(shares, 0.0)})
    (run.folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    text = write_report(run.folder).read_text()
    assert said in text and ("Certified anchors:" in text) == bool(said)
    assert "Groups without signal: 50% of all groups had one outcome, 25% in the first update and 75%" in text


# ---- other places than a run -----------------------------------------------------------------------------


def evaluation(path: Path) -> None:
    numbers = {
        "success": 0.5,
        "interval": [0.25, 0.75],
        "length": 3.0,
        "score": 0.5,
        "invalid_share": 0.125,
        "truncated_share": 0.0,
    }
    row = {
        "task": 0,
        "repeat": 0,
        "success": True,
        "truncated": False,
        "score": 1.0,
        "return": 1.0,
        "length": 3,
        "invalid": 0,
    }
    row |= {"shortened": 0, "kind": "", "cluster": "", "content": ""}
    panel = {"name": "rooms", "version": "v3", "episodes": 2}
    env = {"id": "CRBC-Sokoban-v0", "kwargs": {"panel": "v3"}}
    head = {"format": FORMAT, "policy": {"which": "last"}, "env": env, "panel": panel, "split": "test"}
    path.write_text(json.dumps({**head, "result": numbers, "rows": [row]}))


def test_an_evaluation_has_a_page_beside_its_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        write_report(tmp_path / "F.json")
    evaluation(tmp_path / "F.json")
    page = write_report(tmp_path / "F.json")
    assert page == tmp_path / "F.html" and "50.0% (25.0% to 75.0%)" in page.read_text()
    assert not blocks(page)
    groups = [walk("a", "b", task="one"), walk("a", "d", won=True, task="two")]
    told = {"method": "gigpo", "options": {"gamma": 0.5, "w_step": 2.0}}
    write_groups(tmp_path / "F.transcripts.parquet", groups, turns=turns_of(groups), credit=told)
    assert list(blocks(write_report(tmp_path / "F.json"))) == ["task-0", "task-1"]
    (first, _) = read_scenes(tmp_path / "F.transcripts.parquet", "task")
    assert first.credit is not None and first.credit.method == "gigpo" and first.credit.options["gamma"] == 0.5


def test_an_agent_s_folder_has_a_page(tmp_path: Path) -> None:
    success = {"success": 0.5, "low": 0.1, "high": 0.9, "different_tasks": 3}
    (tmp_path / "agents.json").write_text(json.dumps({**AGENT, "episodes": 6, "success": success}))
    keep(tmp_path, "test-000000", [walk("a", "b", task="one"), walk("a", won=True, task="two")])
    text = write_report(tmp_path).read_text()
    assert "the budget ended it" in text and "50.0% (10.0% to 90.0%)" in text
    assert "<b>6</b> episodes of <b>3</b> tasks" in text
    assert list(blocks(tmp_path / "report.html")) == ["task-0", "task-1"]


def test_the_page_of_two_hundred_steps_stays_small(tmp_path: Path) -> None:
    """Each prompt repeats all labels before: 50 steps of 2 kB would be 2.5 MB in each rollout."""
    rng = np.random.default_rng(0)
    places = [f"{i}. " + " ".join(str(rng.integers(1000)) for _ in range(400)) for i in range(50)]
    group = RolloutGroup([*walk(*places).rollouts, *walk(*places, won=True).rollouts])
    folder = kept_run(tmp_path / "run")
    keep(folder, "training-000002", [group])
    assert write_report(folder).stat().st_size < 700_000


def test_frames_stand_in_the_page_once_each(tmp_path: Path) -> None:
    run = kept_run(tmp_path)
    group = random_group(41)
    steps = [(number, t) for number, rollout in enumerate(group.rollouts) for t in range(len(rollout))]
    frames = [np.full((2, 3, 3), t, np.uint8) for _, t in steps]
    write_groups(
        run / "transcripts" / "training-000001.parquet", [group], update=1, turns=turns_of([group]), frames=frames
    )
    page = write_report(run)
    kept = json.loads(re.findall(r'id="frames">(.*?)</script>', page.read_text(), re.S)[0])
    assert len(kept) == len(set(kept)) == max(map(len, group.rollouts))
    for number, one in enumerate(blocks(page)["training-1"]["rollouts"]):
        shown = [decode_frame(b64decode(kept[frame])) for frame in one["frames"]]
        assert [frame.tobytes() for frame in shown] == [
            frame.tobytes() for frame, (rollout, _) in zip(frames, steps, strict=True) if rollout == number
        ]
    assert not blocks(page)["training-2"]["rollouts"][0]["frames"]
