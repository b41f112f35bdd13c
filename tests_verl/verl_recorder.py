"""Imported by verl's processes: keeps the rows of each update in `$CRBC_RECORDED`, as its optimizer step takes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from verl.trainer.ppo.v1.trainer_base import PPOTrainer

FIELDS = ["prompts", "responses", "old_log_probs", "advantages", "extra_fields", "task", "global_steps"]

_update = PPOTrainer._update_actor


def _kept(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=FIELDS)
    columns = {name: list(data[name]) for name in FIELDS}
    rows = [
        {"key": key, **dict(zip(columns, values, strict=True))}
        for key, tag, *values in zip(batch.keys, batch.tags, *columns.values(), strict=True)
        if not tag.get("is_padding")
    ]
    torch.save(rows, Path(os.environ["CRBC_RECORDED"]) / f"rows-{self.global_steps}.pt")
    return _update(self, batch, metrics)


PPOTrainer._update_actor = _kept
