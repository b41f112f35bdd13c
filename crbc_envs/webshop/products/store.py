"""The full catalogue on disk: products by number, in memory-mapped files that all workers share.

A store is a folder. `products.jsonl` has one product per line, in the order of the catalogue. NumPy arrays beside it
are `starts` (first byte of each line, and the end), `asins` and `sorted` (ASINs, and the product numbers in ASIN
order), `prices` (dollars; two columns, NaN if there are fewer), `instructed` (bit 0: has a synthetic instruction,
bit 1: has a human one), `category` and `query` (a digest of the text) and `kinds` (the place of the product's kind in
`kinds.json`). A store opens in milliseconds and reads only the products that are used. Products are read, not mapped:
mapped, every read would add its neighbours to the memory of the process.
"""

from __future__ import annotations

import json
import math
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import numpy as np

from crbc_envs.errors import DataError
from crbc_envs.storage import files
from crbc_envs.storage.datasets import ProgressCallback
from crbc_envs.storage.files import parse_json, replacing_folder
from crbc_envs.webshop.products.catalogue import (
    MAX_ASIN,
    HumanInstruction,
    Label,
    Product,
    ProductKind,
    describe_files,
    products_of,
    read_json,
)
from crbc_envs.webshop.products.stream import array_entries, object_entries

Array = np.ndarray[Any, np.dtype[Any]]
VERSION = 2
_RECORDS = "products.jsonl"
_ABOUT = "store.json"
_KINDS = "kinds.json"
_ARRAYS = {
    "starts": "<i8",
    "asins": f"S{MAX_ASIN}",
    "sorted": "<i4",
    "prices": "<f8",
    "instructed": "u1",
    "category": "<u8",
    "query": "<u8",
    "kinds": "<i4",
}

_SYNTHETIC, _HUMAN = 1, 2
_LABELS: tuple[Label, ...] = get_args(Label)
_FIELDS = [(field.name, field.default) for field in fields(Product)]
_TUPLES = {"bullets", "prices", "attributes", "instruction_attributes"}
_REBUILD = "build it again with: crbc data webshop --from DIR"


class StoredCatalogue:
    """A `Catalogue` that is read from a store. It is read-only; any number of processes may open it.

    Raises `DataError` if the folder holds no store, or one that is incomplete or of another version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        about = read_json(folder / _ABOUT) if is_store(folder) else None
        if not isinstance(about, dict) or about.get("version") != VERSION or type(about.get("products")) is not int:
            raise DataError(f"{folder}: no store of products of version {VERSION}; {_REBUILD}")
        try:
            arrays = {name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in _ARRAYS}
            self._records = (folder / _RECORDS).open("rb")
            self._kinds = arrays["kinds"], [(query, kind) for query, kind in files.read_json(folder / _KINDS)]
        except (OSError, ValueError, TypeError, EOFError, OverflowError) as error:
            raise DataError(f"{folder}: the store of products is incomplete ({error}); {_REBUILD}") from error
        self._starts, self._asins, self._sorted = arrays["starts"], arrays["asins"], arrays["sorted"]
        self._prices, self._instructed = arrays["prices"], arrays["instructed"]
        self._labels = {label: arrays[label] for label in _LABELS}
        lengths = {len(values) - (name == "starts") for name, values in arrays.items()}
        if lengths != {about["products"]} or self._starts[-1] != os.fstat(self._records.fileno()).st_size:
            raise DataError(f"{folder}: the store of products is damaged, its sizes do not agree; {_REBUILD}")
        self._product = lru_cache(maxsize=4096)(self._read)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> Product:
        if not 0 <= number < len(self):
            raise IndexError(f"product {number} is not among the {len(self)} of {self.folder}")
        return self._product(int(number))

    def __reduce__(self) -> tuple[type[StoredCatalogue], tuple[Path]]:
        return StoredCatalogue, (self.folder,)

    def _read(self, number: int) -> Product:
        start, end = self._starts[number : number + 2].tolist()
        try:
            return _decode(self._bytes(start, end - start))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{self.folder}: product {number} is damaged ({str(error)[:200]!r}); {_REBUILD}") from error

    def _bytes(self, start: int, size: int) -> bytes:
        return os.pread(self._records.fileno(), size, start)  # forked workers share the file's position

    def find(self, asin: str) -> int | None:
        encoded = asin.encode("utf-8", "surrogatepass")
        place = bisect_left(self._sorted, encoded, key=self._asins.__getitem__)
        if place < len(self) and self._asins[self._sorted[place]] == encoded:
            return int(self._sorted[place])
        return None

    def asins(self) -> list[str]:
        return [asin.decode() for asin in self._asins.tolist()]

    def prices(self) -> Iterator[tuple[float, ...]]:
        lows, highs = self._prices.T.tolist()
        known = np.isfinite(self._prices).sum(axis=1).tolist()
        shapes = zip(known, zip(lows, strict=True), zip(lows, highs, strict=True), strict=True)
        return (one if count == 1 else both[:count] for count, one, both in shapes)

    def labelled(self, label: Label, text: str) -> array[int]:
        return array("i", np.flatnonzero(self._labels[label] == _digest(text)).astype(np.intc).tobytes())

    def kinds(self) -> tuple[Array, list[ProductKind]]:
        return self._kinds

    def instructed(self, human: bool) -> list[int]:
        return np.flatnonzero(self._instructed & (_HUMAN if human else _SYNTHETIC)).tolist()


def is_store(folder: Path) -> bool:
    return (folder / _ABOUT).is_file()


def build_store(folder: Path, products: Iterable[Product]) -> int:
    """Write a store of `products` to `folder`. Returns the number of products.

    It is built in a temporary folder and then renamed. An interrupted build therefore changes nothing. Raises
    `DataError` if `folder` is a link.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(folder) as fresh:
        return write_store(fresh, products)


