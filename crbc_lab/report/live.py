"""The page of `crbc report`, served: it follows its files, lists recordings, and computes estimators on request."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from html import escape
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from crbc_envs.errors import DataError
from crbc_envs.local_server import Response
from crbc_envs.storage.rollouts import outcomes_of
from crbc_lab.report.content import drawn, first_of, shown
from crbc_lab.report.estimators import asked_for
from crbc_lab.report.group import Part
from crbc_lab.report.methods import runs_in
from crbc_lab.report.others import page_of
from crbc_lab.report.page import panel, written
from crbc_lab.report.scenes import Entry, Scene, read_scenes
from crbc_rl.credit import CreditError
from crbc_rl.errors import ConfigError

POLICY = "frame-ancestors 'none'"
"""Besides the page's own policy, which names its script."""
WATCHED = ("*.json", "*.jsonl", "config.yaml", "transcripts/*.parquet", "rollouts/*.parquet")
"""What a page is made of, in a run folder."""

Stamp = tuple[int, int]


class Live:
    """The page of what `crbc report` takes, or of files of recorded rollouts, for a `LocalServer`.

    GET /       the page; without groups, which it asks for
    GET /state  {"version": what changes when a file does, "age": seconds since the last one was written}
    GET /group  the panel of the group `key`, with the credit of the estimators `also` besides
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = places
        self._lock = threading.Lock()
        self._version = ""
        self._page: Part = {}
        self._scenes: dict[str, Scene] = {}
        self._recorded: dict[str, tuple[Path, int]] = {}
        self._listed: dict[tuple[Path, bool], tuple[Stamp, list[tuple[Entry, int]]]] = {}

    def respond(self, target: str) -> Response:
        asked = urlsplit(target)
        query = parse_qs(asked.query)
        try:
            if asked.path == "/":
                return Response(HTTPStatus.OK, self.page())
            if asked.path == "/state":
                version, age = self.state()
                return Response(HTTPStatus.OK, json.dumps({"version": version, "age": age}), "application/json")
            if asked.path == "/group":
                return Response(HTTPStatus.OK, self.group(query.get("key", [""])[0], query.get("also", [])))
            return Response(HTTPStatus.NOT_FOUND, f"there is no {asked.path}", "text/plain")
        except (ConfigError, CreditError, DataError) as error:
            if asked.path != "/":
                return Response(HTTPStatus.BAD_REQUEST, str(error), "text/plain")
            waits = (
                f'<!DOCTYPE html><meta http-equiv="refresh" content="2"><title>crbc</title><p>{escape(str(error))}</p>'
            )
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, waits)

    def reason(self) -> str | None:
        """Why there is nothing to show yet; None where there is."""
        try:
            self.page()
        except (ConfigError, DataError) as error:
            return str(error)
        return None

    def state(self) -> tuple[str, int]:
        """What tells one state of the files from another, and the seconds since the last of them was written, -1 where
        there is none."""
        stamps = {path: _stamp(path) for place in self.places for path in _watched(place)}
        told = json.dumps([[str(path), *stamp] for path, stamp in sorted(stamps.items())])
        newest = max((written for written, _ in stamps.values()), default=0) / 1e9
        return blake2b(told.encode(), digest_size=8).hexdigest(), max(0, round(time.time() - newest)) if newest else -1

    def page(self) -> str:
        """Raises `ConfigError` and `DataError` where there is nothing to show yet."""
        with self._lock:
            version, _ = self.state()
            if version != self._version:
                self._read()
                self._version = version
            return written(self._page, live=version)

    def group(self, key: str, also: Sequence[str]) -> str:
        """Raises `ConfigError` for an unknown group or estimator, and `DataError` for a damaged file."""
        if key in self._recorded:
            path, number = self._recorded[key]
            scene = replace(read_scenes(path, "training", only=[number])[0], key=key)
        elif key in self._scenes:
            scene = self._scenes[key]
        else:
            raise ConfigError(f"there is no group {key} here any more; choose another")
        return panel(drawn([scene], [asked_for(text) for text in also], tokens=sys.maxsize))

    def _read(self) -> None:
        files = [place for place in self.places if place.suffix == ".parquet"]
        if len(files) == len(self.places):
            self._page = {"title": ", ".join(path.name for path in files), **shown([], [])}
        else:
            self._page, _ = page_of([place for place in self.places if place not in files])
            files += [path for place in self.places for path in _recordings(place)]
        self._scenes = {scene.key: scene for scene in self._page["scenes"]}
        several = len({path.parent for path in files}) > 1
        rows = [(entry, path, number) for path in files for entry, number in self._entries(path, several)]
        self._recorded = {entry.key: (path, number) for entry, path, number in rows}
        listed = [entry for entry, _, _ in rows]
        self._page["first"] = first_of(self._page["index"] or listed)
        self._page["index"] = [*self._page["index"], *listed]

    def _entries(self, path: Path, several: bool) -> list[tuple[Entry, int]]:
        """The groups of a recording as a list has them, with their numbers; what is damaged is said in the page."""
        stamp, listed = _stamp(path), (path, several)
        if self._listed.get(listed, ((), []))[0] != stamp:
            try:
                self._listed[listed] = stamp, list(_entries(path, several))
            except DataError as error:
                self._page["left_out"] = [*self._page["left_out"], str(error)]
                return []
        return self._listed[listed][1]


def _entries(path: Path, several: bool) -> Iterator[tuple[Entry, int]]:
    """The groups of a recording under names that last: of several folders each has its own."""
    run, name = path.resolve().parent.parent, re.sub(r"[^\w.-]", "_", path.stem)
    key = f"{blake2b(str(run).encode(), digest_size=3).hexdigest()}-{name}" if several else name
    kind = f"recorded, {run.parent.name}/{run.name}/{path.name}" if several else f"recorded, {path.name}"
    for number, (task, won) in enumerate(outcomes_of(path)):
        told = f"{sum(won)} of {len(won)} solved" if len(won) > 1 else "solved" if won[0] else "failed"
        ends = "".join("01"[one] for one in won)
        yield Entry(f"{key}-{number}", kind, f"{number}: {told}, {task[:60]}", ends), number


def _recordings(place: Path) -> list[Path]:
    runs = [place] if (place / "config.yaml").is_file() else runs_in(place)
    return sorted(path for run in runs for path in run.glob("rollouts/*.parquet"))


def _watched(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place, place.with_suffix(".transcripts.parquet")]
    depths = [""] if (place / "config.yaml").is_file() else ["", "*/", "*/*/"]
    return [path for depth in depths for name in WATCHED for path in place.glob(depth + name)]


def _stamp(path: Path) -> Stamp:
    """When a file was written, in ns, and its bytes; zeros where it has gone."""
    try:
        told = path.stat()
    except FileNotFoundError:
        return 0, 0
    return told.st_mtime_ns, told.st_size
