"""Makes `.venv` at the root of the clone, or brings it up to date. Run by scripts/setup.sh; standard library only.

    python3 scripts/setup.py train    # what `crbc train` needs
    python3 scripts/setup.py dev      # what the tests need; checks the compiler and the browser first
    python3 scripts/setup.py sb3      # crbc in another trainer, in .venv-sb3; also trl, verl, openenv, tracking, docs

In `.venv` every package but torch has the version and the digest that requirements/ names; scripts/lock.py writes it.
On a machine or a Python that it is not for, with CRBC_UNLOCKED=1, and beside another trainer, the newest that
pyproject.toml allows are taken.

Nothing is contacted when `.venv` is up to date. Interrupted, it goes on when run again. What pip and uv say is kept in
`.venv/setup.log`. The exit status is 0, 1 where a step failed, 2 where a variable is wrong, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from setup_output import activity, explain

ROOT = Path(__file__).resolve().parents[1]
TORCH = "2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
LOCKS = {  # the files of requirements/ that a set-up takes
    "train": ("build", "train"),
    "dev": ("build", "train", "dev"),
}
ADAPTERS = {
    "sb3": True,
    "trl": True,
    "verl": True,
    "verl-agent": True,
    "trinity": True,
    "verifiers": False,
    "openenv": False,
    "tracking": False,
    "docs": False,
    "floors": True,
}  # beside others: whether it needs torch
LOCKED_PYTHONS = ("python3.11", "python3.12", "python3.13")
LOCKED_MACHINES = ("Linux x86_64", "Linux aarch64", "Darwin arm64")  # on others, packages have no wheels
TICK = 4.0  # seconds between two lines of progress
PROGRAMS = {  # a name for people, the names it may have, Debian's package
    "a C++ compiler": (("c++",), "build-essential"),
    "make": (("make",), "build-essential"),
    "cmake": (("cmake",), "cmake"),
    "git": (("git",), "git"),
    "Chromium": (("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"), "chromium"),
    "chromedriver": (("chromedriver",), "chromium-driver"),
}


class SetupError(Exception):
    """The set-up cannot go on; the message says how to mend it."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Torch:
    """Which torch to install: a version, an index besides the usual one, and a line that says why."""

    version: str
    index: str | None
    why: str


def choose_torch(version: str, index: str, *, system: str, gpu: bool, reachable: Callable[[str], bool]) -> Torch:
    """The torch for this machine. `index` is CRBC_TORCH_INDEX, empty where it is not set."""
    if index:
        return Torch(version, index, f"from {urlsplit(index).hostname or index}")
    if system != "Linux":
        return Torch(version, None, "the ordinary build, which has no CUDA here")
    if gpu:
        return Torch(version, None, "the build with CUDA for the NVIDIA GPU, about 3 GB to download")
    if reachable(CPU_INDEX):
        return Torch(version, CPU_INDEX, f"the CPU build, from {CPU_INDEX}")
    why = f"up to 3 GB to download, since {CPU_INDEX} does not answer (CRBC_TORCH_INDEX=URL names another index)"
    return Torch(version, None, f"the ordinary build, {why}")


def answers(index: str, seconds: float = 3.0) -> bool:
    """Whether an index has a page for torch. A thread, since a look-up of its name knows no time limit."""
    found = []

    def ask() -> None:
        with contextlib.suppress(OSError, ValueError):
            urllib.request.urlopen(f"{index.rstrip('/')}/torch/", timeout=seconds).close()
            found.append(True)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(found)


def torch_version(chosen: str) -> str:
    """The version to install, where CRBC_TORCH is `chosen`. Raises `SetupError` where that is none."""
    if not re.fullmatch(r"\d+(\.\d+)+[\w.+]*|", chosen):
        raise SetupError(f"CRBC_TORCH={chosen} is no version; for example CRBC_TORCH={TORCH}", 2)
    return chosen or TORCH


def has_gpu() -> bool:
    """Whether there is an NVIDIA GPU with its driver."""
    return shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia").exists()


def missing_programs() -> dict[str, str]:
    """What the tests need and the PATH lacks: its name for people, and Debian's package."""
    return {
        program: package
        for program, (names, package) in PROGRAMS.items()
        if not any(shutil.which(name) for name in names)
    }


