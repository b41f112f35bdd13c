"""The simulation behind docs/statistics.md: its truth, its rates, and the page's table."""

from __future__ import annotations

import re

import numpy as np
from paths import ROOT

from benchmarks.coverage_of_intervals import DESIGNS, INTERVALS, TESTS, Design, measure, study, truth


def test_the_truth_is_the_mean_of_many_studies():
    design, rng = Design(seeds=10, training=0.6), np.random.default_rng(0)
    means = [outcomes.mean for _ in range(300) for outcomes in study(design, rng)]
    assert abs(np.mean(means) - truth(design)) < 4 * np.std(means) / np.sqrt(300)


def test_rates_are_shares_of_every_interval_and_test():
    rates = measure(Design(seeds=3, training=0.3), 12, np.random.default_rng(0))
    assert tuple(rates.held) == INTERVALS and tuple(rates.alarms) == TESTS
    assert all(0 <= share <= 1 for share in (*rates.held.values(), rates.held_difference))
    assert all(strict <= loose for loose, strict in rates.alarms.values())


def test_the_page_has_a_line_for_every_design():
    page = (ROOT / "docs/statistics.md").read_text(encoding="utf-8")
    for one in DESIGNS:
        line = rf"\| +{one.seeds} \| +{one.clusters} x {one.tasks} \| +{one.training:.1f} \|"
        assert len(re.findall(line, page)) == 2, one
