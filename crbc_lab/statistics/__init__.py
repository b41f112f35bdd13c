"""Statistics for studies that compare training methods over seeds and tasks. docs/statistics.md has the formulas.

A study trains each method with several seeds and plays one panel of tasks with every trained policy. Two things could
have come out otherwise: the trainings, and the tasks. Seeds and tasks are crossed, since all policies play the same
tasks. Tasks of one cluster, such as those of one room or product, succeed or fail together. So intervals resample
seeds, and independently whole clusters of tasks.

`rliable` is not used. Its bootstrap is stratified by task, but knows no clusters and no pairs of methods, and it brings
arch, absl and seaborn. One of its numbers is here, the probability of improvement. The tests hold it to
`scipy.stats.mannwhitneyu`.
"""

from crbc_lab.statistics.comparison import (
    Comparison,
    compare,
    holm,
    improvement,
    p_value,
    separated,
    smallest_difference,
)
from crbc_lab.statistics.curves import Band, area, band
from crbc_lab.statistics.outcomes import Outcomes, paired
from crbc_lab.statistics.resampling import (
    Estimate,
    crossed_error,
    estimate,
    resample,
    widening,
)

__all__ = [
    "Band",
    "Comparison",
    "Estimate",
    "Outcomes",
    "area",
    "band",
    "compare",
    "crossed_error",
    "estimate",
    "holm",
    "improvement",
    "p_value",
    "paired",
    "resample",
    "separated",
    "smallest_difference",
    "widening",
]
