"""Games, archives, recordings of play and products of others."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anchors import Rollout, RolloutGroup, Step
from crbc_envs.alfworld.engine.game import GAME_FILE, TRAJECTORY_FILE
from crbc_envs.alfworld.games.generate import game_json, generate_game, trajectory_json
from crbc_envs.storage.rollouts import RecordedTurn, write_groups
from hostile.case import HERE, OUTSIDE, RAN, Case

# ---- games -----------------------------------------------------------------------------------------


@lru_cache
def honest_game() -> tuple[str, str]:
    """The two files of a small honest game."""
    game = generate_game(np.random.default_rng(0), "clean", size="small")
    return game_json(game), trajectory_json(game)


def game(change: Callable[[dict[str, Any], str], None]) -> Callable[[Path], None]:
    """Lays out FOLDER/here/games with one game, after `change`, which gets its fields and a payload.

    The payload is Python that makes a file in FOLDER/outside.
    """

    def make(folder: Path) -> None:
        text, trajectory = honest_game()
        fields = json.loads(text)
        change(fields, f"__import__('pathlib').Path('{folder / OUTSIDE / RAN}').touch()")
        write_game(folder, json.dumps(fields), trajectory)

    return make


def write_game(folder: Path, text: str, trajectory: str) -> None:
    place = folder / HERE / "games" / "train" / "clean" / "trial"
    place.mkdir(parents=True)
    (place / GAME_FILE).write_text(text, encoding="utf-8")
    (place / TRAJECTORY_FILE).write_text(trajectory, encoding="utf-8")


def play(folder: Path, engine: Any = "exact") -> None:
    """Play the game: look, open and close a receptacle, and whatever the first command is."""
    from crbc_envs.alfworld.env import AlfworldEnv

    env = AlfworldEnv(data="official", data_dir=folder / HERE / "games", engine=engine)
    env.reset(seed=0, options={"task": 0})
    for start in ("look", "inventory", "go to", "examine", "close"):
        commands = env.backend.admissible
        env.step(next((command for command in commands if command.startswith(start)), commands[0]))


def play_textworld(folder: Path) -> None:
    play(folder, "textworld")


def in_grammar(old: str, new: str) -> Callable[[dict[str, Any], str], None]:
    """Replaces a text in the grammar; CODE in the new one becomes the payload."""

    def change(fields: dict[str, Any], payload: str) -> None:
        assert old in fields["grammar"]
        fields["grammar"] = fields["grammar"].replace(old, new.replace("CODE", payload), 1)

    return change


def in_sentence(text: str) -> Callable[[dict[str, Any], str], None]:
    return in_grammar("Your task is to: ", f"Your task is to: {text}")


def more_grammar(text: str) -> Callable[[dict[str, Any], str], None]:
    def change(fields: dict[str, Any], payload: str) -> None:
        fields["grammar"] += "\n" + text.replace("CODE", payload)

    return change


def in_field(key: str, old: str, new: str) -> Callable[[dict[str, Any], str], None]:
    def change(fields: dict[str, Any], payload: str) -> None:
        assert old in fields[key]
        fields[key] = fields[key].replace(old, new)

    return change


def set_field(key: str, value: Any) -> Callable[[dict[str, Any], str], None]:
    return lambda fields, payload: fields.update({key: value})


def goal(text: str) -> Callable[[dict[str, Any], str], None]:
    def change(fields: dict[str, Any], payload: str) -> None:
        head, _, _ = fields["pddl_problem"].partition("(:goal")
        fields["pddl_problem"] = f"{head}(:goal {text}))"

    return change


def more_names(count: int, length: int = 0) -> Callable[[dict[str, Any], str], None]:
    """More objects, all in the first receptacle; or one whose name has `length` characters."""
    names = [f"apple_bar_{n}" for n in range(count)] if not length else [f"apple_bar_{'1' * length}"]

    def change(fields: dict[str, Any], payload: str) -> None:
        problem = fields["pddl_problem"]
        receptacle = problem.partition("(receptacleType ")[2].split()[0]
        facts = "".join(f"(objectType {name} AppleType)(inReceptacle {name} {receptacle})" for name in names)
        problem = problem.replace("agent1 - agent", "agent1 - agent\n" + "\n".join(f"{n} - object" for n in names))
        fields["pddl_problem"] = problem.replace("(:init", f"(:init {facts}")

    return change


CODE = "no code from data"
READER = "bounds in the game reader"
SECOND = 'action look { feedback :: "x {CODE}"; template :: "look"; }'
LATER = '[{"condition": "openable(r:receptacle)", "rhs": "You close the {r.name}."}, {"rhs": "{CODE}"}]'
DOUBLE = 'grammar :: """\n{"task": [{"rhs": "Your task is to: {CODE}"}]}\n""";'

TEXTWORLD: dict[str, Callable[[dict[str, Any], str], None]] = {
    "game-code-in-the-sentence": in_sentence("{CODE}"),
    "game-code-in-a-second-sentence": more_grammar(DOUBLE),
    "game-code-in-a-later-rule": in_grammar('[{"rhs": "You close the {r.name}."}]', LATER),
    "game-code-as-feedback-of-look": in_grammar('feedback :: "#look.feedback#"', 'feedback :: "{CODE}"'),
    "game-code-in-a-second-action": more_grammar(SECOND),
    "game-code-in-a-condition": in_sentence("[{CODE | openable(r:receptacle)}]"),
    "game-code-behind-a-comment": more_grammar("# " + DOUBLE + "\n" + DOUBLE),
    "game-symbol-in-the-sentence": in_sentence("#look.feedback#"),
    "game-escapes-in-the-sentence": in_sentence("\\u007bCODE\\u007d"),
    "game-foreign-domain": in_field("pddl_domain", "(:functions", "(:derived (opened ?r) (openable ?r)) (:functions"),
    "game-names-longer-than-the-planner": more_names(1, 4000),
}
"""What TextWorld would run, or its planner would read in C."""

EXACT: dict[str, tuple[Callable[[dict[str, Any], str], None], str]] = {
    "game-attribute-of-a-slot": (in_grammar('"close {r}"', '"close {r.__class__}"'), "unknown slot"),
    "game-slot-without-value": (in_grammar('"close {r}"', '"close {view}"'), "close"),
    "game-slot-twice": (in_grammar('"close {r}"', '"close {r} {r}"'), "close"),
    "game-sentence-bad-escape": (in_sentence("\\x"), "task"),
    "game-sentence-control-codes": (in_sentence("\\u001b[2J"), "task"),
    "game-grammar-deep": (more_grammar('grammar :: """' + "[" * 30_000 + '""";'), "nested too deeply"),
    "game-grammar-list": (more_grammar('grammar :: """[1]""";'), "grammar"),
    "game-grammar-of-quotes": (more_grammar('"Your task is to: \\' * 300_000), "grammar"),
    "game-goal-deep": (goal("(not " * 5_000 + "(= a b)" + ")" * 5_000), "nested"),
    "game-goal-explodes": (
        goal("(exists (" + " ".join(f"?o{n} - object" for n in range(12)) + ") (isHot ?o0))"),
        "goal",
    ),
    "game-goal-arguments-missing": (goal("(isHot)"), "ishot"),
    "game-goal-lists": (goal("(exists (?o - object) ((a) b))"), "goal"),
    "game-goal-empty": (goal("(and ())"), "goal"),
    "game-facts-arguments-missing": (in_field("pddl_problem", "(:init", "(:init (openable)"), "openable"),
    "game-many-objects": (more_names(40_000), "problem"),
    "game-walkthrough-of-numbers": (set_field("walkthrough", [1, {}]), "walkthrough"),
    "game-solvable-is-a-list": (set_field("solvable", [1]), "holds no game"),
    "game-domain-is-a-number": (set_field("pddl_domain", 1), "pddl_domain"),
}


def deep_game(folder: Path) -> None:
    write_game(folder, "[" * 200_000, honest_game()[1])


def huge_game(folder: Path) -> None:
    write_game(folder, "", honest_game()[1])
    with next((folder / HERE).rglob(GAME_FILE)).open("r+b") as file:
        file.truncate(3 << 30)


def task_type_list(folder: Path) -> None:
    write_game(folder, honest_game()[0], json.dumps({"task_type": [["x" * 1000] * 50]}))


def game_named_markup(folder: Path) -> None:
    write_game(folder, honest_game()[0], "{}")
    (folder / HERE / "games" / "train" / "clean").rename(folder / HERE / "games" / "train" / "[/red]\x1b[2J")


GAMES = [
    Case("game-honest", "what is honest still works", 0, make=game(lambda *_: None), probe=play),
    *(
        Case(name, CODE, 2, says=("clean/trial:",), make=game(change), probe=play_textworld)
        for name, change in TEXTWORLD.items()
    ),
    *(Case(name, READER, 2, says=(said,), make=game(change), probe=play) for name, (change, said) in EXACT.items()),
    Case("game-json-deep", READER, 2, says=("nested too deeply",), make=deep_game, probe=play),
    Case("game-file-of-3-gib", READER, 2, says=("game.tw-pddl",), make=huge_game, probe=play),
    Case("game-task-type-is-a-list", READER, 2, says=("holds no game",), make=task_type_list, probe=play),
]

# ---- archives --------------------------------------------------------------------------------------

NAME = "json_2.1.1/train/clean/trial/"
Tar = Iterator[bytes]


def header(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def checked(head: bytes) -> bytes:
    """A changed header with the checksum that it should have."""
    blank = head[:148] + b" " * 8 + head[156:]
    return blank.replace(b" " * 8, f"{sum(blank):06o}\0 ".encode(), 1)


def record(keyword: str, value: str) -> bytes:
    """A record of a PAX header."""
    rest = f" {keyword}={value}\n".encode()
    length = len(rest) + len(str(len(rest)))
    return str(length + (len(str(length)) > len(str(len(rest))))).encode() + rest


def pax(*records: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    content = b"".join(records)
    return header("pax", len(content), kind) + content + bytes(-len(content) % 512)


def plain(name: str = f"{NAME}game.tw-pddl", content: bytes = b"{}") -> bytes:
    return header(name, len(content)) + content + bytes(-len(content) % 512)


MIB = 1 << 20


def of_zeros(mebibytes: int) -> Callable[[], Tar]:
    return lambda: (bytes(MIB) for _ in range(mebibytes))


def tar_gz(*parts: bytes | Callable[[], Tar]) -> Callable[[Path], None]:
    """Lays out FOLDER/here/a.tar.gz. Runs of equal blocks are compressed once."""

    def make(folder: Path) -> None:
        compressed: dict[bytes, bytes] = {}
        with (folder / HERE / "a.tar.gz").open("wb") as file:
            for part in parts:
                for block in [part] if isinstance(part, bytes) else part():
                    if block not in compressed:
                        compressed[block] = gzip.compress(block, 6)
                    file.write(compressed[block])

    return make


def tiny_members() -> Tar:
    block = b"".join(header(f"x{n % 10}") for n in range(1000))
    return (block for _ in range(1500))


def chained_headers() -> Tar:
    return (pax(record("comment", "x")) * 100 for _ in range(50))


def global_headers() -> Tar:
    for n in range(20_000):
        yield pax(record(f"key{n}", "x" * 50_000), kind=tarfile.XGLTYPE) + header("x")


def sparse_map() -> Tar:
    """A map of holes as long as its member: version 1.0 has it in the data."""
    keys = record("GNU.sparse.major", "1"), record("GNU.sparse.minor", "0"), record("GNU.sparse.realsize", "9")
    yield pax(*keys, record("GNU.sparse.name", f"{NAME}game.tw-pddl"), record("size", str(900 * MIB)))
    yield header("sparse", 0) + b"099999999\n" + b"1\n" * 251
    yield from (b"1\n" * (MIB // 2) for _ in range(900))


def old_sparse() -> Tar:
    """A map of holes in headers: each says that another one follows."""
    head = bytearray(header(f"{NAME}game.tw-pddl", 0, tarfile.GNUTYPE_SPARSE))
    head[386:482] = (b"00000000001\0" * 8)[:96]
    head[482] = 1
    yield checked(bytes(head))
    block = ((b"00000000001\0" * 42) + b"\1" + bytes(7)) * 2048
    yield from (block for _ in range(600))


def xz(folder: Path) -> None:
    """Its dictionary has 4 GiB."""
    data = bytearray(lzma.compress(plain() + bytes(1024), lzma.FORMAT_XZ))
    length = (data[12] + 1) * 4
    place = data.index(b"\x21\x01", 12) + 2
    data[place] = 40
    data[12 + length - 4 : 12 + length] = zlib.crc32(bytes(data[12 : 12 + length - 4])).to_bytes(4, "little")
    (folder / HERE / "a.tar.gz").write_bytes(data)


CENTRAL = b"PK\1\2" + struct.pack("<HHHHHHIIIHHHHHII", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"


def end_of(entries: int, size: int, offset: int) -> bytes:
    return b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, entries & 0xFFFF, entries & 0xFFFF, size, offset, 0)


def zip_of_bytes(*parts: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / HERE / "a.tar.gz").write_bytes(b"".join(parts))  # type: ignore[return-value]


def zip_of(*names: str, change: Callable[[bytes], bytes] = lambda data: data) -> Callable[[Path], None]:
    """Lays out a zip of an honest game's files under these names, after `change`. Its suffix is of no use."""

    def make(folder: Path) -> None:
        text, trajectory = honest_game()
        path = folder / HERE / "a.tar.gz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in names:
                archive.writestr(name, trajectory if name.endswith(TRAJECTORY_FILE) else text)
        path.write_bytes(change(path.read_bytes()))

    return make


