"""Installs and opens the official products.

`crbc data webshop --from DIR` copies the files and compares them with the published checksums. For each set of
files it builds a store of products and a search index. These open in milliseconds, and all workers share them.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path, PurePosixPath

from crbc_envs.errors import DataError
from crbc_envs.storage.datasets import Dataset, ProgressCallback, Unpacked, sha256_of
from crbc_envs.webshop.products.catalogue import HUMAN, SETS
from crbc_envs.webshop.products.store import StoredCatalogue, build_official_store, is_store
from crbc_envs.webshop.search import engine as search
from crbc_envs.webshop.shop import goals

PUBLISHED = {
    "items_shuffle_1000.json": "30a4765c3a327af72d9a9a95a6b2486d516f0fa1d3ecd83681901ce82a21b269",
    "items_ins_v2_1000.json": "f88a36314a397b53b3d9c3fa5878e5f7b26d35019a51ec83fbedeca61a948f6f",
    "items_human_ins.json": "cf78667548a71786e1d9049c24b802e48e1084ad4bb021cae56ce1f6d96954a3",
}
"""SHA-256 of the published files, if known. A copy that was saved again may differ and hold the same data."""

SMALL_GOALS = "08d9741dd8180d54f2c44e16677f5f71ea89717ef2e2822870a83fd8ca82e7ac"
"""SHA-256 of products and options of the small set's 6,910 synthetic goals, in the original's order."""

INDEX = "index"

GENERATED = "generated.json"
"""The file that a generated shop has, and an official set has not (`stored`)."""


def installed() -> Path:
    """The folder of the installed small set, else of the full one. Raises `DataError` if there is none."""
    for size in SETS:
        if is_store(DATASET.folder / size):
            return DATASET.folder / size
    raise DataError(f"{DATASET.folder}: no products; install the official files with: {DATASET.command}")


def open_official(folder: Path | None = None) -> tuple[StoredCatalogue, search.Index]:
    """Open the set of official products in a folder, by default the installed one, and its search index.

    Raises `DataError` if there is none or it is damaged.
    """
    folder = folder or installed()
    if (folder / GENERATED).is_file():
        raise DataError(f"{folder}: a generated shop; open it with data='generated'")
    catalogue, index = StoredCatalogue(folder), search.Index.open(folder / INDEX)
    index.check(catalogue)
    return catalogue, index


def _place(path: PurePosixPath) -> PurePosixPath | None:
    """An official file, in any folder of the source."""
    known = {HUMAN, *(name for names in SETS.values() for name in names)}
    return PurePosixPath(path.name) if path.name in known else None


def _prepare(folder: Path, on_progress: ProgressCallback) -> None:
    """Build a store and an index for each complete set. Raises `DataError` for an incomplete one."""
    human = folder / HUMAN if (folder / HUMAN).is_file() else None
    for size, names in SETS.items():
        missing = [name for name in names if not (folder / name).is_file()]
        if len(missing) == len(names):
            continue
        if missing:
            raise DataError(f"{missing[0]}: missing; the {size} set needs {' and '.join(names)}: {DATASET.command}")
        try:
            build_official_store(folder / size, folder / names[0], folder / names[1], human, on_progress)
        except DataError as error:  # the user knows the files by their names, not where they are unpacked
            raise DataError(str(error).replace(f"{folder}{os.sep}", "")) from error
        (folder / size / INDEX).mkdir()
        search.build(StoredCatalogue(folder / size)).save(folder / size / INDEX)


def _check(unpacked: Unpacked) -> str:
    """The installed sets, and whether their files equal the published ones."""
    folder, lines = unpacked.folder, []
    for size in SETS:
        if (folder / size).is_dir():
            catalogue, _ = open_official(folder / size)
            human = len(list(catalogue.instructed(human=True)))
            lines.append(f"{size}: {len(catalogue):,} products, {human:,} of them with instructions by people")
            if size == "small":
                lines.append(_small_goals(catalogue))
            elif len(catalogue) <= goals.MOST_SYNTHETIC:
                goals.draw(catalogue, "synthetic", price_seed=0)  # what it refuses must not be installed
    if not lines:
        raise DataError(
            f"{unpacked.sources}: {HUMAN} alone is not a set of products; give {DATASET.required}: {DATASET.command}"
        )
    for name, published in PUBLISHED.items():
        if (folder / name).is_file() and sha256_of(folder / name) != published:
            lines.append(f"{name} is another copy than the published one")
    return "; ".join(lines)


def _small_goals(catalogue: StoredCatalogue) -> str:
    drawn = goals.shuffled(goals.draw(catalogue, "synthetic", price_seed=0)[1])
    lines = [f"{goal.asin}|{json.dumps(dict(goal.pairs), sort_keys=True)}" for goal in drawn]
    same = hashlib.sha256("\n".join(lines).encode()).hexdigest() == SMALL_GOALS
    return f"{len(drawn):,} goals, {'those' if same else 'not those'} of the original, in its order"


DATASET = Dataset(
    name="webshop",
    place=_place,
    check=_check,
    prepare=_prepare,
    required=f"WebShop's files, {' with '.join(SETS['small'])}, or {' with '.join(SETS['full'])}, and {HUMAN}",
    limit=16 * 2**30,
)
"""WebShop's products (Yao et al., 2022): the files that its setup script downloads."""
