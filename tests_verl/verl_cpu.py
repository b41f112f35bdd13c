"""verl 0.9.1 without a GPU, for tests: its own launcher, trainer, FSDP2 worker and weight sync with gloo, and replies
sampled by transformers in the place of vLLM. `ENVIRONMENT` is that of every process.

What patches verl stays here. The adapter ships none of it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import ray
import torch
import verl.utils.distributed as verl_distributed
import verl.utils.fsdp_utils as verl_fsdp
import verl.workers.engine.fsdp.transformer_impl as verl_engine
from transformers import AutoModelForCausalLM, DynamicCache
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

ENGINE = "transformers_cpu"

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "VERL_PLATFORM": "cpu",
    "VERL_ENGINE_DEVICE": "cuda",  # which class of engine
    "VERL_USE_EXTERNAL_MODULES": "verl_cpu_platform,verl_cpu,crbc_rl.adapters.verl",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "HYDRA_FULL_ERROR": "1",
}

# verl asks for "cpu:gloo,cpu:gloo", which torch refuses.
verl_distributed.initialize_global_process_group_ray.__defaults__ = (None, "gloo")


class Unpinned(verl_fsdp.CPUOffloadPolicy):
    """The reference model is offloaded into pinned memory, which wants a GPU."""

    def __init__(self, pin_memory: bool = False) -> None:
        super().__init__(pin_memory=False)


verl_fsdp.CPUOffloadPolicy = verl_engine.CPUOffloadPolicy = Unpinned


class Adapter(BaseRollout):
    """In the worker of the actor: hands its weights to the server."""

    async def resume(self, tags: Any) -> None:
        pass

    async def release(self) -> None:
        pass

    async def update_weights(self, weights: Any, **given: Any) -> None:
        state = {name: tensor.detach().float().cpu().clone() for name, tensor in weights}
        server = ray.get_actor(f"verl_cpu_{torch.distributed.get_rank()}")
        await server.load.remote(state, given.get("global_steps"))


class Server:
    """Samples with transformers. The requests of a moment are one batch."""

    def __init__(self, folder: str, rank: int) -> None:
        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        end = self.model.generation_config.eos_token_id
        self.end = set(end if isinstance(end, list) else [end])
        self.generator = torch.Generator().manual_seed(rank)
        self.update: int | None = 0
        self.waiting: list[tuple[list[int], dict[str, Any], Any]] = []

    def load(self, state: dict[str, torch.Tensor], update: int | None) -> None:
        known = self.model.state_dict()
        missing = self.model.load_state_dict({k: v for k, v in state.items() if k in known}, strict=False).missing_keys
        assert not [name for name in missing if "lm_head" not in name], missing  # it may be the embedding itself
        self.update = update

    async def generate(self, request_id: str, *, prompt_ids: Any, sampling_params: dict[str, Any], **_: Any) -> Any:
        done = asyncio.get_running_loop().create_future()
        self.waiting.append((list(prompt_ids), sampling_params, done))
        await asyncio.sleep(0.05)
        if self.waiting:
            batch, self.waiting = self.waiting, []
            self.answer(batch)
        return await done

    @torch.no_grad()
    def answer(self, batch: Any) -> None:
        prompts, (sampling, *_) = [prompt for prompt, _, _ in batch], [given for _, given, _ in batch]
        width, heat = max(map(len, prompts)), sampling.get("temperature", 1.0)
        tokens = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
        place, cache = (mask.cumsum(1) - 1).clamp(min=0), DynamicCache(config=self.model.config)
        said: list[list[int]] = [[] for _ in batch]
        scores: list[list[float]] = [[] for _ in batch]
        live = [True] * len(batch)
        for _ in range(sampling["max_tokens"]):
            inputs = {"attention_mask": mask, "position_ids": place, "past_key_values": cache, "logits_to_keep": 1}
            logp = torch.log_softmax(self.model(tokens, **inputs).logits[:, -1].float() / (heat or 1.0), -1)
            tokens = torch.multinomial(logp.exp(), 1, generator=self.generator) if heat else logp.argmax(-1, True)
            for i, token in enumerate(tokens[:, 0].tolist()):
                if live[i]:
                    said[i].append(token)
                    scores[i].append(float(logp[i, token]))
                    live[i] = token not in self.end
            if not any(live):
                break
            place, mask = place[:, -1:] + 1, torch.cat([mask, torch.ones_like(tokens)], 1)
        for (_, _, done), new, of_tokens in zip(batch, said, scores, strict=True):
            more = {"global_steps": self.update}
            done.set_result(TokenOutput(token_ids=new, log_probs=of_tokens, stop_reason="completed", extra_fields=more))

    def wake_up(self) -> None: ...
    def sleep(self) -> None: ...
    def abort_all_requests(self, reject_request: bool = False) -> None: ...  # what was asked for is answered
    def resume_generation(self) -> None: ...
    def clear_kv_cache(self) -> None: ...
    def release_kv_cache(self) -> None: ...
    def resume_kv_cache(self) -> None: ...


class Replica(RolloutReplica):
    async def launch_servers(self) -> None:
        options = {"name": f"verl_cpu_{self.replica_rank}", "num_cpus": 0, "max_concurrency": 1000}
        self._server_handle = ray.remote(Server).options(**options).remote(self.model_config.path, self.replica_rank)
        self.servers, self._server_address = [self._server_handle], "in process"


_ROLLOUT_REGISTRY[ENGINE, "async"] = "verl_cpu.Adapter"
RolloutReplicaRegistry.register(ENGINE, lambda: Replica)
