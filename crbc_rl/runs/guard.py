"""What goes wrong for several updates: training that is no longer finite, and replies that are all invalid."""

from __future__ import annotations

import logging

from crbc_rl.config import TrainConfig
from crbc_rl.errors import ConfigError
from crbc_rl.training.clock import Record
from crbc_rl.training.trainable import IN_A_ROW, Trainable

log = logging.getLogger(__name__)

INVALID_UPDATES = 3
"""Updates in a row of invalid replies alone before a warning says so."""


class Guard:
    """Looks at every update before anything of it is saved."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.invalid = 0

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
        self.invalid = self.invalid + 1 if record["invalid"] == 1.0 else 0
        if self.invalid == INVALID_UPDATES:
            log.warning(
                "update %d: every reply of the last %d updates was invalid; look at replies with --set record_every=1 "
                "and crbc play --replay RUN/rollouts/%06d.parquet, then at env.prompt and rollout.max_new_tokens = %d",
                update,
                INVALID_UPDATES,
                update + 1,
                self.config.rollout.max_new_tokens,
            )
