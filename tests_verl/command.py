"""verl's launcher with this project's tiny agent, on a CPU: its environment variables and its overrides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "configs/verl"

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": f"{ROOT}:{ROOT / 'tests_verl'}:{ROOT / 'tests/support'}",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_worker_niceness": "0",  # not behind whatever else runs
    "VERL_ENGINE_DEVICE": "cuda",  # which class of engine
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "verl_cpu_platform,verl_cpu,crbc_rl.adapters.verl",
}

_FLOAT = "mixed_precision={param_dtype: fp32, reduce_dtype: fp32, buffer_dtype: fp32}"


def overrides(ranks: int = 1) -> list[str]:
    """What a machine without a GPU needs, besides `configs/verl/sokoban_boxes.yaml`."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return [
        f"actor_rollout_ref.model.path={ROOT / 'warmstarts/sokoban-tiny'}",
        "actor_rollout_ref.model.use_remove_padding=False",
        "actor_rollout_ref.model.enable_gradient_checkpointing=False",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        f"{actor}.use_torch_compile=False",
        f"{actor}.fsdp_config.use_torch_compile=False",
        f"+{actor}.fsdp_config.{_FLOAT}",
        "actor_rollout_ref.ref.fsdp_config.model_dtype=fp32",
        f"+actor_rollout_ref.ref.fsdp_config.{_FLOAT}",
        f"{rollout}.name=transformers_cpu",
        f"{rollout}.load_format=auto",
        f"{rollout}.free_cache_engine=False",
        f"{rollout}.agent.num_workers=1",
        "reward.num_workers=1",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        "trainer.device=cpu",
        f"trainer.n_gpus_per_node={ranks}",
        "trainer.logger=[console,file]",
        f"+ray_kwargs.ray_init.num_gpus={ranks}",
        "ray_kwargs.ray_init.num_cpus=12",  # with fewer, verl's actors wait for ever
        "+ray_kwargs.ray_init.include_dashboard=False",
        "+ray_kwargs.ray_init.object_store_memory=300000000",
    ]


def train(folder: Path, *more: str, ranks: int = 1, modules: str = "") -> list[dict[str, Any]]:
    """Runs verl's stock launcher on `configs/verl/sokoban_boxes.yaml` until it ends. All that it writes is in `folder`,
    an absolute path. `modules` are imported besides the adapter. Returns what it logged, one record a step."""
    folder.mkdir(parents=True, exist_ok=True)
    external = ",".join(filter(None, [ENVIRONMENT["VERL_USE_EXTERNAL_MODULES"], modules]))
    own = {**os.environ, **ENVIRONMENT, "VERL_USE_EXTERNAL_MODULES": external}
    own["VERL_FILE_LOGGER_PATH"] = str(folder / "log.jsonl")
    launcher = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-dir", str(CONFIGS)]
    written = [f"trainer.default_local_dir={folder}", f"hydra.run.dir={folder}/hydra"]
    imported = f"ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES='{external}'"
    command = [*launcher, "--config-name", "sokoban_boxes", *overrides(ranks), *written, imported, *more]
    with (folder / "output.txt").open("ab") as output:
        done = subprocess.run(command, cwd=folder, env=own, stdout=output, stderr=output)
    if done.returncode:
        end = (folder / "output.txt").read_text("utf-8", "replace")[-4000:]
        raise RuntimeError(f"verl has ended with status {done.returncode}, {folder / 'output.txt'}:\n{end}")
    records = map(json.loads, (folder / "log.jsonl").read_text("utf-8").splitlines())
    return [{"step": record["step"], **record["data"]} for record in records]
