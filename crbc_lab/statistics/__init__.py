"""Statistics for studies that compare training methods over seeds and tasks. docs/statistics.md has the formulas.

A study trains each method with several seeds and plays one panel of tasks with every trained policy. Two things could
have come out otherwise: the trainings, and the tasks. Seeds and tasks are crossed, since all policies play the same
tasks. Tasks of one cluster, such as those of one room or product, succeed or fail together. So every error is of seeds,
and of whole clusters of tasks.
"""

from crbc_lab.statistics.comparison import (
    Comparison,
    between_trainings,
    compare,
    holm,
    p_value,
    power,
    smallest_difference,
)
from crbc_lab.statistics.curves import Band, area, band
from crbc_lab.statistics.intervals import Estimate, Variance, crossed_error, estimate, interval
from crbc_lab.statistics.outcomes import Outcomes, paired

__all__ = [
    "Band",
    "Comparison",
    "Estimate",
    "Outcomes",
    "Variance",
    "area",
    "band",
    "between_trainings",
    "compare",
    "crossed_error",
    "estimate",
    "holm",
    "interval",
    "p_value",
    "paired",
    "power",
    "smallest_difference",
]
