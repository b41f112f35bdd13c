"""The commands that show what was played and learned: report, view and export."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Literal

from crbc_lab.commands.console import console, print_line, print_written, serve_pages
from crbc_lab.commands.parse import MaybePath, Port, RunPath
from crbc_rl.errors import ConfigError
from crbc_rl.names import find


def report(run: RunPath, /, *others: RunPath, out: MaybePath = None) -> None:
    """Write RUN/report.html: why rollouts failed, step by step, with what several estimators credit, and all curves.
    Of several runs write compared.html: which method is better, how sure that is, and where they act differently.

    Args:
        run: a run folder or its name in runs/, an evaluation's F.json, an agent's folder, or a folder of several runs.
        others: runs, or folders of runs, to be compared with the first. Runs that differ in their seed are together.
        out: the file to write instead, such as where the run folder cannot be written.
    """
    from crbc_lab.report import write_report

    print_line(console, str(write_report(*map(_place, (run, *others)), out=out)))


def view(run: RunPath, /, *others: RunPath, port: Port = 6100) -> None:
    """Serve the page of `crbc report` to browsers on this machine, and follow runs that go on. Ctrl-C ends it.

    It lists whole recordings, and computes any estimator with any option on request.

    Args:
        run: what `crbc report` takes, or a file of recorded rollouts, such as RUN/rollouts/000010.parquet.
        others: more of them; runs that differ in their seed are together.
        port: the port; 0 selects a free one.
    """
    from crbc_envs.local_server import LocalServer
    from crbc_lab.report.live import POLICY, Live

    places = [place if place.suffix == ".parquet" and place.is_file() else _place(place) for place in (run, *others)]
    if gone := [place for place in places if not place.exists()]:
        raise ConfigError(f"{gone[0]}: no such file or folder")
    live = Live(places)
    if (waiting := live.reason()) is not None:  # which lists recordings, before somebody waits for it
        print_line(console, f"nothing to show yet: {waiting}")
    try:
        server = LocalServer(live.respond, "the page", POLICY, port=port)
    except OSError as error:
        raise ConfigError(f"cannot serve at port {port}: {error.strerror}; choose another --port") from error
    serve_pages(console, server, "page")


def export(run: RunPath, /, out: MaybePath = None, format: Literal["inspect"] = "inspect") -> None:
    """Write what a run kept of its rollouts as logs for another viewer: inspect view start --log-dir RUN/inspect.

    Args:
        run: a run folder or its name in runs/.
        out: the folder of the logs; default RUN/inspect.
        format: inspect, for Inspect View: messages, success, and each step's V, Q and credit as metadata.
    """
    from crbc_lab.report.inspect_log import write_logs

    place = find(run, "run").path
    print_written(console, *write_logs(place, out or place / format))


def _place(run: Path) -> Path:
    """What `run` names: a folder or file as it is, or a run by its name."""
    if run.suffix == ".json" or (run / "agents.json").is_file() or any(run.glob("*/config.yaml")):
        return run
    if run.is_file() and run.suffix not in (".yaml", ".yml"):
        stem, kept, _ = run.name.partition(".transcripts.parquet")
        whole = quote(str(run.with_name(f"{stem}.json"))) if kept else "RUN"
        what = "a recording, and a page is of all it belongs to" if run.suffix == ".parquet" else "no run or evaluation"
        raise ConfigError(f"{run} is {what}: crbc report {whole}")
    return run if any(run.glob("*/*/config.yaml")) else find(run, "run").path
