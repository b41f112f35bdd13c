"""The README is short, and every command and piece of code of its pages is run as printed; what is long, shortened."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chat_server import Server, completion
from paths import ROOT
from warm import Ended, Warm

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [README, *((ROOT / f"docs/{name}.md").read_text() for name in ("command_line", "runtime", "install"))]
"""Whose commands and code are run."""
MOST = 8_500
"""Characters of the README: what is new goes where its reader looks, and one line here at most."""
TINY = "rollout.num_groups=2 rollout.group_size=2 eval.episodes=2 eval.test_episodes=2 optim.minibatch=16 threads=1"

ELSEWHERE = {
    "bash scripts/train.sh": "tests/scripts/test_setup.py",
    "bash scripts/test.sh": ".ci/run",
    "source .venv/bin/activate": "tests/scripts/test_setup.py",
    "git clone ADDRESS-OF-YOUR-COPY crbc && cd crbc": "nobody: the address is the reader's",
    "crbc serve openenv CRBC-ALFWorld-v0": "tests/rl/adapters",
}
"""Commands that other checks run: they make whole environments, or need one of their own."""

SHORT = {
    "crbc train configs/sokoban_tiny.yaml --seeds": f"--set updates=1 {TINY}",
    "crbc train configs/sokoban_tiny.yaml": f"--set updates=10 {TINY}",
    "crbc train configs/alfworld_tiny.yaml": f"--set updates=1 {TINY}",
    "crbc train configs/webshop_tiny.yaml": f"--set updates=1 {TINY}",
    "crbc train sokoban-tiny": f"--set updates=1 {TINY}",
    "crbc warmstart": "--steps 2",
    "crbc study agent": "--episodes 4 --samples 2",
    "crbc study --list": "",
    "crbc study main": "--dry-run",
    # Its workers import the main module, which the warm process has not.
    "crbc study learning": "--world stop --seeds 0-1 --instances 2 --updates 2 --jobs 1",
    "crbc study": "--quick",
}
"""What is added to a command, by its beginning; the first that fits."""


def commands() -> Iterator[str]:
    for block in re.findall(r"```bash\n(.*?)\s*```", "\n".join(PAGES), re.DOTALL):
        for line in block.splitlines():
            command = line.partition("  #")[0].strip()
            if command and not command.startswith("#"):
                yield command


def is_run_elsewhere(command: str) -> bool:
    return command in ELSEWHERE or " -m pip install " in f" {command}" or command.startswith("pip install")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that looks like the clone to a command, and may be written to."""
    for name in ("configs", "warmstarts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def crbc(warm: Warm, folder: Path) -> Callable[..., Ended]:
    """A command's end: `crbc` in a fork of the warm process, torchrun and others as they are."""

    def run(command: str, stdin: str = "") -> Ended:
        words = shlex.split(command)
        if words[0] == "crbc":
            return warm.run(words[1:], folder, stdin=stdin)
        variables = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            words, cwd=folder, env=variables, input=stdin, capture_output=True, text=True, check=False
        )
        return Ended(done.returncode, done.stdout, done.stderr, 0.0, 0.0, 0.0)

    return run


def short_form(command: str) -> str:
    """The command with less to do. Of eight GPUs and a 7B model it leaves two processes and a tiny one, of five seeds
    two."""
    if command.startswith("torchrun"):
        there = command.replace("--nproc_per_node=8", "--nproc_per_node=2")
        return re.sub(r"configs/paper/\S+", "configs/sokoban_tiny.yaml", there) + f" --set name=two updates=1 {TINY}"
    command = command.replace("--seeds 0-4", "--seeds 0-1").replace("/test-000150.", "/test-000010.")
    added = next((more for beginning, more in SHORT.items() if command.startswith(beginning)), "")
    return f"{command} {added}".strip() if "--dry-run" not in command else command


@pytest.mark.full
def test_the_commands_work_as_printed_and_in_this_order(crbc: Callable[..., Ended], folder: Path) -> None:
    for command in commands():
        if is_run_elsewhere(command):
            continue
        if command.startswith(("crbc serve ", "crbc view ")):
            serve_and_stop(folder, f"{command} --port 0")
            continue
        asks = "--endpoint" in command
        done = ask_a_server(crbc, command) if asks else crbc(short_form(command), stdin="quit\nq\n")
        assert done.status == 0, f"{command}\n{done.out[-1500:]}\n{done.err[-1500:]}"


def ask_a_server(crbc: Callable[..., Ended], command: str) -> Ended:
    server = Server()
    server.answer = lambda body: completion("look")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        less = "--set episodes=1 seeds=[0]" if command.startswith("crbc agents") else "--episodes 1"
        return crbc(re.sub(r"http://\S+", server.url, command) + f" {less}")
    finally:
        server.shutdown()
        server.server_close()


def serve_and_stop(folder: Path, command: str) -> None:
    """Start a server, and end it with Ctrl-C as its message says."""
    words = [str(Path(sys.executable).parent / "crbc"), *shlex.split(command)[1:]]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert " at http://127.0.0.1:" in line and "(Ctrl-C ends it)" in line and "closed" in rest and not errors
    assert process.returncode == 0


def test_the_readme_fits_a_screen_or_two() -> None:
    assert len(README) <= MOST
    assert not [target for target in re.findall(r"\]\(([^)#]+)", README) if not (ROOT / target).exists()]


def test_the_readmes_figures_are_those_of_the_results() -> None:
    results = (ROOT / "docs/results.md").read_text().partition("<!-- results: fair/lab/sokoban -->")[2]
    results = results.partition("<!-- end -->")[0]
    said = " ".join(README.split())
    for method in ("GRPO", "GiGPO", "GraphGPO"):
        quoted = f"{{}}{' points' * (method == 'GRPO')} above {method} ({{}} to {{}})"
        (figures,) = re.findall(rf"^\| {method} \|.*?\| (\S+) \((\S+) to (\S+)\)", results, re.MULTILINE)
        assert quoted.format(*(f"{0.0 - float(figure):.1f}" for figure in (figures[0], figures[2], figures[1]))) in said


def test_the_readmes_code_prints_what_stands_below_it(warm: Warm, folder: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == README.count("```python") == 1
    for code, printed in blocks:
        assert len(code.splitlines()) <= 25
        ended = warm.run(["-c", code], folder)
        assert (ended.status, ended.out, ended.err) == (0, printed, "")


@pytest.mark.full
def test_the_pages_code_runs(warm: Warm, folder: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", "\n".join(PAGES[1:]), re.DOTALL)
    assert len(blocks) == 2
    sets = ", ".join(repr(word) for word in TINY.split())
    for block in blocks:
        code = block.replace('"updates=10"', f'"updates=1", {sets}')
        ended = warm.run(["-c", code], folder)
        assert ended.status == 0, f"{block}\n{ended.err[-2000:]}"
