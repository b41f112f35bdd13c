"""A policy over any causal language model of the transformers library: samples replies and scores tokens."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from crbc_envs.actions import CLOSE_THINK, LENGTH, OPEN_THINK
from crbc_envs.prompts import Prompt
from crbc_rl.batches import TokenBatch, Turn, pad_left, positions_of
from crbc_rl.distributed import full_tensors, kept_tensors
from crbc_rl.errors import ConfigError
from crbc_rl.policies.chat_tokens import ChatTokens
from crbc_rl.policies.decoding import Decoding, Reply, Thought
from crbc_rl.policies.files import write_model
from crbc_rl.policies.lora import merged_tensors
from crbc_rl.policies.prefixes import Prefixes, RoomyLayer, roomy_cache

Head = Callable[[Tensor], Tensor]
"""Maps hidden states (T, H) to logits (T, V)."""

REACH = 6.0
"""Tokens for each hidden unit at which attention with a mask takes as long as the other layers, on a CPU."""

LOGITS_PER_CHUNK = 2**26
"""Logits whose log-probabilities are computed at a time. Each float32 tensor of that size takes 256 MiB."""

END_OF_THOUGHT = f"\n{CLOSE_THINK}\n\n"
"""What is put behind a thought that is too long: Qwen3 and DeepSeek-R1 end theirs so."""

KERNELS = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
"""Of attention in sampling. Torch prefers cuDNN's on some GPUs, which are planned anew for every token's length."""

BY_COLUMN = ("mpt", "gpt_neo")
"""Models whose attention counts the columns between two tokens. So there may be no padding between them."""

SCALES = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier", "logits_soft_cap")
"""Keys by which a model's config says that it caps or scales what its head gives."""