def overlapping(folder: Path) -> None:
    """A thousand members that are the same 16 MiB."""
    content = zlib.compress(bytes(16 * MIB), 9)[2:-4]
    sizes = zlib.crc32(bytes(16 * MIB)), len(content), 16 * MIB
    names = [f"json_2.1.1/train/clean/t{n:04}/game.tw-pddl".encode() for n in range(1000)]
    local = b"PK\3\4" + struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0, *sizes, len(names[0]), 0) + names[0] + content
    rows = (struct.pack("<HHHHHHIIIHHHHHII", 20, 20, 0, 8, 0, 0, *sizes, len(name), 0, 0, 0, 0, 0, 0) for name in names)
    central = b"".join(b"PK\1\2" + row + name for row, name in zip(rows, names, strict=True))
    zip_of_bytes(local, central, end_of(1000, len(central), len(local)))(folder)


def not_utf8(data: bytes) -> bytes:
    """Its name is said to be UTF-8, and is not."""
    place = data.index(b"PK\1\2")
    changed = bytearray(data)
    changed[place + 9] |= 8
    changed[place + 46] = 0xFF
    return bytes(changed)


def linked_file(folder: Path) -> None:
    text, trajectory = honest_game()
    write_game(folder, text, trajectory)
    path = next((folder / HERE).rglob(GAME_FILE))
    path.unlink()
    path.symlink_to(folder / OUTSIDE / "precious.txt")


