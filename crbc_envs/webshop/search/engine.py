"""The search engine. It gives the same ranking as the original.

BM25 as computed by Lucene (Anserini's defaults, k1 = 0.9 and b = 0.4): lengths are stored in one byte, a term's
weight is its idf, logarithms and saturation are in float32, and ties are broken by ASIN. The searched text of a
product is its title, description, first bullet and options. The original's hidden prefixes, such as "<c>" as first
word, are the shop's (`Shop.found`); here they are ordinary words.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crbc_envs.errors import DataError
from crbc_envs.webshop.products.cache import BoundedCache
from crbc_envs.webshop.products.catalogue import Catalogue, Product
from crbc_envs.webshop.search.analyser import analyse

K1, B = 0.9, 0.4

MOST_TOGETHER = 1 << 18
"""The largest number of postings that are scored in one call."""

WeightedPostings = tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.uint16]]
"""Weights (one, or one per posting), documents and codes."""

FORMAT = 1
"""Version of the files of an index."""


def _length_of(byte: int) -> int:
    """The length encoded by a byte (SmallFloat.byte4ToInt): exact below 40, then with three bits of mantissa."""
    over = byte - 24
    return byte if over < 8 else 24 + ((over & 7 | 8) << (over >> 3) - 1)


LENGTHS = np.array([_length_of(byte) for byte in range(256)], dtype=np.int64)


def searched_text(product: Product) -> str:
    """The text of a product that is searched."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    return " ".join([product.title, product.description, *product.bullets[:1], options]).lower()