class TransformersPolicy:
    """pi_theta(y | h): replies to chat prompts, with the log-probability of every sampled token.

    `model` and `tokenizer` are ordinary transformers objects. The tokenizer needs a chat template. Every complete reply
    ends with the token that the template ends a turn with, or else with the eos token, or with one of the model's
    generation config. Raises `ConfigError` for a tokenizer without them, or not of the model's vocabulary.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Tokenizer) -> None:
        self.model = model.eval()  # no dropout: old and new log-probabilities must be of one function
        self.tokenizer = tokenizer
        names = inspect.signature(type(model).forward).parameters
        self._cache = "cache" if "cache" in names else "past_key_values"  # transformers 5.24 has renamed it
        if self._cache not in names:
            raise ConfigError(f"{type(model).__name__} takes no {self._cache}, with which replies are sampled")
        if any(hasattr(module, "recurrent_states") for module in model.modules()):
            raise ConfigError(
                f"{type(model).__name__} keeps its state in its layers, where replies cannot part: take another"
            )
        self._chat = self._chat_tokens()
        end = self._chat.end()
        eos: int | None = tokenizer.eos_token_id if end is None else end  # Gemma's and Phi's eos ends no turn
        if eos is None:
            raise ConfigError("the tokenizer has no eos_token, so a reply would never end: set eos_token in its config")
        self.eos = eos
        """Ends every reply of a lesson."""
        self.pad: int = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.eos
        self.adapted = False
        """Whether the model has LoRA factors (`crbc_rl.policies.lora`)."""
        self.max_prompt_tokens: int | None = None
        """Longer prompts are shortened, or refused; None means no limit."""
        self.truncation: Literal["shorten", "error"] = "shorten"
        self.thought: Thought | None = None
        """The limit of thoughts (`think_at_most`)."""
        self.suppressed_tokens: list[int] = []
        """Tokens that a reply cannot contain, since they stand for something other than text."""
        self.vocabulary: int = model.get_input_embeddings().num_embeddings
        self.remembered = 4_000  # prompts whose ids are kept at most
        self._encoded: dict[tuple[str | None, str, int, tuple[str, ...]], list[int]] = {}
        config = model.config.get_text_config()
        attends_to_all = all(type(layer) is RoomyLayer for layer in roomy_cache(config).layers)
        by_column = config.model_type in BY_COLUMN
        self.prefixes = Prefixes(partial(roomy_cache, config), 2**30) if attends_to_all and not by_column else None
        """The prompts that were read; None where a layer forgets tokens, or counts padding among them."""
        self._version = 0
        self._in_vocabulary([self.eos, self.pad])
        told = getattr(model.generation_config, "eos_token_id", None)
        special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
        also = special.intersection(told if isinstance(told, list) else [told])
        self.ends: Collection[int] = frozenset({eos, *also}.intersection(range(self.vocabulary)))
        """Each ends a reply: `eos`, and special tokens of the model's generation config, as Qwen2.5's has one. Where it
        was left to transformers, it may name a word."""

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.model.device

    # ---- text and tokens ----------------------------------------------------------------------

    def asked(self, prompt: Prompt, earlier: Sequence[str] = ()) -> Turn:
        """The turn of `prompt` without its reply. A prompt of more than `max_prompt_tokens` is shortened as
        `Prompt.shortened` does it, never within the chat template. `earlier` has the texts before it, of the user and
        the assistant in turn. Raises `ConfigError` where it cannot be shortened, or with `truncation` "error".
        """
        ids, most = self.encode(prompt, earlier), self.max_prompt_tokens
        if most is None or len(ids) <= most:
            return Turn(ids, [], [], images=prompt.images)
        what = f"rollout.max_prompt_tokens={most}: a prompt has {len(ids):,} tokens"
        if self.truncation == "error":
            raise ConfigError(f"{what}: raise the limit, or set rollout.truncation=shorten")
        tried = [len(ids)]

        def fits(shorter: Prompt) -> bool:
            tried.append(len(self.encode(shorter)))
            return tried[-1] <= most

        shortened = prompt.shortened(fits)
        if shortened is None:
            raise ConfigError(f"{what} and cannot be made shorter than {min(tried):,}: raise the limit to that or more")
        return Turn(self.encode(shortened), [], [], images=shortened.images, shortened=True)

    def encode(self, prompt: Prompt, earlier: Sequence[str] = ()) -> list[int]:
        """Token ids of `prompt` in the chat template, after `earlier` texts, up to the start of the reply."""
        return self.encode_text(prompt.text, prompt.system, 0, *earlier)

    def encode_text(self, prompt: str, system: str | None = None, frames: int = 0, *earlier: str) -> list[int]:
        """Token ids of the message `prompt`, after `system`, if there is such a message, and `earlier`, as in `asked`.

        Each of `frames` places of the user becomes the tokens of one frame. What else spells a control token is text.
        """
        key = (system, prompt, frames, earlier)
        if key not in self._encoded:
            if len(self._encoded) > self.remembered:
                self._encoded.clear()
            self._encoded[key] = self._in_vocabulary(self._chat.encode(prompt, system, frames, earlier))
        return self._encoded[key]

    def _chat_tokens(self) -> ChatTokens:
        return ChatTokens(self.tokenizer)

    def _in_vocabulary(self, ids: list[int]) -> list[int]:
        if not 0 <= min(ids) <= max(ids) < self.vocabulary:
            raise ConfigError(
                f"the tokenizer has token {max(ids):,}, and the model knows {self.vocabulary:,}: take its own tokenizer"
            )
        return ids

    def text(self, response: Sequence[int]) -> str:
        """The text of a reply's ids, `response`, without the end token."""
        return self.tokenizer.decode([token for token in response if token not in self.ends])

    def decode_prompt(self, turn: Turn) -> str:
        """The prompt of `turn` as the model read it, the chat template's markers included."""
        return self.tokenizer.decode(turn.prompt)

    # ---- sampling -----------------------------------------------------------------------------

    def generate(
        self, prompts: Sequence[Prompt], seeds: Sequence[int], temperature: float, max_new_tokens: int
    ) -> list[Turn]:
        """Sample one reply to each of `prompts`. `seeds` and `temperature` are as in `Policy.generate`. A reply of
        `max_new_tokens` may have no end token."""
        asked, draws = [self.asked(prompt) for prompt in prompts], map(np.random.default_rng, seeds)
        replies = [Reply(turn, random, max_new_tokens, self.thought) for turn, random in zip(asked, draws, strict=True)]
        decoding = Decoding[Reply](self, temperature)
        decoding.join(replies)
        while decoding.step():
            pass
        return [self.ended(one.asked, one.tokens, one.logprobs, one.forced) for one in replies]

    def ended(self, asked: Turn, response: list[int], logprobs: list[float], forced: tuple[int, int]) -> Turn:
        """The turn `asked` with its reply: the ids `response`, their `logprobs`, the part that was `forced` (`Turn`),
        the text and how it ended. Where the chat template opens the thought, the text begins with it."""
        text = OPEN_THINK * self.opens_thought + self.text(response)
        told = LENGTH if response[-1] not in self.ends else None
        return replace(asked, response=response, logprobs=logprobs, forced=forced, text=text, finish_reason=told)

    def think_at_most(self, limit: int | None, most: int) -> None:
        """Close thoughts of more tokens than `limit` in replies of at most `most`; None: never. Raises `ConfigError`
        where the tokenizer cannot, and where no token is left for an answer."""
        close = self.tokenizer.encode(END_OF_THOUGHT, add_special_tokens=False)
        if limit is not None and CLOSE_THINK not in self.text(close):
            raise ConfigError(f"rollout.max_thought_tokens: the tokenizer cannot write {CLOSE_THINK}")
        if limit is not None and limit + len(close) >= most:
            raise ConfigError(
                f"rollout.max_thought_tokens: {limit}, and {len(close)} that close a thought, leave no answer of "
                f"max_new_tokens={most}: set it to less than {most - len(close)}"
            )
        closed = lambda tokens: CLOSE_THINK in self.text(tokens)  # noqa: E731  beside what it is for
        self.thought = None if limit is None else Thought(limit, tuple(close), closed)

    @cached_property
    def opens_thought(self) -> bool:
        """Whether the chat template ends with an opened thought, which the reply goes on with."""
        return self.tokenizer.decode(self.encode_text("?")).rstrip().endswith(OPEN_THINK)

    @sdpa_kernel([*KERNELS])
    def read_on(
        self, ids: Tensor, mask: Tensor | None, positions: Tensor | None, cache: DynamicCache, **beside: Tensor
    ) -> Tensor:
        """The logits after the last of the new tokens `ids` (B, L), (B, V). `cache` has what was read before, and takes
        the new tokens in. `mask` (B, read and new) and `positions` (..., B, L) may be None; `beside` is `layout`'s."""
        mask, positions = (None if given is None else given.to(self.device) for given in (mask, positions))
        kept = {"attention_mask": mask, "position_ids": positions, self._cache: cache, "logits_to_keep": 1}
        return self.model(input_ids=ids.to(self.device), **kept, **beside).logits[:, -1]

    def read(self, asked: Sequence[Turn]) -> tuple[Tensor, DynamicCache, Tensor | None, Tensor]:
        """Read the n different prompts of `asked`, and of these what `prefixes` does not know.

        Returns the logits after each (n, V), the cache, the mask (n, L) of tokens that are no padding, None where there
        is none, and the position of each row's next token (..., n, 1)."""
        prompts = [turn.prompt for turn in asked]
        if self.prefixes is not None and not any(turn.images for turn in asked):
            version = sum(weight._version for weight in self.model.parameters())
            if version != self._version:  # torch counts each change of a tensor in place
                self.prefixes.clear()
            self._version = -1  # until all is read: what failed is forgotten
            logits, paths = self.prefixes.read(prompts, self.read_on)
            cache, real = self.prefixes.gather(paths, range(len(paths)))
            self.prefixes.trim()
            self._version = version
            length = torch.tensor([[len(path)] for path in paths], device=self.device)
            return logits, cache, None if real is None else real.to(self.device), length
        ids, mask = pad_left(prompts, self.pad)
        ids, mask = ids.to(self.device), None if mask is None else mask.to(self.device)
        positions, beside = self.layout(ids, mask, [turn.images for turn in asked])
        cache = roomy_cache(self.model.config.get_text_config())
        logits = self.read_on(ids, mask, positions, cache, **beside)
        first = torch.full_like(ids[:, :1], ids.shape[1]) if positions is None else positions[..., -1:] + 1
        return logits, cache, mask, first

    def forget(self) -> None:
        """Forget the prompts that were read. What follows is then the same bytes, whatever was read before."""
        if self.prefixes is not None:
            self.prefixes.clear()

    # ---- scoring ------------------------------------------------------------------------------

    @property
    def reach(self) -> float | None:
        """The tokens of a row at which attention costs as much as the rest of the model, where turns may share rows
        (`crbc_rl.trees`). None where a kernel or a layer wants rows of one turn."""
        config = self.model.config.get_text_config()
        able = self.prefixes is not None and self.device.type == "cpu" and config._attn_implementation == "sdpa"
        able = able and not getattr(config, "alibi", False)  # Falcon makes it of a mask by rows
        return REACH * config.hidden_size if able else None

    @property
    def packs(self) -> bool:
        """Whether attention takes rows of several turns, which it knows by their positions."""
        how = str(self.model.config.get_text_config()._attn_implementation)
        return self.prefixes is not None and how.startswith("flash")

    def logprobs(self, batch: TokenBatch, temperature: float, entropy_counts: bool = True) -> tuple[Tensor, Tensor]:
        """log pi(y_k | h, y_<k) of all response tokens of `batch` at `temperature`, and the entropy there: both (B, R).

        Logits would be the largest tensor. They are computed where a response token is predicted, `LOGITS_PER_CHUNK` at
        a time, and again in the backward pass where there are more. The entropy has a gradient with `entropy_counts`.
        """
        targets = batch.ids[batch.row, batch.column]
        few = max(1, LOGITS_PER_CHUNK // self.vocabulary)
        repeated = few < len(targets) and torch.is_grad_enabled()

        def scored(head: Head, hidden: Tensor, ids: Tensor) -> Tensor:
            chosen = self._logprobs_and_entropy(head(hidden), ids, temperature, entropy_counts)
            return torch.stack(chosen, dim=1)

        def chunked(head: Head, hidden: Tensor) -> Tensor:
            score = partial(checkpoint, scored, use_reentrant=False) if repeated else scored
            return torch.cat([score(head, h, i) for h, i in zip(hidden.split(few), targets.split(few), strict=True)])

        if self.plain_head:
            found = self.at_responses(batch, chunked)
        else:
            found = chunked(lambda logits: logits, self.at_responses(batch, lambda head, hidden: head(hidden)))
        chosen, entropy = (self.by_row(batch, values)[batch.turn] for values in found.unbind(1))
        return chosen, entropy if entropy_counts else entropy.detach()

    @property
    def plain_head(self) -> bool:
        """Whether logits are the head's output as it is: some models cap or scale them."""
        config = self.model.config.get_text_config()
        return not any(getattr(config, name, None) for name in SCALES)

    def at_responses(self, batch: TokenBatch, what: Callable[[Head, Tensor], Tensor]) -> Tensor:
        """What `what` makes of the head and the hidden states (T, H) before the response tokens in the ids of `batch`.

        It takes the head's place within the model's own pass, where the weights of a sharded model are whole.
        """
        positions, beside = self.layout(batch.ids, None, batch.images, batch.prompt)
        if batch.position is not None:
            positions, beside = batch.position, {} if batch.mask is None else {"attention_mask": batch.mask}
        module: Any = self.model.get_output_embeddings()
        head = module.forward
        module.forward = lambda hidden: what(head, hidden[batch.row, batch.before])
        try:
            made: Tensor = self.model(input_ids=batch.ids, position_ids=positions, use_cache=False, **beside).logits
        finally:
            del module.forward
        return made

    @staticmethod
    def by_row(batch: TokenBatch, values: Tensor) -> Tensor:
        """The `values` of response tokens (T,) by distinct turn of `batch`, (D, R); 0 on padding."""
        return values.new_zeros(batch.real.shape).masked_scatter(batch.real, values)

    def _logprobs_and_entropy(
        self, logits: Tensor, ids: Tensor, temperature: float, entropy_counts: bool
    ) -> tuple[Tensor, Tensor]:
        """The log-probability of `ids` (T,) and the entropy at them, from `logits` (T, V)."""
        scores = self.scores(logits, temperature)
        with torch.set_grad_enabled(entropy_counts and torch.is_grad_enabled()):
            entropy = -(scores.exp() * scores).sum(dim=-1)
        return scores.gather(1, ids[:, None])[:, 0], entropy

    def scores(self, logits: Tensor, temperature: float) -> Tensor:
        """Log-probabilities (n, V) at `temperature` by `logits` (n, V); suppressed tokens have probability 0."""
        logits = logits.float() / temperature
        if self.suppressed_tokens:
            # Not -inf: the gradient of its entropy would be nan.
            logits = logits.index_fill(-1, torch.tensor(self.suppressed_tokens, device=logits.device), -1e9)
        return torch.log_softmax(logits, dim=-1)

    def layout(
        self, ids: Tensor, mask: Tensor | None, images: Sequence[Sequence[Any]], prompt: Tensor | None = None
    ) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Position ids of the tokens `ids` (U, L), None for 0, 1, ...; and the model's other inputs by name. `mask`
        (U, L) is 0 on padding; None: there is none. `images` has the frames of each row, `prompt` (U,) the length of
        each prompt where responses follow."""
        return None if mask is None else positions_of(mask), {}

    # ---- weights and files --------------------------------------------------------------------

    def cast(self, precision: torch.dtype) -> None:
        """Keep the weights in another `precision`. Buffers stay: rounded frequencies turn positions by radians."""
        for weight in self.model.parameters():
            weight.data = weight.data.to(precision)

    def save(self, folder: Path, main: bool = True) -> None:
        """Write an ordinary transformers checkpoint to `folder`: config, safetensors, tokenizer and chat template.

        Where the weights are sharded, every rank calls this, and the `main` rank writes.
        """
        write_model(self.model, self.weights(), folder, main)
        if main:
            self.tokenizer.save_pretrained(folder)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Name and full tensor of each weight, as in a model without LoRA. Sharded: all ranks must iterate over all."""
        return merged_tensors(self.model) if self.adapted else full_tensors(self.model)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Copy `weights`, (name, full tensor) of each, into the model. Raises `KeyError` for a name that it lacks."""
        own = dict(kept_tensors(self.model))
        with torch.no_grad():
            for name, tensor in weights:
                own[name].copy_(tensor)

    sleep = forget  # the weights of a sampling copy are small compared with the trainer's memory

    def wake(self) -> None:
        """Do nothing; see `sleep`."""
