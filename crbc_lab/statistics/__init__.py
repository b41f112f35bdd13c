"""Statistics for studies that compare training methods over seeds and tasks. docs/statistics.md has the formulas.

A study trains each method with several seeds and plays one panel of tasks with every trained policy. Two things could
have come out otherwise: the trainings, and the tasks. Seeds and tasks are crossed, since all policies play the same
tasks. Tasks of one cluster, such as those of one room or product, succeed or fail together. So every error is of seeds,
and of whole clusters of tasks.
"""

from crbc_lab.statistics.comparison import Comparison as Comparison
from crbc_lab.statistics.comparison import between_trainings as between_trainings
from crbc_lab.statistics.comparison import compare as compare
from crbc_lab.statistics.comparison import holm as holm
from crbc_lab.statistics.comparison import p_value as p_value
from crbc_lab.statistics.comparison import power as power
from crbc_lab.statistics.comparison import smallest_difference as smallest_difference
from crbc_lab.statistics.curves import Band as Band
from crbc_lab.statistics.curves import area as area
from crbc_lab.statistics.curves import band as band
from crbc_lab.statistics.intervals import Estimate as Estimate
from crbc_lab.statistics.intervals import Variance as Variance
from crbc_lab.statistics.intervals import crossed_error as crossed_error
from crbc_lab.statistics.intervals import estimate as estimate
from crbc_lab.statistics.intervals import interval as interval
from crbc_lab.statistics.outcomes import Outcomes as Outcomes
from crbc_lab.statistics.outcomes import paired as paired