def pipe(folder: Path) -> None:
    write_game(folder, *honest_game())
    path = next((folder / HERE).rglob(GAME_FILE))
    path.unlink()
    os.mkfifo(path)


def staging_link(folder: Path) -> None:
    write_game(folder, *honest_game())
    (folder / HERE / "data").mkdir()
    (folder / HERE / "data" / ".alfworld.unpacking").symlink_to(folder / OUTSIDE)


def manifest_outside(folder: Path) -> None:
    place = folder / HERE / "data" / "alfworld"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text(json.dumps({"sha256": {"/dev/stdin": "0", "../../secret": "1"}}))


def manifest_deep(folder: Path) -> None:
    place = folder / HERE / "data" / "alfworld"
    place.mkdir(parents=True)
    (place / "manifest.json").write_text('{"sha256":' * 100_000)


BOTH = f"{NAME}game.tw-pddl", f"{NAME}traj_data.json"
ARCHIVE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "tar-pax-header-of-1.5-gib": ("header", tar_gz(header("p", 1536 * MIB, tarfile.XHDTYPE), of_zeros(1536))),
    "tar-long-name-of-1.5-gib": ("header", tar_gz(header("p", 1536 * MIB, tarfile.GNUTYPE_LONGNAME), of_zeros(1536))),
    "tar-header-upon-header": ("header", tar_gz(chained_headers)),
    "tar-keywords-for-all": ("a.tar.gz", tar_gz(global_headers)),
    "tar-sparse-map": ("a.tar.gz", tar_gz(sparse_map)),
    "tar-sparse-headers": ("a.tar.gz", tar_gz(old_sparse)),
    "tar-sparse-hole": (
        "not a plain file",
        tar_gz(pax(record("GNU.sparse.map", "0,1"), record("GNU.sparse.size", str(8 << 30))), plain(), bytes(1024)),
    ),
    "tar-negative-size": ("a.tar.gz", tar_gz(pax(record("size", "-1024")), plain(), bytes(1024))),
    "tar-size-beyond-64-bits": ("a.tar.gz", tar_gz(pax(record("size", "9" * 30)), plain(), bytes(1024))),
    "tar-size-negative-base-256": (
        "a.tar.gz",
        tar_gz(checked(header("x")[:124] + b"\xff" * 12 + header("x")[136:]), bytes(1024)),
    ),
    "tar-1.5-million-members": ("members", tar_gz(tiny_members, bytes(1024))),
    "tar-bomb": ("unpacked it has more", tar_gz(header(f"{NAME}game.tw-pddl", 6 << 30), of_zeros(6144))),
    "tar-6-gib-after-its-end": ("follows its end", tar_gz(plain(), bytes(1024), of_zeros(6144))),
    "tar-name-of-60-kb": ("outside", tar_gz(pax(record("path", "x/" * 30_000)), plain(), bytes(1024))),
    "tar-name-of-a-device": ("outside", tar_gz(plain("json/train/NUL/trial/game.tw-pddl"), bytes(1024))),
    "tar-gzip-of-gzip": ("damaged", tar_gz(gzip.compress(plain() + bytes(1024)))),
    "xz-dictionary-of-4-gib": ("memory", xz),
    "zip-a-million-entries": ("directory", zip_of_bytes(CENTRAL * 1_000_000, end_of(65535, 47_000_000, 0))),
    "zip-claims-a-directory-of-4-gib": ("damaged", zip_of_bytes(CENTRAL, end_of(1, 0xFFFFFFF0, 0))),
    "zip-members-overlap": ("a.tar.gz", overlapping),
    "zip-name-is-no-utf-8": ("damaged", zip_of(*BOTH, change=not_utf8)),
    "zip-other-local-header": ("damaged", zip_of(*BOTH, change=lambda data: data.replace(b"json_2", b"../../", 1))),
    "zip-names-differ-in-case": ("twice", zip_of(BOTH[0], BOTH[0].replace("trial", "Trial"))),
    "zip-name-of-60-kb": ("outside", zip_of("x/" * 30_000 + BOTH[0])),
}
SOURCES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "folder-with-a-link-to-a-file": ("is a link to", linked_file),
    "folder-with-a-pipe": ("holds no game", pipe),
}
BOUNDS = "archive headers and members"
ARCHIVES = [
    *(
        Case(f"archive-{name}", BOUNDS, 2, (said,), make=make, argv=("data", "alfworld", "--from", "{here}/a.tar.gz"))
        for name, (said, make) in ARCHIVE.items()
    ),
    *(
        Case(f"archive-{name}", BOUNDS, 2, (said,), make=make, argv=("data", "alfworld", "--from", "{here}/games"))
        for name, (said, make) in SOURCES.items()
    ),
    Case(
        name="archive-honest-zip",
        finding="what is honest still works",
        status=0,
        says=("train 1 games",),
        make=zip_of(*BOTH),
        argv=("data", "alfworld", "--from", "{here}/a.tar.gz"),
    ),
    Case(
        name="archive-unpacked-through-a-link",
        finding="no write elsewhere",
        status=0,
        says=("train 1 games",),
        make=staging_link,
        argv=("data", "alfworld", "--from", "{here}/games"),
    ),
    Case("archive-manifest-outside", BOUNDS, 2, ("damaged",), make=manifest_outside, argv=("data", "alfworld")),
    Case("archive-manifest-deep", BOUNDS, 2, ("damaged",), make=manifest_deep, argv=("data", "alfworld")),
]

