"""The set-up (scripts/setup.py): what it decides and says, and whole set-ups against an index of this test's own."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
setup = importlib.import_module("setup")
output = importlib.import_module("setup_output")

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "crbc"
version = "1"
[project.optional-dependencies]
train = ["helper"]
"""
"""A project that is installed without a network: it brings its build backend along."""

BACKEND = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from wheels import write_wheel

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    metadata = "Provides-Extra: train\\nRequires-Dist: helper; extra == 'train'\\n"
    return write_wheel(Path(wheel_directory), "crbc", "1", metadata)
"""

WHEELS = '''
import zipfile

def write_wheel(folder, name, version, metadata=""):
    """A wheel with one module, which is named as the package and knows its version. Returns the file's name."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = {version!r}\\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n{metadata}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{file},,\\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return f"{name}-{version}-py3-none-any.whl"
'''


def test_the_torch_that_is_chosen():
    choose = functools.partial(setup.choose_torch, "2.13.0", "", gpu=False, reachable=pytest.fail)
    assert choose(system="Linux", reachable=lambda index: True).index == setup.CPU_INDEX
    ordinary = choose(system="Linux", reachable=lambda index: False)
    assert ordinary.index is None and "3 GB" in ordinary.why and "CRBC_TORCH_INDEX=URL" in ordinary.why
    with_gpu = choose(system="Linux", gpu=True)
    assert with_gpu.index is None and "CUDA" in with_gpu.why and "3 GB" in with_gpu.why
    mac = choose(system="Darwin")
    assert mac.index is None and "GB" not in mac.why


@pytest.mark.parametrize("system", ["Linux", "Darwin"])
@pytest.mark.parametrize("gpu", [False, True])
def test_an_index_that_is_named_is_taken_and_nothing_else_asked(system, gpu):
    chosen = setup.choose_torch("2.12", "https://me:secret@mirror/x", system=system, gpu=gpu, reachable=pytest.fail)
    assert chosen == setup.Torch("2.12", "https://me:secret@mirror/x", "from mirror")


def test_the_version_of_torch():
    assert setup.torch_version("") == setup.TORCH
    assert setup.torch_version("2.12.1+cpu") == "2.12.1+cpu"
    for wrong in ("torch", "2", ">=2.8", "2.8 "):
        with pytest.raises(setup.SetupError, match=r"CRBC_TORCH=") as error:
            setup.torch_version(wrong)
        assert error.value.status == 2


@pytest.mark.parametrize(
    ("line", "doing"),
    [
        ("  Downloading torch-2.13.0+cpu-cp311-cp311-x.whl (190.0 MB)", "downloading torch-2.13.0+cpu (190.0 MB)"),
        ("Downloading torch (181.5MiB)", "downloading torch (181.5MiB)"),
        ("  Downloading rich-14.0-py3-none-any.whl.metadata (18 kB)", "looking up rich-14.0-py3-none-any.whl.metadata"),
        ("Collecting numpy>=2 (from crbc==0.1)", "looking up numpy"),
        ("  Getting requirements to build wheel: still running...", "building old (it may be compiled, for minutes)"),
        ("  Building editable for crbc (pyproject.toml): started", "building crbc (it may be compiled, for minutes)"),
        ("Building wheels for collected packages: crbc", ""),
        ("Installing collected packages: mpmath, sympy, torch", "installing 3 packages, 1 done"),
        ("Prepared 57 packages in 3.1s", "installing 57 packages, 1 done"),
        ("Installed 60 packages in 1s", "compiling to bytecode"),
        ("WARNING: Retrying (Retry(total=4)) after", "the package index does not answer; trying again"),
        ("Looking in links: here", ""),
    ],
)
def test_what_a_step_is_doing(tmp_path, line, doing):
    assert output.activity(["Collecting old", line] if doing else [line], tmp_path, installed=1) == doing


def test_a_failure_shows_the_lines_that_matter_and_how_to_mend_it():
    noise = [f"Collecting package{number}" for number in range(50)]
    text = output.explain([*noise, "ERROR: Could not install: [Errno 28] No space left on device", *noise])
    assert text.splitlines()[-1] == "the disk is full: free some space" and "package" not in text
    assert output.explain(["one", "two"]) == "    one\n    two"


@pytest.mark.parametrize(
    "told",
    [
        ["ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. Or so.", "    idna==3.20 from x:"],
        ["error: Failed to download `idna==3.20`", "  cause: Hash mismatch for `idna==3.20`"],
    ],
)
def test_a_file_with_another_digest_is_named_with_its_package(told):
    assert output.explain(["Collecting idna", *told]).splitlines()[-1].startswith("the file of idna==3.20 that came")


def test_the_machines_that_the_versions_of_requirements_are_for(tmp_path, monkeypatch):
    monkeypatch.setattr(setup.platform, "python_implementation", lambda: "CPython")
    monkeypatch.setattr(setup.platform, "system", lambda: "Linux")
    monkeypatch.setattr(setup.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(setup.platform, "libc_ver", lambda: ("glibc", "2.36"))
    here = setup.Setup(tmp_path, "train", "2.13.0", uv=None)
    assert [here.unlocked(f"python3.{minor}") for minor in (11, 12, 13)] == ["", "", ""]
    assert here.unlocked("python3.14") == "it is not for CPython as python3.14"
    monkeypatch.setattr(setup.platform, "libc_ver", lambda: ("", ""))
    assert "without glibc" in here.unlocked("python3.12")
    monkeypatch.setattr(setup.platform, "system", lambda: "Darwin")
    assert here.unlocked("python3.12") == "it is not for Darwin aarch64"
    monkeypatch.setattr(setup.platform, "machine", lambda: "arm64")
    assert here.unlocked("python3.12") == ""
    monkeypatch.setenv("CRBC_UNLOCKED", "1")
    assert here.unlocked("python3.12") == "CRBC_UNLOCKED is set"


@pytest.mark.parametrize("extras", ["train", "dev"])
def test_packages_are_installed_by_their_digests_and_crbc_from_what_is_there(tmp_path, monkeypatch, extras):
    asked = []
    monkeypatch.setattr(setup.Setup, "run", lambda self, doing, command: asked.append([str(word) for word in command]))
    monkeypatch.setattr(setup.Setup, "unlocked", lambda self, python: "")
    here = setup.Setup(tmp_path, extras, "2.13.0", uv=None)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", here.venv], check=True)
    (here.site_packages() / "torch-2.13.0.dist-info").mkdir()
    (here.site_packages() / "torch-2.13.0.dist-info" / "INSTALLER").touch()
    here.install_packages()
    build, needed, project = (command[4:] for command in asked)
    locked = ["--require-hashes", "--no-deps", "--no-build-isolation"]
    assert build == [*locked, f"--requirement={tmp_path}/requirements/build.txt"]
    names = ["train"] if extras == "train" else ["train", "dev"]
    assert needed == locked + [f"--requirement={tmp_path}/requirements/{name}.txt" for name in names]
    assert project == ["--no-index", "--no-build-isolation", "--editable", f".[{extras}]"]


@pytest.mark.parametrize(("extras", "torch"), [("sb3", True), ("trl", True), ("openenv", False), ("tracking", False)])
def test_another_trainer_gets_an_environment_of_its_own(tmp_path, monkeypatch, extras, torch):
    """Its versions are the trainer's own, so those of requirements/ are not for it."""
    asked = []
    monkeypatch.setattr(setup.Setup, "run", lambda self, doing, command: asked.append([str(word) for word in command]))
    monkeypatch.setenv("CRBC_TORCH_INDEX", "URL")
    here = setup.Setup(tmp_path, extras, "2.13.0", uv=None)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", here.venv], check=True)
    here.install_packages()
    assert here.venv == tmp_path / f".venv-{extras}"
    first = [["torch==2.13.0", "--extra-index-url", "URL"]] if torch else []
    assert [command[4:] for command in asked] == [*first, ["--editable", f".[{extras}]"]]
    assert all(command[0] == f"{here.venv}/bin/python" for command in asked)


def test_the_tests_tools_are_looked_for_all_at_once(monkeypatch, capsys):
    monkeypatch.setattr(
        setup.shutil, "which", {"make": "/bin/make", "git": "/bin/git", "google-chrome": "/bin/chrome"}.get
    )
    monkeypatch.setattr(setup.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(setup.Setup, "run", lambda *told: pytest.fail("nothing may be installed"))
    assert setup.main(["dev"]) == 1
    assert capsys.readouterr().err == (
        "missing for the tests: a C++ compiler, cmake, chromedriver. On Debian or Ubuntu: "
        "sudo apt-get install -y --no-install-recommends build-essential chromium-driver cmake\n"
    )


def test_a_python_that_is_too_old_is_named(tmp_path):
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\n[ $1 = --version ] && echo Python 3.9.18\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    (tmp_path / "bin" / "python3.13").symlink_to("/nowhere")
    (tmp_path / "bin" / "dirname").symlink_to(shutil.which("dirname"))
    command = [shutil.which("bash"), tmp_path / "scripts" / "setup.sh", "train"]
    told = subprocess.run(command, env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True)
    assert told.returncode == 1 and told.stdout == ""
    assert told.stderr.startswith("crbc needs Python 3.11, 3.12 or 3.13 on the PATH; found: Python 3.9.18")


def test_what_is_wrong_with_an_environment(tmp_path):
    checked = setup.Setup(tmp_path, "train", "2.13.0", uv=None)
    assert "Python is gone" in checked.fault()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", checked.venv], check=True)
    assert "half made" in checked.fault()
    info = checked.site_packages() / "pip-1.dist-info"
    info.mkdir()
    assert "half made" in checked.fault()
    (info / "INSTALLER").touch()
    assert checked.fault() == ""
    stamp = checked.venv / ".crbc-train"
    stamp.write_text(f"{checked.venv}\n")
    assert checked.fault() == ""
    stamp.write_text("/elsewhere/.venv\n")
    assert "another folder" in checked.fault()
    stamp.unlink()
    (checked.venv / "bin" / "activate").unlink()
    assert "half made" in checked.fault()
    (checked.venv / "lib" / checked.site_packages().parent.name).rename(checked.venv / "lib" / "python3.1")
    assert "another one" in checked.fault()


def test_uv_is_asked_for_what_pip_would_be_asked_for(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(setup.Setup, "run", lambda self, doing, command: asked.append([str(word) for word in command]))
    python = f"{tmp_path}/.venv/bin/python"
    for uv in (None, "/bin/uv"):
        setup.Setup(tmp_path, "train", "2.13.0", uv).install("x", "torch==2.13.0", "--extra-index-url", "URL")
    what = ["torch==2.13.0", "--extra-index-url", "URL"]
    assert asked[0] == [python, "-m", "pip", "install", *what]
    assert asked[1] == ["/bin/uv", "pip", "install", "--python", python, "--compile-bytecode", *what]


def test_whoever_has_the_tests_packages_has_those_of_training(tmp_path, monkeypatch):
    monkeypatch.setattr(setup.Setup, "unlocked", lambda self, python: "")
    (tmp_path / "pyproject.toml").write_text("one")
    (tmp_path / "requirements").mkdir()
    for name in ("build", "train", "dev"):
        (tmp_path / "requirements" / f"{name}.txt").write_text(name)
    stamps = {extras: setup.Setup(tmp_path, extras, "2.13.0", uv=None).stamps() for extras in ("train", "dev")}
    assert stamps["train"].items() < stamps["dev"].items()
    assert setup.Setup(tmp_path, "train", "2.12.0", uv=None).stamps() != stamps["train"]
    (tmp_path / "requirements" / "dev.txt").write_text("newer")
    assert setup.Setup(tmp_path, "train", "2.13.0", uv=None).stamps() == stamps["train"]
    assert setup.Setup(tmp_path, "dev", "2.13.0", uv=None).stamps() != stamps["dev"]
    for file in ("requirements/build.txt", "requirements/train.txt", "pyproject.toml"):
        before = setup.Setup(tmp_path, "train", "2.13.0", uv=None).stamps()
        (tmp_path / file).write_text("newer")
        assert setup.Setup(tmp_path, "train", "2.13.0", uv=None).stamps() != before, file


# -- whole set-ups ------------------------------------------------------------------------------------------------


class Handler(SimpleHTTPRequestHandler):
    """Files of a folder. Wheels wait until the server's `open` is set."""

    def do_GET(self):
        if self.path.endswith(".whl"):
            self.server.asked.set()
            self.server.open.wait(60)
        super().do_GET()

    def log_message(self, *what):
        pass


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A server of stub wheels on this machine: two torches, and what the stub of the project needs."""
    folder = tmp_path_factory.mktemp("index")
    (folder / "wheels.py").write_text(WHEELS)
    spec = importlib.util.spec_from_file_location("wheels", folder / "wheels.py")
    wheels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wheels)
    digests = {}
    stubs = [("torch", "2.13.0+cpu"), ("torch", "2.14.0+cpu"), ("helper", "1"), ("helper", "2"), ("builder", "1")]
    for name, version in stubs:
        (folder / name).mkdir(exist_ok=True)
        wheel = folder / name / wheels.write_wheel(folder / name, name, version)
        digests[f"{name}=={version}"] = hashlib.sha256(wheel.read_bytes()).hexdigest()
        links = "".join(f'<a href="{file.name}">{file.name}</a>' for file in (folder / name).glob("*.whl"))
        (folder / name / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    server.open, server.asked = threading.Event(), threading.Event()
    server.open.set()
    server.digests = digests
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.open.set()
    server.shutdown()
    server.server_close()


class Clone:
    """A small project with this set-up, an empty PATH, and no configuration of pip's."""

    def __init__(self, root: Path, index: ThreadingHTTPServer) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.digests = index.digests
        url = index.url
        (root / "scripts").mkdir(parents=True)
        for name in ("setup.py", "setup_output.py"):
            shutil.copy(ROOT / "scripts" / name, root / "scripts")
        (root / "requirements").mkdir()
        self.lock("build", "builder==1")
        self.lock("train", "helper==1")
        for file, text in {"pyproject.toml": PYPROJECT, "backend.py": BACKEND, "wheels.py": WHEELS}.items():
            (root / file).write_text(text)
        self.env = {"PATH": str(root / "bin"), "HOME": str(root), "PIP_INDEX_URL": url, "CRBC_TORCH_INDEX": url}
        self.env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}

    def lock(self, name: str, package: str, digest: str | None = None) -> None:
        entry = f"{package} \\\n    --hash=sha256:{digest or self.digests[package]}\n"
        (self.root / "requirements" / f"{name}.txt").write_text(entry)

    def start(self, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, self.root / "scripts" / "setup.py", "train"],
            env={**self.env, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.root,
        )  # fmt: skip

    def set_up(self, status: int = 0, **env: str) -> str:
        process = self.start(**env)
        told, _ = process.communicate(timeout=100)
        assert process.returncode == status, told
        return told

    def version(self, name: str) -> str:
        ask = [self.venv / "bin" / "python", "-c", f"import {name}; print({name}.version)"]
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def clone(tmp_path_factory, index):
    """A clone that is set up, and what the set-up printed."""
    clone = Clone(tmp_path_factory.mktemp("clone") / "crbc", index)
    clone.told = clone.set_up()
    return clone


@pytest.mark.full
def test_a_fresh_set_up_takes_the_pinned_torch_from_the_named_index(clone):
    assert "installing torch 2.13.0: from 127.0.0.1" in clone.told and ".venv is ready" in clone.told
    assert (clone.version("torch"), clone.version("helper"), clone.version("crbc")) == ("2.13.0+cpu", "1", "1")
    assert "Successfully installed" in (clone.venv / "setup.log").read_text("utf-8")
    assert not (clone.venv / "tmp").exists()


@pytest.mark.full
def test_a_second_set_up_contacts_nothing_and_is_silent(clone):
    os.utime(clone.root / "pyproject.toml")  # a date says nothing
    dead = "http://127.0.0.1:9"
    assert clone.set_up(PIP_INDEX_URL=dead, CRBC_TORCH_INDEX=dead, https_proxy=dead, http_proxy=dead) == ""


@pytest.mark.full
def test_a_failed_step_says_what_failed_and_where_all_of_it_is(clone):
    dead = {"PIP_INDEX_URL": "http://127.0.0.1:9", "CRBC_TORCH_INDEX": "http://127.0.0.1:9", "PIP_RETRIES": "1"}
    told = clone.set_up(status=1, CRBC_TORCH="2.14.0", **dead).splitlines()
    assert "set-up failed: installing torch 2.14.0: from 127.0.0.1" in told
    assert any(line.startswith("    ERROR: ") for line in told)
    assert told[-2].startswith("the package index does not answer")
    assert told[-1] == f"all of it: {clone.venv}/setup.log; then run again"


@pytest.mark.full
def test_a_changed_lock_installs_again_and_another_file_is_refused(clone):
    clone.lock("train", "helper==2", digest="0" * 64)
    told = clone.set_up(status=1).splitlines()
    assert any(line.startswith("the file of helper==2 that came is not the one") for line in told)
    assert clone.version("helper") == "1"
    clone.lock("train", "helper==1")
    assert ".venv is ready" in clone.set_up()  # the failed step might have changed something
    clone.lock("train", "helper==2")
    clone.set_up()
    assert clone.version("helper") == "2"
    clone.lock("train", "helper==1")
    told = clone.set_up(CRBC_UNLOCKED="1")
    assert "without the versions and digests of requirements/ (CRBC_UNLOCKED is set)" in told
    assert clone.version("helper") == "2"
    clone.set_up()
    assert clone.version("helper") == "1"


@pytest.mark.full
def test_an_unrelated_anchors_is_named_with_the_command_that_removes_it(clone):
    info = clone.venv / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "anchors-0.5.dist-info"
    info.mkdir()
    for file, text in {"METADATA": "Name: anchors\nVersion: 0.5\n", "INSTALLER": "pip\n", "RECORD": ""}.items():
        (info / file).write_text(text)
    told = clone.set_up()
    assert told.count("\n") == 1 and told.endswith(f"{clone.venv}/bin/python -m pip uninstall -y anchors\n")
    shutil.rmtree(info)
    assert clone.set_up() == ""


@pytest.mark.full
def test_an_environment_whose_python_is_gone_is_made_again(clone):
    (clone.venv / "bin" / "python").unlink()
    (clone.venv / "bin" / "python").symlink_to("/nowhere")
    told = clone.set_up()
    assert "removing .venv: its Python is gone" in told and clone.version("torch") == "2.13.0+cpu"


@pytest.mark.full
def test_a_package_that_was_half_installed_is_installed_again(clone):
    site = next(clone.venv.glob("lib/python*/site-packages"))
    (site / "torch-2.13.0+cpu.dist-info" / "INSTALLER").unlink()
    (site / "torch.py").unlink()
    (clone.venv / ".crbc-train").unlink()
    clone.set_up()
    assert clone.version("torch") == "2.13.0+cpu"


@pytest.mark.full
def test_a_set_up_that_was_killed_is_waited_for_and_then_finished(tmp_path, index):
    clone = Clone(tmp_path / "crbc", index)
    index.open.clear()
    index.asked.clear()
    first = clone.start()
    assert index.asked.wait(60)
    first.send_signal(signal.SIGKILL)  # pip goes on, and holds the lock
    first.communicate()
    second = clone.start()
    assert "another set-up of this folder is running" in second.stdout.readline()
    index.open.set()
    told, _ = second.communicate(timeout=100)
    assert second.returncode == 0 and ".venv is ready" in told
    assert (clone.version("torch"), clone.version("crbc")) == ("2.13.0+cpu", "1")


@pytest.mark.full
def test_ctrl_c_ends_pip_too_and_the_next_run_goes_on(tmp_path, index):
    clone = Clone(tmp_path / "crbc", index)
    index.open.clear()
    index.asked.clear()
    first = clone.start()
    assert index.asked.wait(60)
    first.send_signal(signal.SIGINT)
    told, _ = first.communicate(timeout=60)  # the output ends: nobody holds it any more
    assert first.returncode == 130 and "run the same command again to go on" in told
    index.open.set()
    assert "another set-up" not in clone.set_up()
    assert clone.version("crbc") == "1"
