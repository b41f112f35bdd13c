"""Step credit for rollout groups: exact, in float64, without any deep-learning package.

from crbc_rl import credit
credit.advantages(group, method="crbc")     # one float64 array per rollout, one value per step
"""

from crbc_rl.credit.api import (
    METHODS,
    Method,
    advantages,
    advantages_batch,
    advantages_interned,
    check_options,
    estimator_of,
)
from crbc_rl.credit.crbc import Closure, closure, step_credit
from crbc_rl.credit.diagnose import Diagnosis, diagnose
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.estimator import Estimator, estimator
from crbc_rl.credit.gae import gae, row_rewards, whiten
from crbc_rl.credit.metrics import Calibration, calibration
from crbc_rl.credit.rewards import Earned
from crbc_rl.credit.rows import advantages_from_rows, per_token
from crbc_rl.credit.scores import scores
from crbc_rl.credit.updates import advantages_of_update

__all__ = [
    "METHODS",
    "Calibration",
    "Closure",
    "CreditError",
    "Diagnosis",
    "Earned",
    "Estimator",
    "Method",
    "advantages",
    "advantages_batch",
    "advantages_from_rows",
    "advantages_interned",
    "advantages_of_update",
    "calibration",
    "check_options",
    "closure",
    "diagnose",
    "estimator",
    "estimator_of",
    "gae",
    "per_token",
    "row_rewards",
    "scores",
    "step_credit",
    "whiten",
]