# ---- recordings of play ----------------------------------------------------------------------------


def recording(folder: Path) -> Path:
    """FOLDER/here/a.parquet with one group of two rollouts of three steps, and with turns."""
    steps = [Step(f"anchor {t}", f"go {t}", 1.0, f"label {t}") for t in range(3)]
    group = RolloutGroup([Rollout(steps, True), Rollout(steps, False)], "task")
    turns = [RecordedTurn("prompt", "reply", -1.0, (1, 2), (3,)) for _ in range(6)]
    path = folder / HERE / "a.parquet"
    write_groups(path, [group], env_id="CRBC-Sokoban-v0", turns=turns)
    return path


def parquet(change: Callable[[Any], Any], **options: Any) -> Callable[[Path], None]:
    """Lays out the recording after `change` of its table."""

    def make(folder: Path) -> None:
        path = recording(folder)
        pq.write_table(change(pq.read_table(path)), path, **options)

    return make


def column(name: str, values: Callable[[int], Any]) -> Callable[[Any], Any]:
    def change(table: Any) -> Any:
        return table.set_column(table.schema.get_field_index(name), name, values(table.num_rows))

    return change


def head(**changed: Any) -> Callable[[Any], Any]:
    def change(table: Any) -> Any:
        header = json.loads(table.schema.metadata[b"crbc"]) | changed
        return table.replace_schema_metadata({"crbc": json.dumps(header)})

    return change