class Setup:
    """One set-up with a set of extras, of `root/.venv` or an adapter's `root/.venv-NAME`.

    `uv` is the program's path, None where pip is used.
    """

    def __init__(self, root: Path, extras: str, torch_version: str, uv: str | None) -> None:
        self.root = root
        self.extras = extras
        self.torch_version = torch_version
        self.uv = uv
        self.venv = root / (f".venv-{extras}" if extras in ADAPTERS else ".venv")
        self.python = self.venv / "bin" / "python"
        self.log = self.venv / "setup.log"
        # pip's temporary folder: its downloads can be measured there, and what a killed run left is removed.
        self.downloads = self.venv / "tmp"
        self.started = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.started:4.0f} s  {text}", flush=True)

    # -- what is there ------------------------------------------------------------------------------------------

    def site_packages(self) -> Path | None:
        """Where the environment's own Python looks for packages; None where it does not run or is of no use."""
        code = "import sys; print('python%d.%d' % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))"
        try:
            name = subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return None
        found = self.venv / "lib" / name / "site-packages"
        return found if found.is_dir() else None

    def installed(self) -> int:
        """How many packages are installed: INSTALLER is the last thing written but for RECORD."""
        return sum(1 for _ in self.venv.glob("lib/python*/site-packages/*.dist-info/INSTALLER"))

    def stamps(self) -> dict[Path, str]:
        """The files that say what is installed, with their text. Who has `dev` has `train`."""
        python = site.parent.name if (site := self.site_packages()) else "-"
        ranges = (self.root / "pyproject.toml").read_bytes()
        stamps = {}
        for name in ["train", "dev"] if self.extras == "dev" else [self.extras]:
            locks = [] if self.unlocked(python) else self.locks(name)
            digest = hashlib.sha256(ranges + b"".join(path.read_bytes() for path in locks)).hexdigest()
            stamps[self.venv / f".crbc-{name}"] = f"{self.venv}\n{python} torch {self.torch_version}\n{digest}\n"
        return stamps

    def locks(self, extras: str) -> list[Path]:
        """The files that name the versions and digests of an extra's packages, what builds packages first."""
        return [self.root / "requirements" / f"{name}.txt" for name in LOCKS[extras]]

    def unlocked(self, python: str) -> str:
        """Why the files of `locks` are of no use for a Python such as "python3.11"; empty where they are."""
        if os.environ.get("CRBC_UNLOCKED"):
            return "CRBC_UNLOCKED is set"
        if self.extras in ADAPTERS:
            return "they are not for other trainers"
        if python not in LOCKED_PYTHONS or platform.python_implementation() != "CPython":
            return f"it is not for {platform.python_implementation()} as {python}"
        if (machine := f"{platform.system()} {platform.machine()}") not in LOCKED_MACHINES:
            return f"it is not for {machine}"
        return "it is not for a Linux without glibc" if machine[0] == "L" and not platform.libc_ver()[0] else ""

    def fault(self) -> str:
        """Why `.venv` has to be made again; empty where it is in order."""
        site = self.site_packages()
        if site is None:
            return "its Python is gone, too old or another one"
        # pip writes INSTALLER last, and venv the script `activate`.
        if not (self.uv or any(site.glob("pip-*.dist-info/INSTALLER"))) or not (self.venv / "bin/activate").exists():
            return "it was only half made"
        for stamp in self.venv.glob(".crbc-*"):
            if (text := stamp.read_text("utf-8")) and not text.startswith(f"{self.venv}\n"):
                return "it was made in another folder"
        return ""

    def up_to_date(self) -> bool:
        stamps = self.stamps()
        there = all(path.is_file() and path.read_text("utf-8") == text for path, text in stamps.items())
        return there and not self.fault()

    # -- steps --------------------------------------------------------------------------------------------------

    def wait_for(self, file: IO[bytes]) -> None:
        """Locks a file: one set-up of a clone at a time. pip inherits the lock, as it may outlive a killed set-up."""
        with contextlib.suppress(OSError):  # a file system without locks
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError:
                    self.say("another set-up of this folder is running: waiting for it")
                    time.sleep(TICK)

    def run(self, doing: str, command: Sequence[str | Path]) -> None:
        """Runs a step, with a line every few seconds. Raises `SetupError` with the end of its log where it fails."""
        self.say(doing)
        installed = self.installed()
        self.downloads.mkdir(parents=True, exist_ok=True)
        path = f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "DEBIAN_FRONTEND": "noninteractive"}
        env = {**os.environ, **quiet, "PATH": path, "TMPDIR": str(self.downloads), "PYTHONUNBUFFERED": "1"}
        with self.log.open("ab") as log:
            start = log.tell()
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.root, env=env, close_fds=False
            )
        try:
            while True:
                try:
                    status = process.wait(TICK)
                    break
                except subprocess.TimeoutExpired:
                    done = self.installed() - installed
                    self.say(activity(self.told(start), self.downloads, done) or doing)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if status:
            raise SetupError(
                f"set-up failed: {doing}\n{explain(self.told(start))}\nall of it: {self.log}; then run again"
            )

    def told(self, start: int) -> list[str]:
        with self.log.open("rb") as log:
            log.seek(start)
            return log.read().decode("utf-8", "replace").splitlines()

    def install(self, doing: str, *what: str) -> None:
        pip: list[str | Path] = [self.python, "-m", "pip", "install"]
        if self.uv:
            pip = [self.uv, "pip", "install", "--python", str(self.python), "--compile-bytecode"]
        self.run(doing, [*pip, *what])

    def make_venv(self) -> None:
        """An environment in order, empty where there was none. Raises `SetupError` where Python cannot make one."""
        if (self.venv / "pyvenv.cfg").exists():
            if not (fault := self.fault()):
                return
            self.say(f"removing {self.venv.name}: {fault}")
        # Debian has it apart. A folder that is left of it is a module without an origin.
        ensurepip = importlib.util.find_spec("ensurepip")
        if not self.uv and (ensurepip is None or ensurepip.origin is None):
            package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
            raise SetupError(f"this Python cannot make environments. On Debian: {debian([package])}")
        self.venv.mkdir(exist_ok=True)
        for entry in self.venv.iterdir():
            if entry != self.log:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        # uv installs without a pip inside, and makes pip one of the packages.
        bare = ["--without-pip"] if self.uv else []
        version = platform.python_version()
        # Not sys.executable: it may be .venv's own, which is gone now.
        python = getattr(sys, "_base_executable", sys.executable)
        self.run(f"making {self.venv.name} with Python {version}", [python, "-m", "venv", *bare, self.venv])

    def install_packages(self) -> None:
        site = self.site_packages()
        assert site is not None, "make_venv has made it"
        # INSTALLER is written last: without it a package is taken for installed, and lacks files.
        for info in site.glob("*.dist-info"):
            if not (info / "INSTALLER").exists():
                shutil.rmtree(info)
        if reason := self.unlocked(site.parent.name):
            self.say(f"without the versions and digests of requirements/ ({reason}): the newest of pyproject.toml")
            if ADAPTERS.get(self.extras, True):
                self.install_torch(site)
            pip = ["pip"] if self.uv else []
            self.install(f"installing what crbc[{self.extras}] needs", *pip, "--editable", f".[{self.extras}]")
            return
        # A package that has no wheel is built with what `build` brought, and nothing else is fetched for it.
        locked = ("--require-hashes", "--no-deps", "--no-build-isolation")
        build, *others = (f"--requirement={path}" for path in self.locks(self.extras))
        self.install("installing pip and what builds packages", *locked, build)
        self.install(f"installing what crbc[{self.extras}] needs", *locked, *others)
        # It finds what it needs but CUDA's packages. Then whatever is missing or does not fit is an error.
        self.install_torch(site)
        self.install("installing crbc", "--no-index", "--no-build-isolation", "--editable", f".[{self.extras}]")

    def install_torch(self, site: Path) -> None:
        if any(site.glob(f"torch-{self.torch_version}[.+]*dist-info")):
            return
        torch = choose_torch(
            self.torch_version,
            os.environ.get("CRBC_TORCH_INDEX", ""),
            system=platform.system(),
            gpu=has_gpu(),
            reachable=answers,
        )
        index = ["--extra-index-url", torch.index] if torch.index else []
        self.install(f"installing torch {torch.version}: {torch.why}", f"torch=={torch.version}", *index)

    def warn(self) -> None:
        """Names an installed package whose files lie over ours."""
        if any(self.venv.glob("lib/python*/site-packages/anchors-*.dist-info")):
            mend = shlex.join([str(self.python), "-m", "pip", "uninstall", "-y", "anchors"])
            self.say(f"an unrelated package `anchors` hides this project's own, and crbc cannot work: {mend}")

    def go(self) -> None:
        """Everything there is to do. Raises `SetupError` where a step fails."""
        missing = missing_programs() if self.extras == "dev" else {}
        command = debian(sorted(set(missing.values())))
        if missing and not (os.geteuid() == 0 and shutil.which("apt-get")):
            raise SetupError(f"missing for the tests: {', '.join(missing)}. On Debian or Ubuntu: {command}")
        if not missing and self.up_to_date():
            self.warn()
            return
        with (self.root / "pyproject.toml").open("rb+") as file:
            self.wait_for(file)
            os.set_inheritable(file.fileno(), True)
            shutil.rmtree(self.downloads, ignore_errors=True)
            if missing:
                self.run("looking up Debian's packages", ["apt-get", "update"])
                self.run(f"installing {', '.join(missing)}", shlex.split(command))
            if self.up_to_date():
                return
            self.make_venv()
            for stamp in self.stamps():  # of nothing yet: a step that fails leaves neither the old packages nor the new
                stamp.write_text(f"{self.venv}\n", "utf-8")
            self.install_packages()
            shutil.rmtree(self.downloads)
            for stamp, text in self.stamps().items():
                stamp.write_text(text, "utf-8")
            self.say(f"{self.venv.name} is ready")
            self.warn()


def debian(packages: Sequence[str]) -> str:
    """The command that installs Debian packages."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install -y --no-install-recommends {' '.join(packages)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the set-up; the module's docstring lists the exit statuses."""
    parser = argparse.ArgumentParser(description="Make .venv, or bring it up to date.")
    parser.add_argument("extras", choices=(*LOCKS, *ADAPTERS))
    extras = parser.parse_args(arguments).extras
    try:
        Setup(ROOT, extras, torch_version(os.environ.get("CRBC_TORCH", "")), shutil.which("uv")).go()
    except SetupError as error:
        print(error, file=sys.stderr)
        return error.status
    except OSError as error:  # a full disk, a folder that may not be written
        print(f"set-up failed: {error}; mend that and run again", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("set-up stopped; run the same command again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
