"""A policy over any causal language model of the transformers library: sample replies, score tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer
from transformers.utils import logging as hf_logging

from crbc_envs.prompts import Prompt
from crbc_rl.batches import TokenBatch, Turn, pad_left, positions_of
from crbc_rl.distributed import whole_tensors
from crbc_rl.errors import ConfigError
from crbc_rl.policies.lora import merged_tensors

AT_ONCE = 2**26
"""Logits whose log-probabilities are kept at a time; 256 MiB for each of the float32 tensors that takes."""


class TransformersPolicy:
    """pi_theta(y | h): replies to chat prompts, with the log-probability of every sampled token.

    `model` and `tokenizer` are ordinary transformers objects; the tokenizer has a chat template and
    an end-of-turn token, with which every complete reply ends.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Tokenizer) -> None:
        self.model = model.eval()  # no dropout: old and new log-probabilities must be of one function
        self.tokenizer = tokenizer
        if tokenizer.eos_token_id is None:
            raise ConfigError("the tokenizer has no eos_token, so a reply would never end")
        self.eos: int = tokenizer.eos_token_id
        self.pad: int = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.eos
        self.adapted = False
        """Whether LoRA factors stand beside the weights (`crbc_rl.policies.lora`)."""
        self.max_prompt_tokens: int | None = None
        """A longer prompt loses its beginning."""
        self.unsayable: list[int] = []
        """Tokens that stand for something other than text."""
        self._encoded: dict[str, list[int]] = {}

    @property
    def device(self) -> torch.device:
        return self.model.device

    # ---- text and tokens ----------------------------------------------------------------------

    def encode(self, prompt: Prompt) -> list[int]:
        """The ids of one user message in the chat template, ready for the reply."""
        return self.cut(self.encode_text(prompt.text))

    def cut(self, ids: list[int]) -> list[int]:
        """What is read of a prompt that may be over the limit."""
        return ids[-self.max_prompt_tokens :] if self.max_prompt_tokens else ids

    def encode_text(self, prompt: str) -> list[int]:
        """The ids of a message that is text alone, however long."""
        if prompt not in self._encoded:
            if len(self._encoded) > 50_000:
                self._encoded.clear()
            chat = [{"role": "user", "content": prompt}]
            ids = self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=False)
            self._encoded[prompt] = ids
        return self._encoded[prompt]

    def text(self, response: Sequence[int]) -> str:
        """A reply's ids as text, without the end token."""
        return self.tokenizer.decode([token for token in response if token != self.eos])

    def decode_prompt(self, turn: Turn) -> str:
        """The prompt as the model read it, the chat template's markers included."""
        return self.tokenizer.decode(turn.prompt)

    # ---- sampling -----------------------------------------------------------------------------

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[Prompt], seeds: Sequence[int], temperature: float, max_new_tokens: int
    ) -> list[Turn]:
        """Sample one reply to each prompt (see `Policy.generate`).

        Equal prompts are read once: members of a group that stand at one anchor share their prefill.
        A reply that reaches `max_new_tokens` is cut there, without an end token.
        """
        asked = [Turn(self.encode(prompt), [], [], images=prompt.images) for prompt in prompts]
        distinct = {turn.key: turn for turn in asked}
        place = {key: i for i, key in enumerate(distinct)}
        index = torch.tensor([place[turn.key] for turn in asked], device=self.device)
        ids, mask = pad_left([turn.prompt for turn in distinct.values()], self.pad)
        ids, mask = ids.to(self.device), None if mask is None else mask.to(self.device)
        positions, beside = self.layout(ids, mask, [turn.images for turn in distinct.values()])
        cache = DynamicCache(config=self.model.config.get_text_config())
        logits = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            logits_to_keep=1,
            **beside,
        ).logits[index, -1]
        cache.batch_select_indices(index)
        mask = None if mask is None else mask[index]
        # Where each row's next token stands: behind its last one.
        position = torch.full_like(index[:, None], ids.shape[1])
        if positions is not None:
            position = positions[..., index, -1:] + 1

        rolls = np.stack([np.random.default_rng(seed).random(max_new_tokens) for seed in seeds])
        dice = torch.from_numpy(rolls).to(self.device)
        alive, lengths = torch.ones_like(index, dtype=torch.bool), torch.zeros_like(index)
        tokens, logprobs = [], []
        while True:
            scores = self.scores(logits, temperature)
            token = draw(scores, dice[:, len(tokens), None])
            tokens.append(token)
            logprobs.append(scores.gather(1, token))
            lengths += alive
            alive &= token[:, 0] != self.eos
            if len(tokens) == max_new_tokens or not alive.any():
                break
            if mask is not None:
                mask = torch.cat([mask, torch.ones_like(token)], dim=1)
            logits = self.model(
                input_ids=token, attention_mask=mask, position_ids=position, past_key_values=cache
            ).logits[:, -1]
            position = position + 1
        replies, scored = (torch.cat(columns, dim=1).tolist() for columns in (tokens, logprobs))
        return [
            Turn(turn.prompt, reply[:n], values[:n], self.text(reply[:n]), turn.images)
            for turn, reply, values, n in zip(asked, replies, scored, lengths.tolist(), strict=True)
        ]

    # ---- scoring ------------------------------------------------------------------------------

    def logprobs(self, batch: TokenBatch, temperature: float, entropy_counts: bool = True) -> tuple[Tensor, Tensor]:
        """log pi(y_k | h, y_<k) of every response token at `temperature`, and the entropy there: both (B, R).

        Logits are formed only where a response token is predicted. They are the largest tensor there is, and what is
        made of them is several times as large: above `AT_ONCE` that is done for a few rows at a time, and once more
        for their gradient. Without `entropy_counts` the entropy has none.
        """
        logits = self.logits(batch)
        few = max(1, AT_ONCE // logits[0].numel())
        again = few < len(logits) and torch.is_grad_enabled()
        said = partial(checkpoint, self._said, use_reentrant=False) if again else self._said
        parts = [
            said(some, ids, temperature, entropy_counts)
            for some, ids in zip(logits.split(few), batch.ids[:, -batch.response_length :].split(few), strict=True)
        ]
        chosen, entropy = map(torch.cat, zip(*parts, strict=True))
        return chosen[batch.turn], entropy[batch.turn]

    def logits(self, batch: TokenBatch) -> Tensor:
        """What the model says before each response token of the distinct rows, and behind the last, (U, R + 1, V)."""
        length = batch.response_length
        positions, beside = self.layout(batch.ids, batch.mask, batch.images, length)
        return self.model(
            input_ids=batch.ids, attention_mask=batch.mask, position_ids=positions, logits_to_keep=length + 1, **beside
        ).logits

    def _said(self, logits: Tensor, ids: Tensor, temperature: float, entropy_counts: bool) -> tuple[Tensor, Tensor]:
        """The log-probability of `ids` (U, R), and the entropy there, from `logits` (U, R + 1, V)."""
        scores = self.scores(logits[:, :-1], temperature)
        with torch.set_grad_enabled(entropy_counts and torch.is_grad_enabled()):
            entropy = -(scores.exp() * scores).sum(dim=-1)
        return scores.gather(2, ids[..., None])[..., 0], entropy

    def scores(self, logits: Tensor, temperature: float) -> Tensor:
        """Log-probabilities at `temperature`, with none for tokens that cannot be said."""
        logits = logits.float() / temperature
        if self.unsayable:
            # Not -inf, whose entropy has no gradient.
            logits = logits.index_fill(-1, torch.tensor(self.unsayable, device=logits.device), -1e9)
        return torch.log_softmax(logits, dim=-1)

    def layout(
        self, ids: Tensor, mask: Tensor | None, images: Sequence[Sequence[Any]], response_length: int = 0
    ) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Where the tokens `ids` (U, L) stand, or None for 0, 1, ...; and what a model reads beside them."""
        return None if mask is None else positions_of(mask), {}

    # ---- files --------------------------------------------------------------------------------

    def save(self, folder: Path, main: bool = True) -> None:
        """An ordinary transformers checkpoint: config, safetensors, tokenizer and chat template. Where the weights
        are sharded, every process calls this, and the one that is `main` writes."""
        write_model(self.model, self.weights(), folder, main)
        if main:
            self.tokenizer.save_pretrained(folder)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight, put together, by its name in a plain model; all processes have to ask for all of them."""
        return merged_tensors(self.model) if self.adapted else whole_tensors(self.model)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Copy whole tensors into the model, by name."""
        own = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, tensor in weights:
                own[name].copy_(tensor)

    def sleep(self) -> None:
        """Nothing: beside a trainer the weights of a model for sampling are small."""

    def wake(self) -> None:
        """Nothing, likewise."""


def write_model(model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]], folder: Path, main: bool) -> None:
    """Config and safetensors. All processes put the `weights` together, and the one that is `main` writes them."""
    kept = {name: tensor.cpu() for name, tensor in weights if main}
    if main:
        with quiet():
            model.save_pretrained(folder, state_dict=kept)


def draw(scores: Tensor, dice: Tensor) -> Tensor:
    """One token id per row, (B, 1): where `dice` (B, 1), uniform in [0, 1), falls in the cumulated
    probabilities of `scores` (B, V), log-probabilities. In double precision, since a vocabulary of 150,000
    adds up many small numbers."""
    cumulated = scores.double().exp().cumsum(dim=-1)
    last = cumulated.shape[-1] - 1
    return torch.searchsorted(cumulated, dice * cumulated[:, -1:], right=True).clamp(max=last)


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no load reports of the transformers library while this lasts."""
    before = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(before)
        hf_logging.enable_progress_bar()
