"""Finds the best documents for a query without reading all postings of its terms. The result is that of reading all.

Documents are numbered kind by kind, then by attributes, and every `RANGE` of them are one range. For a frequent term
the index holds a peak for each range: the most that the term gives to a document there. The sum of a query's peaks is a
bound for all documents of a range. The ranges with the highest bounds are scored first. Those whose bound is below the
score that is last among the best cannot matter, and are not read. These are the block maxima of Ding and Suel (2011),
with blocks of documents instead of postings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RANGE = 32
"""Documents of a range, about as many as share kind and attributes in a shop of a million products."""

FREQUENT = 2_048
"""The least number of postings of a term whose peaks are stored. Those of others are computed when needed."""

FULL = 255
"""A peak of this is a term's whole weight."""

_FIRST = 128
"""The ranges that are scored first, before there is a score to compare bounds with."""

_SLACK = 1.0001
"""Scores are rounded to float32, so one may be above its exact bound by less than this factor."""


@dataclass(frozen=True, slots=True)
class Term:
    """A term of a query: its weight, documents in ascending order, codes, and stored peaks, if any."""

    weight: np.float32
    documents: NDArray[np.int32]
    codes: NDArray[np.uint16]
    peaks: NDArray[np.uint8] | None


Found = tuple[NDArray[np.float32], NDArray[np.int64]]
"""Scores, and the documents that have them."""


def peaks_of(
    documents: NDArray[np.int32], codes: NDArray[np.uint16], saturation: NDArray[np.float32]
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """The ranges in which a term occurs, and its peaks there, rounded up: `FULL` times the fraction of its weight."""
    ranges = documents // RANGE
    starts = np.flatnonzero(np.diff(ranges, prepend=-1))
    highest = np.maximum.reduceat(saturation[codes], starts).astype(np.float64)
    return ranges[starts], np.ceil(FULL * (1 - 1 / highest)).astype(np.uint8)


def best(
    terms: Sequence[Term],
    size: int,
    count: int,
    saturation: NDArray[np.float32],
    select: Callable[[Found], Found],
) -> Found:
    """The best `count` of `size` documents. `select` cuts what was found to the best, in order."""
    bounds = _bounds(terms, -(-size // RANGE), saturation)
    chosen = np.argpartition(-bounds, _FIRST - 1)[:_FIRST] if len(bounds) > _FIRST else np.arange(len(bounds))
    bounds_left = bounds.copy()
    kept: Found = (np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64))
    while len(chosen):
        scores, documents = _score(terms, np.sort(chosen), saturation)
        kept = select((np.concatenate([kept[0], scores]), np.concatenate([kept[1], documents])))
        bounds_left[chosen] = 0.0
        least = kept[0][-1] if len(kept[0]) == count else 0.0
        left = np.flatnonzero((bounds_left > 0) & (bounds_left >= least))
        most = 4 * len(chosen)
        chosen = left if len(left) <= most else left[np.argpartition(-bounds_left[left], most - 1)[:most]]
    return kept


def _bounds(terms: Sequence[Term], ranges: int, saturation: NDArray[np.float32]) -> NDArray[np.float64]:
    """For each range, an upper bound of the scores of its documents."""
    bounds = np.zeros(ranges)
    for term in terms:
        share = _SLACK * float(term.weight) / FULL
        if term.peaks is not None:
            bounds += share * term.peaks
        else:
            places, peaks = peaks_of(term.documents, term.codes, saturation)
            bounds[places] += share * peaks
    return bounds


def _score(terms: Sequence[Term], chosen: NDArray[np.intp], saturation: NDArray[np.float32]) -> Found:
    """The scores above zero of the documents in these ranges, which are in ascending order.

    The sums are those of a whole scan to the last bit: in float64, term by term in the order of the query.
    """
    breaks = np.flatnonzero(np.diff(chosen, prepend=-2) > 1)  # neighbouring ranges are read as one run
    lasts = np.append(breaks[1:], len(chosen)) - 1
    firsts, ends = chosen[breaks] * RANGE, (chosen[lasts] + 1) * RANGE
    places = np.cumsum(ends - firsts) - (ends - firsts)  # where each run begins in `sums`
    sums = np.zeros(len(chosen) * RANGE)
    edges = np.stack([firsts, ends]).astype(np.int32)
    for term in terms:
        starts, stops = np.searchsorted(term.documents, edges)
        lengths = stops - starts
        run = np.repeat(np.arange(len(lengths)), lengths)
        which = np.arange(len(run)) + (starts - (np.cumsum(lengths) - lengths))[run]
        given = term.weight - term.weight / saturation[term.codes[which]]
        sums[term.documents[which] + (places - firsts)[run]] += given
    scores = sums.astype(np.float32)
    above = np.flatnonzero(scores > 0)
    return scores[above], above + np.repeat(firsts - places, ends - firsts)[above]