def raw_head(text: str) -> Callable[[Any], Any]:
    return lambda table: table.replace_schema_metadata({"crbc": text})


def times(count: int) -> Callable[[Any], Any]:
    """So many rows, all of them the first one."""
    return lambda table: table.take(np.zeros(count, np.int64))


def long_label(table: Any) -> Any:
    """A dictionary of one label of 40 MB, in each of 3,000 rows: 120 GB when written out."""
    table = times(3_000)(table)
    label = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3_000, np.int32)), pa.array(["x" * 40_000_000]))
    return table.set_column(table.schema.get_field_index("label"), "label", label)


def one_row_of_ids(table: Any) -> Any:
    """One row with 150 million token ids, all of them zero."""
    ids = pa.ListArray.from_arrays(pa.array([0, *[150_000_000] * 6], pa.int32()), np.zeros(150_000_000, np.int64))
    return table.set_column(table.schema.get_field_index("prompt_ids"), "prompt_ids", ids)


def page_lies(folder: Path) -> None:
    """A page's header claims 2 GiB, and the footer claims as little as before."""
    path = recording(folder)
    pq.write_table(pq.read_table(path), path, compression="zstd", use_dictionary=False, write_statistics=False)
    data = path.read_bytes()
    place = pq.read_metadata(path).row_group(0).column(0).data_page_offset
    metadata = pq.read_metadata(path).row_group(0).column(0)
    page = data[place : place + metadata.total_compressed_size]
    size = page[3:]
    width = next(n for n, byte in enumerate(size, start=1) if byte < 128)
    big = b"\xfe\xff\xff\xff\x0f"  # the largest 32-bit number
    assert page[2] == 0x15, "the second field is a number"
    # The header grows, so the data of the page is cut by as many bytes: what is claimed is met first.
    forged = page[:3] + big + page[3 + width :]
    path.write_bytes(data[:place] + forged[: len(page)] + data[place + len(page) :])


