"""`crbc view`: the page of a report, served while its files change. Two tests need a browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from kept_rollouts import HOSTILE, keep, kept_run, random_group, turns_of, walk
from paths import ROOT
from refusals import refusal
from trained_runs import trained

from crbc_envs.local_server import LocalServer, serving
from crbc_envs.storage.rollouts import outcomes_of, write_groups
from crbc_lab import cli
from crbc_lab.report import write_report
from crbc_lab.report.content import first_of
from crbc_lab.report.live import POLICY, Live
from crbc_lab.report.scenes import Entry
from crbc_lab.report.tokens import vocabulary
from crbc_rl import credit

BLOCK = re.compile(r'<script type="application/json" class="data">(.*?)</script>', re.S)


def blocks(html: str) -> list[dict[str, Any]]:
    return [json.loads(found) for found in BLOCK.findall(html)]


def index(html: str) -> list[list[str]]:
    found = re.search(r'<script type="application/json" id="index">(.*?)</script>', html, re.S)
    return json.loads(found[1]) if found else []


def group(live: Live, key: str, *also: str) -> Any:
    return live.respond("/group?" + "&".join([f"key={key}", *(f"also={quote(text)}" for text in also)]))


def record(folder: Path, update: int, seeds: tuple[int, ...]) -> None:
    groups = [random_group(seed) for seed in seeds]
    path = folder / "rollouts" / f"{update:06d}.parquet"
    told = {"method": "crbc", "options": {"beta": 0.9}}
    write_groups(path, groups, update=update, turns=turns_of(groups), credit=told)


def add_update(folder: Path, update: int) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"update": update, "success": 0.25}) + "\n")


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Path:
    """A copy of the kept run, to be changed."""
    shutil.copytree(folder, tmp_path / "run")
    return tmp_path / "run"


def test_a_group_that_is_asked_for_is_that_of_the_file(run: Path) -> None:
    static = write_report(run).read_text()
    live = Live([run])
    page = live.respond("/")
    assert page.status == HTTPStatus.OK and not blocks(page.body) and index(page.body) == index(static)
    pieces = re.search(r'<script type="application/json" id="pieces">(.*?)</script>', static, re.S)
    assert pieces
    theirs = json.loads(pieces[1])
    for (key, *_), known in zip(index(static), blocks(static), strict=True):
        (own,) = blocks(group(live, key).body)
        for name in ("pairs", "edges", "estimators", "credit"):
            assert own[name] == known[name]
        for ours, other in zip(own["rollouts"], known["rollouts"], strict=True):
            assert [[own["pieces"][i] for i in text] for text in ours["prompts"]] == [
                [theirs[i] for i in text] for text in other["prompts"]
            ]


def test_an_estimator_that_is_asked_for_is_the_librarys(run: Path) -> None:
    record(run, 1, (41,))
    live = Live([run])
    live.respond("/")
    answer = group(live, "training-1", "crbc beta=0.5 depth=2", "gigpo gamma=0.7")
    (data,) = blocks(answer.body)
    assert data["estimators"][-2:] == ["crbc beta=0.5 depth=2", "gigpo gamma=0.7"]
    played = random_group(41)
    for told, (method, options) in zip(
        data["credit"][-2:], (("crbc", {"beta": 0.5, "depth": 2}), ("gigpo", {"gamma": 0.7})), strict=True
    ):
        for shown, values in zip(told, credit.advantages(played, method, **options), strict=True):
            assert [float(one.replace("−", "-")) for one in shown.split()] == pytest.approx(values, abs=6e-4)
    for wrong, said in (
        ("nope", "unknown credit method 'nope'"),
        ("crbc gamma=1", "crbc has no option 'gamma'"),
        ("crbc beta", "write an option as name=value"),
        ("os:system", "os:system"),
        ("", "unknown credit method ''"),
    ):
        answer = group(live, "training-1", wrong or " ")
        assert answer.status == HTTPStatus.BAD_REQUEST and said in answer.body and answer.kind == "text/plain"
    (data,) = blocks(group(live, "training-1", "crbc beta=7").body)
    assert "beta" in data["credit"][-1], "the reason in the place of numbers"


def test_tokens_are_told_as_the_optimizer_step_saw_them(run: Path) -> None:
    played = random_group(41)
    (run / "model").mkdir(exist_ok=True)
    names = {"model": {"vocab": {"Ġgo": 5, "Ã¼": 6}}, "added_tokens": [{"id": 7, "content": "<|end|>"}]}
    (run / "model/tokenizer.json").write_text(json.dumps(names))
    told = {"reply_ids": (5, 6, 7, 8), "logprobs": (-0.5,) * 4, "trained": (-0.25,) * 4}
    told |= {"ratios": (1.284,) * 4, "advantages": (-1.5,) * 4, "clipped": (0.0, 1.0, 0.0, 0.0)}
    turns = [replace(turn, **told) for turn in turns_of([played])]
    write_groups(run / "transcripts/training-000001.parquet", [played], update=1, turns=turns)
    numbers = ["−0.500", "−0.250", "1.284", "−1.500"]
    rows = [[" go", *numbers, ""], ["ü", *numbers, "clipped"], ["<|end|>", *numbers, ""], ["token 8", *numbers, ""]]

    def tokens(html: str) -> list[Any]:
        return [step for one in blocks(html)[0]["rollouts"] for step in one["tokens"]]

    live = Live([run])
    live.respond("/")
    assert tokens(group(live, "training-1").body) == [rows] * sum(map(len, played.rollouts))
    assert tokens(write_report(run).read_text()) == tokens(group(live, "training-1").body)
    long = [replace(turn, **{name: values * 100 for name, values in told.items()}) for turn in turns]
    write_groups(run / "transcripts/training-000001.parquet", [played], update=1, turns=long)
    html = write_report(run).read_text()
    assert {one["cut"] for one in blocks(html)[0]["rollouts"]} == {False, True}
    assert len(tokens(html)) * 400 <= 20_000
    live.respond("/")
    assert len(tokens(group(live, "training-1").body)) == len(turns), "who asks for a group gets all"


@pytest.mark.parametrize("text", ["{", "[]", '{"model": {"vocab": []}}', '{"model": {"vocab": {"a": 1}}}'])
def test_a_vocabulary_of_another_form_tells_no_names(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    assert not vocabulary(tmp_path / "tokenizer.json") and not vocabulary(tmp_path / "none.json")


def test_recordings_are_listed_and_read_by_group(run: Path) -> None:
    record(run, 1, (41, 42, 43))
    live = Live([run])
    listed = index(live.respond("/").body)
    mine = [entry for entry in listed if entry[1] == "recorded, 000001.parquet"]
    won = [[one.success for one in random_group(seed).rollouts] for seed in (41, 42, 43)]
    assert [entry[3] for entry in mine] == ["".join("01"[one] for one in own) for own in won]
    assert outcomes_of(run / "rollouts/000001.parquet") == [
        (random_group(seed).task, own) for seed, own in zip((41, 42, 43), won, strict=True)
    ]
    (data,) = blocks(group(live, mine[2][0]).body)
    assert data["estimators"][0] == "this run: crbc beta 0.9", "as the file says"
    assert [len(one["pairs"]) for one in data["rollouts"]] == [len(one) for one in random_group(43).rollouts]
    alone = Live([run / "rollouts/000001.parquet"])
    assert [entry[3] for entry in index(alone.respond("/").body)] == [entry[3] for entry in mine]


def test_what_changes_is_another_version(run: Path) -> None:
    live = Live([run])

    def version() -> str:
        return str(json.loads(live.respond("/state").body)["version"])

    seen = [version()]
    assert version() == seen[0]
    add_update(run, 3)
    seen.append(version())
    record(run, 3, (44,))
    seen.append(version())
    keep(run, "training-000003", [random_group(45)])
    seen.append(version())
    assert len(set(seen)) == len(seen)
    page = live.respond("/").body
    assert f'data-live="{seen[-1]}"' in page
    assert {entry[1] for entry in index(page)} >= {"training", "recorded, 000003.parquet"}
    damaged = run / "rollouts/000003.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    assert "000003.parquet is damaged" in live.respond("/").body
    gone = group(live, next(entry[0] for entry in index(page) if entry[1].startswith("recorded")))
    assert gone.status == HTTPStatus.BAD_REQUEST and "choose another" in gone.body


def test_a_recorded_group_keeps_its_name(run: Path, tmp_path: Path) -> None:
    """Where a file is written again, a new one comes, and a run is beside it; of two runs of one name each its own."""
    record(run, 1, (41, 42))
    live = Live([run])

    def named() -> dict[str, str]:
        listed = [entry for entry in index(live.respond("/").body) if entry[1].startswith("recorded")]
        assert len({entry[0] for entry in listed}) == len(listed)
        return {entry[0]: entry[2] for entry in listed}

    before = named()
    assert list(before) == ["000001-0", "000001-1"]
    os.utime(run / "rollouts/000001.parquet")
    record(run, 99, (43,))
    assert named() == before | {"000099-0": next(reversed(named().values()))}
    (data,) = blocks(group(live, "000099-0").body)
    assert [len(one["pairs"]) for one in data["rollouts"]] == [len(one) for one in random_group(43).rollouts]
    for name in ("x", "y"):
        shutil.copytree(run, tmp_path / name / "run")
    live = Live([tmp_path / "y/run", tmp_path / "x/run"])
    both = named()
    live = Live([tmp_path / "x/run", tmp_path / "y/run"])
    assert named() == both and len(both) == 6
    kinds = {entry[1] for entry in index(live.respond("/").body) if entry[1].startswith("recorded")}
    assert kinds == {f"recorded, {name}/run/{update}.parquet" for name in "xy" for update in ("000001", "000099")}


def test_files_that_have_gone_are_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such file or folder" in refusal(capsys, "view", str(run / "typo.json"))
    live = Live([run / "rollouts"])
    assert live.state()[1] == -1 and live.reason() is not None


def test_a_run_that_has_just_begun_is_waited_for(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(b"")
    live = Live([run])
    waits = live.respond("/")
    assert waits.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert "has no metrics yet" in waits.body and 'http-equiv="refresh"' in waits.body
    (run / "metrics.jsonl").write_bytes(lines)
    assert live.respond("/").status == HTTPStatus.OK


def test_several_runs_are_compared(tmp_path: Path) -> None:
    for method in ("crbc", "gigpo"):
        for seed in (0, 1):
            trained(tmp_path / method / f"seed{seed}", seed, method)
    live = Live([tmp_path / "crbc", tmp_path / "gigpo"])
    page = live.respond("/").body
    assert 'id="compared"' in page and 'id="partings"' in page
    for key, *_ in index(page):
        assert group(live, key).status == HTTPStatus.OK
    before = json.loads(live.respond("/state").body)["version"]
    add_update(tmp_path / "gigpo" / "seed1", 5)
    assert json.loads(live.respond("/state").body)["version"] != before


@pytest.mark.parametrize(("ends", "first"), [("11 01 00 10 00 11", 3), ("11 00 00 11", 2), ("11 11", 1)])
def test_a_page_begins_where_outcomes_are_mixed(ends: str, first: int) -> None:
    assert first_of([Entry(str(i), "training", "", one) for i, one in enumerate(ends.split())]) == str(first)
    assert first_of([]) == ""


def test_only_this_machine_is_served(run: Path) -> None:
    with LocalServer(Live([run]).respond, "the page", POLICY) as server, serving(server) as url:
        with urlopen(url) as answer:
            assert answer.headers["Content-Security-Policy"] == POLICY and b"connect-src" in answer.read()
        with pytest.raises(OSError, match="421"):
            urlopen(Request(url, headers={"Host": "elsewhere.example"}))
        with pytest.raises(OSError, match="404"):
            urlopen(url + "/etc/passwd")
    with pytest.raises(ValueError, match="other machines could reach the page"):
        LocalServer(Live([run]).respond, "the page", POLICY, "0.0.0.0")


def test_the_command_serves_until_it_is_interrupted(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(server: LocalServer) -> None:
        threading.Thread(target=server.handle_request).start()
        with urlopen(server.url + "/state") as answer:
            assert json.load(answer)["version"]
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalServer, "serve_forever", interrupted)
    cli.main(["view", str(run), "--port", "0"])
    assert re.match(r"page at http://127\.0\.0\.1:\d+  \(Ctrl-C ends it\)\nclosed\n", capsys.readouterr().out)


# ---- in a browser -----------------------------------------------------------------------------------------


@contextmanager
def viewed(*places: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address that the command serves at, and its process."""
    argv = [sys.executable, "-m", "crbc_lab.cli", "view", *map(str, places), "--port", "0"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[2], process
        finally:
            process.kill()


def wait(found: Callable[[], Any], seconds: float = 10.0) -> float:
    """Until something is true; returns the seconds."""
    began = time.monotonic()
    while not found():
        assert time.monotonic() - began < seconds
        time.sleep(0.05)
    return time.monotonic() - began


PLACE = """const at = document.getElementById("viewer").getBoundingClientRect().top;
return [location.hash, document.getElementById("where").textContent, document.getElementById("two").selectedIndex,
  Math.round(at), document.querySelector(".group:not([hidden]) .graph").getAttribute("width")]"""


@pytest.mark.slow
def test_a_new_update_appears_and_the_reader_stays(chromium: Any, run: Path) -> None:
    """Also in the second of two tabs, and where a recording grows; then the run is killed, and then the server."""
    from selenium.webdriver.support.ui import Select

    for log in ("browser", "performance"):
        chromium.get_log(log)

    def page() -> str:
        return str(chromium.find_element("tag name", "body").text)

    with viewed(run) as (url, server):
        chromium.get(url + "/#training-2/3/2")
        wait(lambda: "Rollout 3" in page())
        first = chromium.current_window_handle
        Select(chromium.find_element("id", "two")).select_by_index(3)
        chromium.find_element("css selector", ".group:not([hidden]) [data-zoom=in]").click()
        chromium.execute_script("document.getElementById('step').scrollIntoView()")
        place = chromium.execute_script(PLACE)
        chromium.switch_to.new_window("tab")
        chromium.get(url + "/#last-0/0/0")
        wait(lambda: "Rollout 0" in page())
        add_update(run, 3)
        keep(run, "training-000003", [random_group(45)])
        record(run, 3, (41, 42))
        assert wait(lambda: "3 updates of" in page()) < 5
        second = chromium.current_window_handle
        chromium.switch_to.window(first)
        assert wait(lambda: "3 updates of" in page()) < 5
        assert chromium.execute_script(PLACE) == place
        listed = [one.text for one in chromium.find_elements("css selector", "#group option")]
        assert any(title.startswith("update 3:") for title in listed) and len(listed) == len(set(listed)) == 9
        chromium.find_element("css selector", "#failures ~ .row a[href^='#training-3/']").click()
        wait(lambda: chromium.current_url.partition("#")[2].startswith("training-3/"))
        wait(lambda: "Last written" in chromium.find_element("id", "following").text)
        server.kill()
        wait(lambda: "Not followed any more" in page())
        chromium.switch_to.window(second)
        chromium.close()
        chromium.switch_to.window(first)
    asked = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    urls = [one["params"]["request"]["url"] for one in asked if one["method"] == "Network.requestWillBeSent"]
    assert urls and all(one.startswith((url, "data:", "about:")) for one in urls), "nothing from elsewhere"


@pytest.mark.full
def test_ten_thousand_recorded_rollouts_are_paged(chromium: Any, run: Path) -> None:
    groups = [random_group(seed) for seed in range(50)]
    for update in range(1, 26):
        write_groups(run / "rollouts" / f"{update:06d}.parquet", groups, update=update, turns=turns_of(groups))
    with viewed(run) as (url, _):
        chromium.get(url)
        wait(lambda: chromium.find_elements("css selector", "#group option"), 30)
        options = [one.text for one in chromium.find_elements("css selector", "#group option")]
        assert len(options) == 101 and options[-1] == "… 1156 groups more"
        chromium.execute_script("location.hash = '000025-49/7/0'")
        wait(lambda: "Rollout 7" in chromium.find_element("id", "where").text)
        options = [one.text for one in chromium.find_elements("css selector", "#group option")]
        assert options[0] == "… 1200 groups before" and options[-1].startswith("49: ")
        chromium.find_element("css selector", "[data-move=failure]").click()
        wait(lambda: not chromium.current_url.endswith("000025-49/7/0"))


@pytest.mark.full
def test_an_estimator_is_asked_for_by_its_options(chromium: Any, run: Path) -> None:
    with viewed(run) as (url, _):
        chromium.get(url + "/#training-2/3/2")
        wait(lambda: "Rollout 3" in chromium.find_element("id", "where").text)
        chromium.find_element("id", "ask").send_keys("crbc beta=0.5 depth=2 nonsense=1\n")
        wait(lambda: "no option 'nonsense'" in chromium.find_element("id", "reason").text)
        chromium.find_element("id", "ask").clear()
        chromium.find_element("id", "ask").send_keys("crbc beta=0.5 depth=2\n")
        values = credit.advantages(random_group(43), beta=0.5, depth=2)[3]
        wait(lambda: f"{values[2]:+.3f}".replace("-", "−") in chromium.find_element("id", "numbers").text)
        assert chromium.current_url.endswith("#training-2/3/2")
        chromium.execute_script("location.hash = 'training-1/0/0'")
        wait(lambda: "Rollout 0" in chromium.find_element("id", "where").text)
        assert "crbc beta=0.5 depth=2" in chromium.find_element("id", "one").text, "of other groups, too"


@pytest.mark.full
def test_what_was_written_anew_is_shown_where_the_reader_stands(chromium: Any, run: Path) -> None:
    """Replies of the same outcome; a task that has another number, and one that has gone; another config."""

    def page() -> str:
        return str(chromium.find_element("tag name", "body").text)

    with viewed(run) as (url, _):
        chromium.get(url + "/#training-1/3/2")
        wait(lambda: "Rollout 3" in page())
        played = random_group(41)
        turns = [replace(turn, reply="REWRITTEN") for turn in turns_of([played])]
        write_groups(run / "transcripts/training-000001.parquet", [played], update=1, turns=turns)
        wait(lambda: chromium.find_element("id", "reply").text == "REWRITTEN")
        assert (
            chromium.current_url.endswith("#training-1/3/2") and "step 2" in chromium.find_element("id", "where").text
        )

        chromium.execute_script("location.hash = 'start-1/0/1'")
        wait(lambda: "Rollout 0" in page() and "two" in page())
        prompt = chromium.find_element("id", "prompt").text
        keep(run, "test-000000", [walk("a", "d", won=True, task="two")])
        wait(lambda: chromium.current_url.endswith("#start-0/0/1"))
        assert chromium.find_element("id", "prompt").text == prompt
        keep(run, "test-000000", [walk("a", "b", "b", "b", "c", task="one")])
        wait(lambda: "What was shown before is not kept any more" in page())

        config = (run / "config.yaml").read_text().replace("seed: 0", "seed: 77")
        (run / "config.yaml").write_text(config)
        wait(lambda: "seed: 77" in chromium.find_element("id", "settings").get_attribute("textContent"))
        chromium.get(url + "/#%")
        wait(lambda: "Rollout" in chromium.find_element("id", "where").text)


@pytest.mark.full
def test_an_estimator_that_was_refused_is_forgotten(chromium: Any, run: Path) -> None:
    with viewed(run) as (url, _):
        chromium.get(url + "/#training-2/3/2")
        wait(lambda: "Rollout 3" in chromium.find_element("id", "where").text)
        for wanted, said in (("grpo foo=1", "no option 'foo'"), ("crbc depth=100000000", "depth=null")):
            chromium.find_element("id", "ask").clear()
            chromium.find_element("id", "ask").send_keys(wanted + "\n")
            wait(lambda said=said: said in chromium.find_element("id", "reason").text)
        chromium.execute_script("const real = fetch; window.fetch = () => Promise.reject(new Error('asleep'))")
        chromium.find_element("id", "ask").clear()
        chromium.find_element("id", "ask").send_keys("gigpo\n")
        wait(lambda: "asleep" in chromium.find_element("id", "reason").text)
        chromium.refresh()
        chromium.get(url + "/#start-0/0/0")
        wait(lambda: "Rollout 0" in chromium.find_element("id", "where").text)


@pytest.mark.full
def test_what_others_wrote_runs_nothing(chromium: Any, tmp_path: Path) -> None:
    run = kept_run(tmp_path / "hostile", HOSTILE)
    chromium.get("about:blank")
    chromium.get_log("browser")
    with viewed(run) as (url, _):
        for key in ("training-1", "last-0"):
            chromium.get(f"{url}/#{key}/0/0")
            wait(lambda: "Rollout 0" in chromium.find_element("id", "where").text)
        add_update(run, 3)
        wait(lambda: "3 updates of" in chromium.find_element("tag name", "body").text)
        assert chromium.execute_script("return window.ran") is None
        assert HOSTILE in chromium.find_element("id", "prompt").text
        assert not [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"]
