"""What goes wrong: training that is not finite, invalid replies, slow environments, and anchors that hide state."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from crbc_rl.config import CLIPPED, TrainConfig
from crbc_rl.credit.metrics import NO_SLOPE, Slope
from crbc_rl.errors import ConfigError
from crbc_rl.training.clock import Record
from crbc_rl.training.trainable import IN_A_ROW, Trainable

log = logging.getLogger(__name__)

INVALID_UPDATES = 3
"""Updates in a row of invalid replies alone before a warning says so."""
SLOW, SECONDS = 0.25, 1.0
"""The share of sampling, and the seconds of an update, above which a warning says that it waits for environments."""

THROUGH_ANCHORS = ("crbc", "crbc_plus", "graphgpo", "g2po", "graft")
"""The methods whose credit is the value of the anchor that a step leads to."""
MORE = {
    "observation": 'anchor="situation" or "state" in env.kwargs',
    "paper": 'anchor="situation" or "state" in env.kwargs',
    "situation": 'anchor="state" in env.kwargs',
}
"""By kind of anchor, the kinds that hold more."""


class Guard:
    """Looks at every update before anything of it is saved."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.invalid = 0
        self.waits = config.rollout.waves > 1
        self.slope, self.told = NO_SLOPE, False  # in no checkpoint: a resumed run begins another

    def check(self, update: int, record: Record, models: dict[str, Trainable]) -> None:
        """Raise `ConfigError` where a model of `models` (by the key of its learning rate) cannot be trained further."""
        for key, model in models.items():
            wrong = ""
            if model.skipped >= IN_A_ROW:
                wrong = f"{model.not_finite} was not finite in {model.skipped} optimizer steps in a row"
            elif not model.finite():
                wrong = "the weights are no longer finite"
            if wrong:
                raise ConfigError(
                    f"update {update}: {wrong}; the last checkpoint is kept: begin another run (--run DIR) with a "
                    f"smaller {key} than {model.lr:g}"
                )
        if self.config.loss.objective != CLIPPED and record["skipped_steps"]:
            raise ConfigError(
                f"update {update}: loss.objective: the loss or the gradient of {self.config.loss.objective} is not "
                "finite: correct that function, and begin another run with --run DIR"
            )
        self.invalid = self.invalid + 1 if record["invalid"] == 1.0 else 0
        if self.invalid == INVALID_UPDATES:
            log.warning(
                "update %d: every reply of the last %d updates was invalid; look at replies with --set record_every=1 "
                "and crbc view RUN/rollouts/%06d.parquet, then at env.prompt and rollout.max_new_tokens = %d",
                update,
                INVALID_UPDATES,
                update + 1,
                self.config.rollout.max_new_tokens,
            )

    def wait(self, update: int, spent: Mapping[str, float]) -> None:
        """Warn once where sampling mostly waits for the environments; `spent` has the seconds of an update's phases."""
        waited = spent.get("environments", 0.0)
        if not self.waits and waited > max(SECONDS, SLOW * (waited + spent.get("generate", 0.0))):
            self.waits = True
            log.warning(
                "update %d: sampling waited %.0f s for the environments, and sampled for %.0f: rollout.waves=2 lets "
                "them step in larger parts beside it",
                *(update, waited, spent.get("generate", 0.0)),
            )

    def calibrate(self, update: int, found: Slope, anchors: str) -> None:
        """Warn once where the slope of the last updates says that `anchors` hide state, and credit reads them."""
        self.slope, method = self.slope.then(found), self.config.credit.method
        if not self.told and method in THROUGH_ANCHORS and self.slope.hidden:
            self.told = True
            log.warning(
                "update %d: the anchors (%s) hide state, so credit.method=%s values steps wrongly (calibration slope "
                "%.3f over the last updates, 1 expected). Choose %s, or credit.method=gigpo, of own returns. Where a "
                "policy must mix, depth 0 fails as well: docs/credit/hidden_state.md",
                *(update, anchors, method, self.slope.slope),
                MORE.get(anchors.rpartition("-")[0], "anchors that hold more, by the environment's own code"),
            )
