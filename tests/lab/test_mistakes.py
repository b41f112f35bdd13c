"""Mistakes on the command line: each is told in one line with its status, its field and its value.

`tests/data/mistakes.toml` was written by somebody who had seen the documents and the help, but none of the code; status
and words were decided before the first run. What came after is in `mistakes_ours.toml`.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from warm import Warm

from crbc_lab import cli

DATA = ROOT / "tests" / "data"
MISTAKES = [
    mistake
    for name in ("mistakes.toml", "mistakes_ours.toml")
    for mistake in tomllib.loads((DATA / name).read_text(encoding="utf-8"))["mistake"]
]
UNPRIVILEGED = """
import ctypes, os, sys
from crbc_lab import cli
if os.geteuid() == 0:
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capset(header, data) == 0, os.strerror(ctypes.get_errno())
cli.main(sys.argv[1:])
"""
"""The command without capabilities: root may write everywhere, and without them it may not."""


def needs_a_process(mistake: dict[str, Any]) -> bool:
    """Environment variables, permissions and modules of one's own would stay in the process of the tests."""
    return any(mistake.get(key) for key in ("env", "unset", "readonly", "unreadable")) or any(
        "own_" in word for word in mistake["argv"]
    )


PROCESSES = [mistake for mistake in MISTAKES if needs_a_process(mistake)]
CALLS = [mistake for mistake in MISTAKES if not needs_a_process(mistake)]


@pytest.fixture(autouse=True, scope="module")
def known_packages() -> Iterator[None]:
    """What is installed is looked up once: every command does, and reads the metadata of a dozen packages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "version", cache(cli.version))
        patch.setattr(cli, "packages", cache(cli.packages))
        yield


@pytest.mark.parametrize("mistake", CALLS, ids=lambda mistake: mistake["name"])
@pytest.mark.slow
def test_a_mistake_is_told(
    mistake: dict[str, Any],
    tmp_path: Path,
    prepared: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepared(mistake, tmp_path)
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(mistake.get("stdin", "")))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    before = listing(tmp_path)
    status = 0
    with answering(mistake):
        try:
            cli.main(arguments(mistake["argv"]))
        except SystemExit as ended:
            status = ended.code or 0  # type: ignore[assignment]
    shown = capsys.readouterr()
    judge(mistake, status, shown.out, shown.err, listing(tmp_path) - before)


@pytest.mark.parametrize("mistake", PROCESSES, ids=lambda mistake: mistake["name"])
@pytest.mark.slow
def test_a_mistake_is_told_by_a_process(warm: Warm, mistake: dict[str, Any], tmp_path: Path, prepared: Any) -> None:
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir()
    home.mkdir()
    prepared(mistake, work)
    words = arguments(mistake["argv"])
    if mistake.get("readonly") or mistake.get("unreadable"):
        words = ["-c", UNPRIVILEGED, *words]
    variables: dict[str, str | None] = dict.fromkeys(os.environ)
    variables |= {"PATH": os.environ["PATH"], "HOME": str(home), "OMP_NUM_THREADS": "1", **mistake.get("env", {})}
    variables |= dict.fromkeys(mistake.get("unset", ()))
    before = listing(work)
    ended = warm.run(words, work, variables, mistake.get("stdin", ""))
    for name in mistake.get("readonly", ()):
        (work / name).chmod(0o755)
    judge(mistake, ended.status, ended.out, ended.err, listing(work) - before)


def judge(mistake: dict[str, Any], status: int, out: str, err: str, new: set[str]) -> None:
    told = f"{mistake['argv']}\n{out[-1000:]}\n{err[-1500:]}"
    assert status == mistake["status"], told
    assert "Traceback" not in out + err and "a bug in crbc" not in err, told
    said = " ".join((out + err).lower().split())
    tight = said.replace(" ", "")
    assert not [word for word in mistake["says"] if word not in said and word.replace(" ", "") not in tight], told
    if status:
        assert err.startswith("error: ") and err.count("\n") == 1 and len(err) < 2_000, told
        assert not {name for name in new if name.endswith("config.yaml")}, new


def listing(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def arguments(argv: list[str]) -> list[str]:
    return [word.replace("{configs}", str(ROOT / "configs")) for word in argv]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Lays out the files that a mistake needs. What commands make beforehand is made once."""
    made: dict[str, Path] = {}

    def prepare(mistake: dict[str, Any], folder: Path) -> None:
        if commands := mistake.get("before"):
            key = repr(commands)
            if key not in made:
                made[key] = tmp_path_factory.mktemp("before")
                with pytest.MonkeyPatch.context() as patch:
                    patch.chdir(made[key])
                    for argv in commands:
                        cli.main(arguments(argv))
            shutil.copytree(made[key], folder, dirs_exist_ok=True)
        for name in mistake.get("folders", ()):
            (folder / name).mkdir(parents=True)
        for name, text in mistake.get("files", {}).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", newline="")
        for name, digits in mistake.get("bytes_hex", {}).items():
            (folder / name).write_bytes(bytes.fromhex(digits))
        for name in mistake.get("readonly", ()):
            (folder / name).mkdir(exist_ok=True)
            (folder / name).chmod(0o555)
        for name in mistake.get("unreadable", ()):
            (folder / name).chmod(0)

    return prepare


@contextmanager
def answering(mistake: dict[str, Any]) -> Iterator[None]:
    """A server that answers every request alike, where the mistake wants one."""
    if "serve" not in mistake:
        yield
        return
    status, body = mistake["serve"]["status"], mistake["serve"]["body"].encode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", mistake["serve"]["port"]), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