def build_official_store(
    folder: Path,
    items: Path,
    instructions: Path,
    human: Path | None,
    on_progress: ProgressCallback = lambda done, total: None,
) -> int:
    """Build a store from these official files. Returns the number of products.

    The products are streamed; the attributes and instructions are kept in memory as packed JSON. Raises `DataError`
    for a damaged file.
    """
    before, total = instructions.stat().st_size, instructions.stat().st_size + items.stat().st_size
    packed = _Packed(object_entries(instructions, lambda done, _: on_progress(done, total)))
    streamed = array_entries(items, lambda done, _: on_progress(before + done, total))
    where = describe_files([items, instructions, *([human] if human is not None else [])])
    products = products_of(streamed, packed, read_json(human) if human is not None else {}, where)
    first = next(products, None)
    if first is None:
        raise DataError(f"{items}: it holds no products; copy the file again, with: crbc data webshop --from DIR")
    return build_store(folder, chain([first], products))


class _Packed(Mapping[str, dict[str, Any]]):
    """JSON objects by key, kept as text. It takes an eighth of the memory of parsed objects."""

    def __init__(self, entries: Iterable[tuple[str, dict[str, Any]]]) -> None:
        self._texts = {key: json.dumps(value, separators=(",", ":")).encode() for key, value in entries}

    def __getitem__(self, key: str) -> dict[str, Any]:
        return json.loads(self._texts[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def write_store(folder: Path, products: Iterable[Product]) -> int:
    """Write the files of a store into an existing folder. Returns the number of products."""
    starts, asins, prices, instructed = array("q", [0]), bytearray(), array("d"), bytearray()
    labels: dict[str, array[int]] = {label: array("Q") for label in _LABELS}
    kinds, numbers = array("i"), dict[ProductKind, int]()
    with (folder / _RECORDS).open("wb") as records:
        for product in products:
            records.write(_encode(product))
            starts.append(records.tell())
            asins += _fixed(product.asin)
            prices.extend((*product.prices, math.nan, math.nan)[:2])
            for label, digests in labels.items():
                digests.append(_digest(getattr(product, label)))
            instructed.append(_SYNTHETIC * (product.instruction is not None) | _HUMAN * bool(product.human))
            kinds.append(numbers.setdefault((product.query, product.product_category), len(numbers)))
    if not instructed:
        raise DataError("there are no products to store")
    names = np.frombuffer(asins, dtype=_ARRAYS["asins"])
    arrays = {
        "starts": starts,
        "asins": names,
        "sorted": np.argsort(names, kind="stable"),
        "prices": np.reshape(prices, (-1, 2)),
        "instructed": np.frombuffer(instructed, dtype=np.uint8),
        **labels,
        "kinds": kinds,
    }
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", np.asarray(values, dtype=_ARRAYS[name]))
    (folder / _KINDS).write_text(json.dumps(list(numbers)) + "\n", encoding="utf-8")
    (folder / _ABOUT).write_text(json.dumps({"version": VERSION, "products": len(instructed)}) + "\n", encoding="utf-8")
    return len(instructed)


@lru_cache(maxsize=4096)
def _digest(text: str) -> int:
    """64 bits of a text: two labels of a catalogue do not meet there by accident."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _fixed(asin: str) -> bytes:
    """The ASIN, padded to `MAX_ASIN` bytes."""
    if not asin.isascii():
        raise DataError(f"ASIN {asin!r} is not in the official schema: it has letters that are not ASCII")
    return asin.encode().ljust(MAX_ASIN, b"\0")


def _encode(product: Product) -> bytes:
    """One line of JSON, without fields that have their default."""
    record = {name: value for name, default in _FIELDS if (value := getattr(product, name)) != default}
    if product.human:
        record["human"] = [[one.text, one.attributes, one.options] for one in product.human]
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


def _decode(line: bytes) -> Product:
    record = parse_json(line.decode("utf-8", "surrogatepass"))
    for name in _TUPLES & record.keys():
        record[name] = tuple(record[name])
    record["options"] = {group: tuple(values) for group, values in record["options"].items()}
    record["human"] = tuple(HumanInstruction(text, tuple(a), tuple(o)) for text, a, o in record.get("human", ()))
    return Product(**record)