def big_png(pixels: int) -> bytes:
    """A PNG of that many pixels a side, in a few kilobytes or none."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    row = zlib.compress(bytes(MIB))
    shape = chunk(b"IHDR", struct.pack(">IIBBBBB", pixels, pixels, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + shape + chunk(b"IDAT", row) + chunk(b"IEND", b"")


def with_image(png: bytes | None) -> Callable[[Any], Any]:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])

    def change(table: Any) -> Any:
        return table.append_column("image", pa.array([{"bytes": png, "path": None}] * 6, kind))

    return change


def read(folder: Path) -> None:
    from crbc_envs import read_recording

    read_recording(folder / HERE / "a.parquet")


def read_frames(folder: Path) -> None:
    from crbc_envs import read_recording
    from crbc_envs.storage.rollouts import decode_frame

    for png in read_recording(folder / HERE / "a.parquet").images or ():
        decode_frame(png)


def of(value: Any, kind: Any) -> Callable[[int], Any]:
    return lambda rows: pa.array([value] * rows, kind)


WIDE = {f"c{n}": pa.array([1]) for n in range(30_000)}
PARQUET: dict[str, tuple[str, Callable[[Path], None]]] = {
    "rows-2-million": ("rows", parquet(times(2_000_000))),
    "rows-900-thousand-alike": ("missing", parquet(times(900_000))),
    "label-of-120-gb": ("missing", parquet(long_label)),
    "ids-150-million": ("in memory", parquet(one_row_of_ids)),
    "page-claims-2-gib": ("a.parquet", page_lies),
    "lengths-1e9": ("header is damaged", parquet(head(lengths=[[10**9, 10**9]]))),
    "lengths-negative": ("header is damaged", parquet(head(lengths=[[-1, 7]]))),
    "lengths-of-texts": ("header is damaged", parquet(head(lengths=[["3", True]]))),
    "lengths-nested": ("header is damaged", parquet(head(lengths=[[[3], {}]]))),
    "lengths-nothing": ("header is damaged", parquet(head(lengths=[]))),
    "environment-is-a-list": ("header is damaged", parquet(head(env_id=[1]))),
    "version-of-a-megabyte": ("record version", parquet(head(version="9\x1b[2J" * 100_000))),
    "header-deep": ("header is damaged", parquet(raw_head("[" * 200_000))),
    "header-number": ("header is damaged", parquet(raw_head('{"version": 1, "x": ' + "9" * 6_000 + "}"))),
    "group-2-to-62": ("no such row", parquet(column("group", of(2**62, pa.int64())))),
    "step-negative": ("no such row", parquet(column("step", of(-(2**63), pa.int64())))),
    "reward-nan": ("finite", parquet(column("reward", of(float("nan"), pa.float64())))),
    "reward-infinite": ("finite", parquet(column("reward", of(float("inf"), pa.float64())))),
    "logprob-infinite": ("finite", parquet(column("logprob", of(float("-inf"), pa.float64())))),
    "score-of-7": ("from 0 to 1", parquet(column("score", of(7.0, pa.float64())))),
    "ids-without-value": ("no value", parquet(column("reply_ids", of([None], pa.list_(pa.int64()))))),
    "anchor-is-a-number": ("column 'anchor'", parquet(column("anchor", of(7, pa.int64())))),
    "label-is-no-utf-8": (
        "damaged",
        parquet(column("label", lambda rows: pa.array([b"\xed\xa0\x80"] * rows).view(pa.string()))),
    ),
    "anchors-of-a-megabyte": (
        "starts at anchor",
        parquet(column("anchor", lambda rows: pa.array([f"{n}" * 1_000_000 for n in range(rows)]))),
    ),
    "columns-30-thousand": ("a.parquet", lambda folder: pq.write_table(pa.table(WIDE), folder / HERE / "a.parquet")),
    "row-groups-20-thousand": ("a.parquet", parquet(times(20_000), row_group_size=1)),
    "image-without-bytes": ("no value", parquet(with_image(None))),
}
FRAMES = {
    "image-no-png": with_image(b"GIF89a"),
    "image-of-1e9-pixels": with_image(big_png(32_000)),
    "image-of-9e7-pixels": with_image(big_png(9_400)),
    "image-cut-short": with_image(big_png(64)[:60]),
}
RECORDINGS = [
    Case(
        "recording-honest",
        "what is honest still works",
        0,
        make=lambda folder: (recording(folder), None)[1],
        probe=read,
    ),
    *(
        Case(f"recording-{name}", "Parquet rows and lengths", 2, (said,), make=make, probe=read)
        for name, (said, make) in PARQUET.items()
    ),
    *(
        Case(f"recording-{name}", "images of a recording", 2, ("image",), make=parquet(change), probe=read_frames)
        for name, change in FRAMES.items()
    ),
]

CASES = [*GAMES, *ARCHIVES, *RECORDINGS]
