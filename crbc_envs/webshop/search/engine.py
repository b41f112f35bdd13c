"""The search engine. It gives the same ranking as the original.

BM25 as computed by Lucene (Anserini's defaults, k1 = 0.9 and b = 0.4): lengths are stored in one byte, a term's
weight is its idf, logarithms and saturation are in float32, and ties are broken by ASIN. The searched text of a
product is its title, description, first bullet and options. The original's hidden prefixes, such as "<c>" as first
word, are the shop's (`Shop.found`); here they are ordinary words.

A query with few postings reads them all. One with many reads those that may matter (`pruning`), with the same result.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crbc_envs.errors import DataError
from crbc_envs.storage.datasets import ProgressCallback
from crbc_envs.webshop.products.catalogue import Catalogue, Product
from crbc_envs.webshop.search import pruning
from crbc_envs.webshop.search.analyser import analyse
from crbc_envs.webshop.search.pruning import Found, Term

K1, B = 0.9, 0.4

FEW = 1 << 16
"""The largest number of postings of a query that are all read."""

FORMAT = 3
"""Version of the files of an index."""

_REBUILD = "build it again with: crbc data webshop --from DIR"


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

    Documents are numbered kind by kind, then by attributes, so that like documents are neighbours. `products`
    (documents,) int32 has their product numbers, and `places` (documents,) int32 their places in the order of ASINs,
    which breaks ties. Terms are in the order of their UTF-8 bytes. These bytes are concatenated in `letters`; each term
    ends at `letters_end` (terms,) int64. The postings of each term end at `postings_end` (terms,) int64. A posting has
    an entry in `documents` int32 and in `codes` uint16, which is 256 * term frequency + the byte of the document's
    length. `peaks` uint8 has a row of peaks (`pruning`) for each frequent term, one after the other; `rows` (terms,)
    int32 says which, or -1. `sizes` int64 is (format, sum of all lengths).
    """

    products: NDArray[np.int32]
    places: NDArray[np.int32]
    letters: NDArray[np.uint8]
    letters_end: NDArray[np.int64]
    postings_end: NDArray[np.int64]
    documents: NDArray[np.int32]
    codes: NDArray[np.uint16]
    rows: NDArray[np.int32]
    peaks: NDArray[np.uint8]
    sizes: NDArray[np.int64]

    def find(self, term: str) -> int:
        """The number of a term, or -1. It is a binary search, so that opening an index reads nothing."""
        encoded = term.encode(errors="surrogatepass")
        low, high = 0, len(self.letters_end)
        while low < high:
            middle = (low + high) // 2
            if self._term(middle) < encoded:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self.letters_end) and self._term(low) == encoded else -1

    def postings(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
        """The documents and codes of a term."""
        span = slice(int(self.postings_end[number - 1]) if number else 0, int(self.postings_end[number]))
        return self.documents[span], self.codes[span]

    def peaks_of(self, number: int) -> NDArray[np.uint8] | None:
        """The stored peaks of a term, one for each range, or None."""
        row, width = int(self.rows[number]), -(-len(self.products) // pruning.RANGE)
        return self.peaks[row * width : (row + 1) * width] if row >= 0 else None

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
            raise DataError(f"{folder}: not a search index of format {FORMAT} ({error}); {_REBUILD}") from error
        index = cls(*(array.view(np.ndarray) for array in arrays))
        if not index._is_sound():
            raise DataError(f"{folder}: the search index is damaged; {_REBUILD}")
        if index.sizes[0] != FORMAT:
            raise DataError(f"{folder}: index format {index.sizes[0]}, expected {FORMAT}; {_REBUILD}")
        return index

    def _is_sound(self) -> bool:
        """Whether the arrays have lengths that fit. Postings are not read: they may be large."""
        if not len(self.letters_end) == len(self.postings_end) == len(self.rows) > 0:
            return False
        alike = len(self.places) == len(self.products) and len(self.codes) == len(self.documents)
        ends = self.letters_end[-1] == len(self.letters) and self.postings_end[-1] == len(self.documents)
        return alike and bool(ends) and len(self.sizes) == 2

    def check(self, catalogue: Catalogue) -> None:
        """Raise `DataError` if the index belongs to other products or to another analyser.

        It looks up all terms of the first, the middle and the last document.
        """
        size = len(self.products)
        matches = size == len(catalogue) and len(self.documents) == len(self.codes) == int(self.postings_end[-1])
        for document in sorted({0, size // 2, size - 1}) if matches else ():
            counts = Counter(analyse(searched_text(catalogue[int(self.products[document])])))
            matches = matches and all(self._frequency(term, document) == min(n, 255) for term, n in counts.items())
        if not matches:
            raise DataError("the search index belongs to other products; build both again")

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


def build(catalogue: Catalogue, on_progress: ProgressCallback = lambda done, total: None) -> Index:
    """Build the index of a catalogue: about 10,000 products per second, with 30 bytes per posting meanwhile.

    `on_progress` gets the number of products done, and of all.
    """
    asins = catalogue.asins()
    of, kinds = catalogue.kinds()
    likeness = [(kinds[of[n]], " ".join(catalogue[n].attributes), asin) for n, asin in enumerate(asins)]
    order = sorted(range(len(asins)), key=likeness.__getitem__)
    del likeness
    numbers: dict[str, int] = {}
    terms, documents, codes = array("i"), array("i"), array("H")
    total = 0
    for document, number in enumerate(order):
        tokens = analyse(searched_text(catalogue[number]))
        total += len(tokens)
        # SmallFloat.intToByte4: the largest byte whose length is at most this one.
        length = int(np.searchsorted(LENGTHS, len(tokens), side="right")) - 1
        for term, frequency in Counter(tokens).items():
            terms.append(numbers.setdefault(term, len(numbers)))
            documents.append(document)
            codes.append(min(frequency, 255) << 8 | length)
        if not document % 1000:
            on_progress(document, len(order))
    products = np.array(order, dtype=np.int32)
    places = np.empty_like(products)
    places[sorted(range(len(order)), key=lambda document: asins[order[document]])] = np.arange(len(order))
    return _with_peaks(_index(products, places, list(numbers), (terms, documents, codes), total))


def _index(
    products: NDArray[np.int32],
    places: NDArray[np.int32],
    terms: list[str],
    postings: tuple[array[int], array[int], array[int]],
    total: int,
) -> Index:
    """Sort the terms by their bytes, and the postings by term and document. There are no peaks yet."""
    encoded = [term.encode(errors="surrogatepass") for term in terms]
    by_bytes = sorted(range(len(encoded)), key=encoded.__getitem__)
    place = np.empty(len(encoded), dtype=np.int32)
    place[by_bytes] = np.arange(len(encoded), dtype=np.int32)
    term = place[np.frombuffer(postings[0], dtype=np.int32)]
    by_term = np.argsort(term, kind="stable")
    return Index(
        products=products,
        places=places,
        letters=np.frombuffer(b"".join(encoded[i] for i in by_bytes), dtype=np.uint8),
        letters_end=np.cumsum([len(encoded[i]) for i in by_bytes], dtype=np.int64),
        postings_end=np.cumsum(np.bincount(term, minlength=len(encoded)), dtype=np.int64),
        documents=np.frombuffer(postings[1], dtype=np.int32)[by_term],
        codes=np.frombuffer(postings[2], dtype=np.uint16)[by_term],
        rows=np.full(len(encoded), -1, dtype=np.int32),
        peaks=np.empty(0, dtype=np.uint8),
        sizes=np.array([FORMAT, total], dtype=np.int64),
    )


def _with_peaks(index: Index) -> Index:
    """The index with the peaks of its frequent terms."""
    frequent = np.flatnonzero(np.diff(index.postings_end, prepend=0) >= pruning.FREQUENT)
    peaks = np.zeros((len(frequent), -(-len(index.products) // pruning.RANGE)), dtype=np.uint8)
    saturation = _saturation(index)
    for row, number in enumerate(frequent.tolist()):
        ranges, highest = pruning.peaks_of(*index.postings(number), saturation)
        peaks[row, ranges] = highest
    rows = index.rows.copy()
    rows[frequent] = np.arange(len(frequent))
    return replace(index, rows=rows, peaks=peaks.ravel())


def _saturation(index: Index) -> NDArray[np.float32]:
    """By code: a document gets a term's weight minus the weight divided by this."""
    average = np.float32(int(index.sizes[1]) / max(len(index.products), 1))
    k1, b = np.float32(K1), np.float32(B)
    norm = np.float32(1) / (k1 * ((np.float32(1) - b) + b * LENGTHS.astype(np.float32) / average))
    return (np.float32(1) + np.arange(256, dtype=np.float32)[:, None] * norm).ravel()


class SearchEngine:
    """Ranks the products of an index. It is read-only and shared by all sessions."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._find = lru_cache(1 << 16)(index.find)
        self._saturation = _saturation(index)

    def search(self, query: str, count: int = 50) -> list[tuple[int, float]]:
        """The best `count` products for a query as (product number, score), best first."""
        terms = list(self._terms(query))
        postings = sum(len(term.documents) for term in terms)
        if postings > FEW:
            select = partial(self._select, count=count)
            best = pruning.best(terms, len(self.index.products), count, self._saturation, select)
        else:
            none = np.empty(0, np.float32), np.empty(0, np.int64)
            best = self._select(self._scan(terms), count) if postings else none
        return list(zip(self.index.products[best[1]].tolist(), best[0].tolist(), strict=True))

    def _scan(self, terms: list[Term]) -> Found:
        """The scores above zero of all documents, with their documents."""
        lengths = [len(term.documents) for term in terms]
        weights = np.repeat([term.weight for term in terms], lengths)
        codes = np.concatenate([term.codes for term in terms])
        sums = np.zeros(len(self.index.products))
        given = (weights - weights / self._saturation[codes]).astype(np.float64)
        np.add.at(sums, np.concatenate([term.documents for term in terms]), given)
        scores = sums.astype(np.float32)
        above = np.flatnonzero(scores > 0)
        return scores[above], above

    def _select(self, candidates: Found, count: int) -> Found:
        """The best `count` of what was found, best first; equal scores by ASIN."""
        scores, documents = candidates
        if len(scores) > count:
            high = scores >= np.partition(scores, -count)[-count]
            scores, documents = scores[high], documents[high]
        order = np.lexsort((self.index.places[documents], -scores))[:count]
        return scores[order], documents[order]

    def _terms(self, query: str) -> Iterator[Term]:
        """The terms of a query that occur in some document, with their weights and postings."""
        for term, times in Counter(analyse(query)).items():
            number = self._find(term)
            if number >= 0:
                documents, codes = self.index.postings(number)
                weight = np.float32(times) * self._idf(len(documents))
                yield Term(weight, documents, codes, self.index.peaks_of(number))

    def _idf(self, frequency: int) -> np.float32:
        return np.float32(math.log(1 + (len(self.index.products) - frequency + 0.5) / (frequency + 0.5)))