@dataclass(frozen=True, slots=True)
class Index:
    """An inverted index, in memory or mapped from disk.

    Documents are numbered in the order of their ASINs, so that ties are broken by ASIN. `products` (documents,)
    int32 has their product numbers. Terms are in the order of their UTF-8 bytes. These bytes are concatenated in
    `letters`; each term ends at `letters_end` (terms,) int64. The postings of each term end at `postings_end`
    (terms,) int64. A posting has an entry in `documents` int32 and in `codes` uint16, which is 256 * term frequency +
    the byte of the document's length. `sizes` int64 is (format, sum of all lengths).
    """

    products: NDArray[np.int32]
    letters: NDArray[np.uint8]
    letters_end: NDArray[np.int64]
    postings_end: NDArray[np.int64]
    documents: NDArray[np.int32]
    codes: NDArray[np.uint16]
    sizes: NDArray[np.int64]

    def find(self, term: str) -> int:
        """The number of a term, or -1. It is a binary search, so that opening an index reads nothing."""
        wanted = term.encode(errors="surrogatepass")
        low, high = 0, len(self.letters_end)
        while low < high:
            middle = (low + high) // 2
            if self._term(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self.letters_end) and self._term(low) == wanted else -1

    def postings(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
        """The documents and codes of a term."""
        span = slice(int(self.postings_end[number - 1]) if number else 0, int(self.postings_end[number]))
        return self.documents[span], self.codes[span]

    def save(self, folder: Path) -> None:
        """Write the index as one .npy file per array. The folder must exist."""
        for part in fields(self):
            np.save(folder / f"{part.name}.npy", getattr(self, part.name), allow_pickle=False)

    @classmethod
    def open(cls, folder: Path) -> Index:
        """Map an index from disk. Raises `DataError` if it is missing, cut short or of another format."""
        try:
            arrays = [np.load(folder / f"{part.name}.npy", mmap_mode="r", allow_pickle=False) for part in fields(cls)]
        except (OSError, ValueError, EOFError) as error:
            raise DataError(
                f"{folder}: not a search index ({error}); delete the folder, and it is built again"
            ) from error
        index = cls(*(array.view(np.ndarray) for array in arrays))
        if not index._is_sound():
            raise DataError(f"{folder}: the search index is damaged; delete the folder, and it is built again")
        if index.sizes[0] != FORMAT:
            raise DataError(f"{folder}: index format {index.sizes[0]}, expected {FORMAT}; delete the folder")
        return index

    def _is_sound(self) -> bool:
        """Whether the arrays have their types, and no term points outside. Postings are not read: they may be large."""
        types = ("int32", "uint8", "int64", "int64", "int32", "uint16", "int64")
        if any(
            (getattr(self, part.name).dtype, getattr(self, part.name).ndim) != (np.dtype(kind), 1)
            for part, kind in zip(fields(self), types, strict=True)
        ):
            return False
        ends = ((self.letters_end, self.letters), (self.postings_end, self.documents))
        inside = all(len(end) and end[0] >= 0 and end[-1] == len(of) and (np.diff(end) >= 0).all() for end, of in ends)
        return inside and len(self.sizes) == 2 and len(self.products) > 0 and len(self.codes) == len(self.documents)

    def check(self, catalogue: Catalogue) -> None:
        """Raise `DataError` if the index belongs to other products or to another analyser.

        It looks up all terms of the first, the middle and the last document.
        """
        size = len(self.products)
        matches = size == len(catalogue) and len(self.documents) == len(self.codes) == int(self.postings_end[-1])
        for document in sorted({0, size // 2, size - 1}) if matches else ():
            found = Counter(analyse(searched_text(catalogue[int(self.products[document])])))
            matches = matches and all(self._frequency(term, document) == min(n, 255) for term, n in found.items())
        if not matches:
            raise DataError("the search index belongs to other products; delete its folder and build it again")

    def _frequency(self, term: str, document: int) -> int:
        number = self.find(term)
        if number < 0:
            return 0
        documents, codes = self.postings(number)
        place = int(np.searchsorted(documents, document))
        return int(codes[place]) >> 8 if place < len(documents) and documents[place] == document else 0

    def _term(self, number: int) -> bytes:
        start = int(self.letters_end[number - 1]) if number else 0
        return self.letters[start : int(self.letters_end[number])].tobytes()


def build(catalogue: Catalogue) -> Index:
    """Build the index of a catalogue: about 10,000 products per second, with 20 bytes per posting meanwhile."""
    asins = catalogue.asins()
    order = sorted(range(len(asins)), key=asins.__getitem__)
    numbers: dict[str, int] = {}
    terms, documents, codes = array("i"), array("i"), array("H")
    total = 0
    for document, number in enumerate(order):
        found = analyse(searched_text(catalogue[number]))
        total += len(found)
        length = _length_byte(len(found))
        for term, frequency in Counter(found).items():
            terms.append(numbers.setdefault(term, len(numbers)))
            documents.append(document)
            codes.append(min(frequency, 255) << 8 | length)
    return _index(order, list(numbers), (terms, documents, codes), total)


def _index(
    order: list[int], terms: list[str], postings: tuple[array[int], array[int], array[int]], total: int
) -> Index:
    """Sort the terms by their bytes, and the postings by term and document."""
    encoded = [term.encode(errors="surrogatepass") for term in terms]
    by_bytes = sorted(range(len(encoded)), key=encoded.__getitem__)
    place = np.empty(len(encoded), dtype=np.int32)
    place[by_bytes] = np.arange(len(encoded), dtype=np.int32)
    term = place[np.frombuffer(postings[0], dtype=np.int32)]
    by_term = np.argsort(term, kind="stable")
    return Index(
        products=np.array(order, dtype=np.int32),
        letters=np.frombuffer(b"".join(encoded[i] for i in by_bytes), dtype=np.uint8),
        letters_end=np.cumsum([len(encoded[i]) for i in by_bytes], dtype=np.int64),
        postings_end=np.cumsum(np.bincount(term, minlength=len(encoded)), dtype=np.int64),
        documents=np.frombuffer(postings[1], dtype=np.int32)[by_term],
        codes=np.frombuffer(postings[2], dtype=np.uint16)[by_term],
        sizes=np.array([FORMAT, total], dtype=np.int64),
    )


def _length_byte(length: int) -> int:
    """The byte of a length (SmallFloat.intToByte4): the largest whose length is at most this one."""
    return int(np.searchsorted(LENGTHS, length, side="right")) - 1


class SearchEngine:
    """Ranks the products of an index. It is read-only and shared by all sessions."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._numbers: BoundedCache[str, int] = BoundedCache(1 << 16)
        average = np.float32(int(index.sizes[1]) / max(len(index.products), 1))
        lengths = LENGTHS.astype(np.float32)
        k1, b = np.float32(K1), np.float32(B)
        norm = np.float32(1) / (k1 * ((np.float32(1) - b) + b * lengths / average))
        frequencies = np.arange(256, dtype=np.float32)
        # By code: a document gets a term's weight minus the weight divided by this.
        self._saturation = (np.float32(1) + frequencies[:, None] * norm).ravel()

    def search(self, query: str, count: int = 50) -> list[tuple[int, float]]:
        """The best `count` products for a query as (product number, score), best first."""
        sums = np.zeros(len(self.index.products))
        for weights, documents, codes in _merge_postings(list(self._weighted_postings(query))):
            np.add.at(sums, documents, (weights - weights / self._saturation[codes]).astype(np.float64))
        scores = sums.astype(np.float32)
        best = _best(scores, count)
        return list(zip(self.index.products[best].tolist(), scores[best].tolist(), strict=True))

    def _weighted_postings(self, query: str) -> Iterator[WeightedPostings]:
        """The weight and postings of each query term that occurs in some document."""
        for term, times in Counter(analyse(query)).items():
            number = self._numbers.get(term, partial(self.index.find, term))
            if number >= 0:
                documents, codes = self.index.postings(number)
                yield np.full(1, times, dtype=np.float32) * self._idf(len(documents)), documents, codes

    def _idf(self, frequency: int) -> np.float32:
        return np.float32(math.log(1 + (len(self.index.products) - frequency + 0.5) / (frequency + 0.5)))


def _merge_postings(found: list[WeightedPostings]) -> list[WeightedPostings]:
    """Merge a small number of postings into one entry with a weight each: fewer calls, the same sums.

    A large number is not merged, so that only one term's postings are in memory at a time.
    """
    lengths = [len(documents) for _, documents, _ in found]
    if not 0 < sum(lengths) <= MOST_TOGETHER:
        return found
    weights, documents, codes = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return [(np.repeat(weights, lengths), documents, codes)]


def _best(scores: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """The indices of the `count` highest scores above zero. Ties keep the first."""
    found = np.flatnonzero(scores > 0)
    if len(found) > count:
        least = np.partition(scores[found], -count)[-count]
        found = found[scores[found] >= least]
    return found[np.argsort(-scores[found], kind="stable")][:count]
