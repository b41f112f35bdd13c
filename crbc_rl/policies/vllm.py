"""vLLM as the sampling engine: in the trainer's process, on its device, with its own copy of the weights.

It receives full tensors after every update, and releases its memory during training.
Written to vLLM 0.32 (Apache-2.0); the order of sleep, weights and cache is the one of TRL (Apache-2.0).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from crbc_envs.errors import install_extra
from crbc_envs.prompts import Prompt
from crbc_envs.tasks import stream
from crbc_rl.batches import Turn
from crbc_rl.config import TrainConfig
from crbc_rl.errors import ConfigError
from crbc_rl.policies.api import answer
from crbc_rl.policies.files import model_folder
from crbc_rl.policies.transformers import TransformersPolicy

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # run the engine in this process, so that it can receive tensors
    "VLLM_NO_USAGE_STATS": "1",  # send no usage statistics
}
DEFAULTS = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    # The second model runner, which vLLM prefers on a GPU, has a sampler of its own. Seeds and log-probabilities are
    # tested with the first one, the only one without a GPU.
    "VLLM_USE_V2_MODEL_RUNNER": "0",
}
"""Where the user sets nothing else."""


class VllmPolicy:
    """A `crbc_rl.policies.api.Generator`: vLLM samples from the model in `source`, a folder or a name on the hub.

    `policy` is the trained policy. Its tokenizer encodes prompts and decodes replies.

    `tensor_parallel` shards the weights over that many neighbouring ranks of torchrun. These ranks make every call
    together, with equal prompts and seeds, and each gets all turns. `gpu_memory_utilization` is the fraction of the
    device's memory for weights, activations and key-value cache; without a GPU, of main memory. It must be free when
    the engine is created. `max_model_len` is the longest prompt with its reply in tokens, by default the model's limit.
    `dtype` is the precision of the computation ("auto" halves a float32 checkpoint). `enforce_eager` disables
    compilation and CUDA graphs. `images` is the largest number of frames in a prompt of a vision model; vLLM reserves
    memory for them, and none for video. `waves` is `rollout.waves` (see `Requests`).

    Sampling is from softmax(logits / temperature) alone; the checkpoint's generation_config.json is ignored. The
    log-probabilities are of this distribution. The noise is a function of a request's seed. The rounding of logits
    depends on the rest of the batch (not with `VLLM_BATCH_INVARIANT=1`, which vLLM has for recent GPUs).

    Raises `ConfigError` where vLLM is not installed or cannot load the model.
    """

    def __init__(
        self,
        source: Path | str,
        policy: TransformersPolicy,
        *,
        tensor_parallel: int = 1,
        gpu_memory_utilization: float = 0.6,
        max_model_len: int | None = None,
        dtype: str = "float32",
        enforce_eager: bool = False,
        images: int = 1,
        waves: int = 1,
    ) -> None:
        if tensor_parallel > 1 and "RANK" not in os.environ:
            raise ConfigError(f"tensor_parallel={tensor_parallel} needs that many processes: start with torchrun")
        vllm, platform = _import_vllm()
        if platform.is_cpu():
            _keep_weights_unpacked()
        self.policy, self.waves = policy, waves
        self._sampling = vllm.SamplingParams
        self._sleeps: bool = platform.is_sleep_mode_available()
        self._awake = True
        sees = hasattr(policy.model.config, "vision_config")
        try:
            self.llm = vllm.LLM(
                str(source),
                trust_remote_code=False,
                load_format="safetensors",
                tensor_parallel_size=tensor_parallel,
                # Each rank of torchrun has its own engine, or a part of one.
                distributed_executor_backend="external_launcher" if "RANK" in os.environ else None,
                gpu_memory_utilization=gpu_memory_utilization,
                max_model_len=max_model_len,
                dtype=dtype,
                enforce_eager=enforce_eager,
                enable_sleep_mode=self._sleeps,
                enable_prefix_caching=True,
                # With chunked prefill vLLM must undo a draw made within a prompt, which CPU generators do not support.
                enable_chunked_prefill=not platform.is_cpu(),
                logprobs_mode="processed_logprobs",  # the default ignores the temperature
                limit_mm_per_prompt={"image": images, "video": 0} if sees else None,
                skip_tokenizer_init=not sees,  # input and output are token ids
                use_tqdm_on_load=False,
            )
        except (ValueError, OSError, RuntimeError) as error:
            raise ConfigError(f"vLLM cannot load {source}: {' '.join(str(error).split())[:500]}") from error

    @classmethod
    def colocated(cls, config: TrainConfig, policy: TransformersPolicy) -> VllmPolicy:
        """The learner's engine by `config`, in one process with the trained `policy`. Call `load_weights` first."""
        generator, rollout = config.generator, config.rollout
        return cls(
            model_folder(config.model),  # which the policy has checked
            policy,
            tensor_parallel=generator.tensor_parallel,
            gpu_memory_utilization=generator.memory,
            max_model_len=rollout.max_prompt_tokens and rollout.max_prompt_tokens + rollout.max_new_tokens,
            dtype=config.policy.precision,
            waves=rollout.waves,
        )

    # ---- sampling -----------------------------------------------------------------------------

    def generate(
        self, prompts: Sequence[Prompt], seeds: Sequence[int], temperature: float, max_new_tokens: int
    ) -> list[Turn]:
        """One reply to each of `prompts` by `seeds`, `temperature` and `max_new_tokens`, as in `Policy.generate`."""
        with self.queue(temperature, max_new_tokens) as queue:
            return answer(queue, prompts, seeds)

    @contextmanager
    def queue(self, temperature: float, max_new_tokens: int) -> Iterator[Requests]:
        """A queue whose prompts join the engine's batch at once (see `Continuous`), for replies at `temperature` of at
        most `max_new_tokens` tokens. Raises `RuntimeError` while the engine sleeps."""
        if not self._awake:
            raise RuntimeError("the engine sleeps and its weights are gone: wake(), then load_weights()")
        requests = Requests(self, temperature, max_new_tokens)
        try:
            yield requests
        finally:
            self.llm.llm_engine.abort_request(list(requests.asked))

    def sampling(self, seed: int, temperature: float, max_new_tokens: int) -> Any:
        """vLLM's parameters of a reply to be drawn by `seed` at `temperature`, of at most `max_new_tokens`."""
        return self._sampling(
            temperature=temperature,
            seed=seed,
            max_tokens=max_new_tokens,
            logprobs=0,  # of the sampled token only
            stop_token_ids=sorted(self.policy.ends),
            ignore_eos=True,  # only stop_token_ids ends a reply
            logit_bias=dict.fromkeys(self.policy.suppressed_tokens, -math.inf) or None,
            detokenize=False,
        )

    def request(self, turn: Turn) -> dict[str, Any]:
        """The prompt of `turn`, and what it has of a reply, in vLLM's format."""
        ids = turn.prompt + turn.response
        if not turn.images:
            return {"prompt_token_ids": ids}
        from PIL import Image

        place = self.policy.model.config.image_token_id
        # One image token per frame; vLLM repeats it for the frame's tokens.
        places = [token for i, token in enumerate(ids) if token != place or ids[i - 1] != place]
        frames = [Image.fromarray(image) for image in turn.images]
        return {"prompt_token_ids": places, "multi_modal_data": {"image": frames}}

    def answered(self, turn: Turn, output: Any) -> Turn:
        """The `turn` with the reply of a finished request, vLLM's `output`. Raises `ConfigError` where vLLM and the
        model read other prompt tokens."""
        if list(output.prompt_token_ids) != turn.prompt + turn.response:
            raise ConfigError(
                "vLLM cuts frames into other patches than the model's own processor: see its size settings"
            )
        reply = output.outputs[0]
        response = list(reply.token_ids)
        logprobs = [place[token].logprob for token, place in zip(response, reply.logprobs, strict=True)]
        return self.policy.ended(turn, turn.response + response, turn.logprobs + logprobs, turn.forced)

    # ---- weights and memory -------------------------------------------------------------------

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Load the tensor of each weight, whole, named as in a transformers state dict, as `weights` yields them.

        Caches of the old weights are cleared. Raises `ConfigError` where a weight is missing.
        """

        def load(model: Any) -> set[str]:
            return {name for name, _ in model.named_parameters()} - model.load_weights(weights)

        missing = sorted(set().union(*self.llm.apply_model(load)))
        if missing:
            raise ConfigError(f"{len(missing)} weights of the engine were not given, the first is {missing[0]}")
        self.llm.reset_prefix_cache()
        self.llm.llm_engine.reset_encoder_cache()  # of frames
        if not self._awake:
            self.llm.wake_up(tags=["kv_cache"])
            self._awake = True

    def sleep(self) -> None:
        """Free weights and key-value cache. Without a GPU this does nothing."""
        if self._sleeps and self._awake:
            self.llm.sleep(level=2)
            self._awake = False

    def wake(self) -> None:
        """Allocate the weights. `load_weights` must follow; it also allocates the key-value cache."""
        if not self._awake:
            torch.cuda.empty_cache()  # memory that the trainer freed and torch cached
            self.llm.wake_up(tags=["weights"])


class Requests:
    """A `crbc_rl.policies.api.Queue` on the engine.

    `ready` decodes until a reply has ended, so that no finished member waits. The environments step meanwhile, and
    decoding waits for those that take longer than it takes to the next end. With `waves` above 1, for slow
    environments, it decodes until an eighth of the replies have ended, or for `PATIENCE` tokens of each. It counts
    tokens, not time, so that ranks that sample together do the same, and a repeated run does too.
    """

    PATIENCE = 16

    def __init__(self, engine: VllmPolicy, temperature: float, max_new_tokens: int) -> None:
        self.engine, self.limits = engine, (temperature, max_new_tokens)
        self.asked: dict[str, tuple[int, Turn, int]] = {}
        """By the engine's request id: key, the turn without its reply or with a thought's tokens, and the seed."""

    @property
    def waiting(self) -> int:
        return len(self.asked)

    def ask(self, key: int, prompt: Prompt, seed: int) -> None:
        self._go_on(key, self.engine.policy.asked(prompt), seed)

    def _go_on(self, key: int, turn: Turn, seed: int) -> None:
        """Ask for the rest of a reply. Where thoughts have a limit, the first request ends there."""
        (temperature, most), thought = self.limits, self.engine.policy.thought
        length = most - len(turn.response) if turn.response or thought is None else min(most, thought.limit)
        sampling = self.engine.sampling(seed, temperature, length)
        (name,) = self.engine.llm.enqueue([self.engine.request(turn)], sampling, use_tqdm=False)
        # What follows the dash is random, and no part of the output's request_id.
        self.asked[name.partition("-")[0]] = key, turn, seed

    def ready(self) -> list[tuple[int, Turn]]:
        enough = min(len(self.asked), 1) if self.engine.waves == 1 else -(-len(self.asked) // 8)
        finished: list[tuple[int, Turn]] = []
        for _ in range(self.PATIENCE):
            if len(finished) >= enough:
                break
            for output in self.engine.llm.llm_engine.step():
                if output.finished:
                    key, turn, seed = self.asked.pop(output.request_id)
                    turn = self.engine.answered(turn, output)
                    if turn.finish_reason is None or len(turn.response) >= self.limits[1]:
                        finished.append((key, turn))
                    else:
                        self._go_on(key, self._closed(turn), stream("answer", seed))
        return finished

    def _closed(self, turn: Turn) -> Turn:
        """The turn of a reply that came to the limit of thoughts, with its thought closed."""
        thought = self.engine.policy.thought
        assert thought is not None
        begin, end = forced = thought.forced(turn.response)
        close = thought.close[: end - begin]
        return replace(
            turn, response=[*turn.response, *close], logprobs=[*turn.logprobs, *[0.0] * len(close)], forced=forced
        )


def _import_vllm() -> tuple[Any, Any]:
    """The vllm module and its current platform. Raises `ConfigError` where vLLM is not installed."""
    os.environ.update(ENVIRONMENT)
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        import vllm
        from vllm.platforms import current_platform
    except ModuleNotFoundError as missing:
        raise ConfigError(f"generator.engine=vllm: vLLM is not installed: {install_extra('vllm')}") from missing
    return vllm, current_platform


def _keep_weights_unpacked() -> None:
    """Disable oneDNN on the CPU: vLLM would pack its initial weights for it and ignore later ones."""
    import vllm._custom_ops as ops

    ops._supports_onednn = False
