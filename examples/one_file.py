"""Algorithm 1 of the paper in one file: a tiny language model learns Sokoban with CRBC, on a laptop's CPU.

    python examples/one_file.py                       # 20 updates, a few minutes
    python examples/one_file.py --updates 60          # the main job's length
    python examples/one_file.py --method grpo         # any estimator of `crbc_rl.credit`

Read it from top to bottom. Environments, prompt templates and credit are imported; sampling, batches, the loss and the
optimizer step stand here. The learner in `crbc_rl` does the same, and besides that it reads equal rows once, runs on
many GPUs, resumes, evaluates and reports. A test holds this file to the learner's weights.

Shapes: G rollouts to a group, B rows (environment steps) to a batch, P tokens to a prompt, R to a response, V to the
vocabulary.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from crbc_envs import GroupVectorEnv, PromptWindow
from crbc_rl import credit

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Settings:
    """Credit and KL term of the paper; batch, model and lengths of configs/sokoban_tiny.yaml, which tunes the rest."""

    model: Path = ROOT / "warmstarts" / "sokoban-tiny"
    env_id: str = "CRBC-Sokoban-v0"
    prompt: str = "compact"  # a style of the environment's templates
    history: int = 4  # earlier steps that the prompt may tell of
    updates: int = 20
    seed: int = 0
    num_groups: int = 16  # tasks an update
    group_size: int = 8  # G rollouts of each task
    temperature: float = 1.0
    max_new_tokens: int = 12
    method: str = "crbc"
    clip: float = 0.2  # epsilon of the clipped ratio
    dual_clip: float = 3.0  # bounds the loss where A < 0 and the ratio has run away
    kl: float = 0.01  # lambda_KL
    lr: float = 1e-4  # the paper's 1e-6 is for models of a billion parameters
    weight_decay: float = 0.01
    grad_clip: float = 1.0
    minibatch: int = 256  # environment steps per optimizer step


@dataclass
class Row:
    """One environment step as the policy saw it. What is trained is what was sampled: ids, never text read again."""

    prompt: list[int]
    response: list[int]
    logprobs: list[float]  # of the response's tokens when they were sampled; ratios start from them
    advantage: float = 0.0


# ---- the policy ---------------------------------------------------------------------------------------------------


class Policy:
    """pi_theta: a causal language model and its tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
        ).eval()
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        self.eos: int = self.tokenizer.eos_token_id
        self.pad: int = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else self.eos

    def encode(self, text: str) -> list[int]:
        """One user message in the chat template, ready for the reply."""
        chat = [{"role": "user", "content": text}]
        return self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=False)

    def decode(self, response: Sequence[int]) -> str:
        return self.tokenizer.decode([token for token in response if token != self.eos])

    @torch.no_grad()
    def sample(self, prompts: Sequence[list[int]], seeds: Sequence[int], temperature: float, limit: int) -> list[Row]:
        """One reply to each prompt from softmax(logits / temperature). Each reply has a seed of its own, so that it
        does not depend on what else is in the batch."""
        ids, mask = pad_left(prompts, self.pad)
        cache = DynamicCache(config=self.model.config)
        draws = [np.random.default_rng(seed).random(limit) for seed in seeds]
        uniforms = torch.tensor(np.stack(draws))  # (B, R) in [0, 1)
        tokens: list[Tensor] = []
        logprobs: list[Tensor] = []
        alive = torch.ones(len(prompts), dtype=torch.bool)
        step, position = ids, positions_of(mask)
        while len(tokens) < limit and alive.any():
            output = self.model(step, mask, position, cache)
            scores = (output.logits[:, -1].float() / temperature).log_softmax(dim=-1)  # (B, V)
            # Sample by inverting the cumulated probabilities; in double precision, since V may be large.
            cumulated = scores.double().exp().cumsum(dim=-1)
            uniform = uniforms[:, len(tokens), None] * cumulated[:, -1:]
            step = torch.searchsorted(cumulated, uniform, right=True).clamp(max=cumulated.shape[1] - 1)  # (B, 1)
            tokens.append(step)
            logprobs.append(scores.gather(1, step))
            alive &= step[:, 0] != self.eos
            mask = torch.cat([mask, torch.ones_like(step)], dim=1)
            position = position[:, -1:] + 1
        replies, scored = torch.cat(tokens, dim=1).tolist(), torch.cat(logprobs, dim=1).tolist()
        length = [reply.index(self.eos) + 1 if self.eos in reply else len(reply) for reply in replies]
        return [Row(p, r[:n], s[:n]) for p, r, s, n in zip(prompts, replies, scored, length, strict=True)]

    def logprobs(self, batch: Batch, temperature: float) -> Tensor:
        """log pi(y_k | h, y_<k) of every response token, (B, R)."""
        width = batch.response.shape[1]
        logits = self.model(
            input_ids=torch.cat([batch.prompt, batch.response], dim=1),
            attention_mask=batch.mask,
            position_ids=positions_of(batch.mask),
            logits_to_keep=width + 1,  # only where a response token is predicted
        ).logits[:, :-1]
        scores = (logits.float() / temperature).log_softmax(dim=-1)
        return scores.gather(2, batch.response[..., None])[..., 0]


def pad_left(prompts: Sequence[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Ids and mask, both (B, P). Padding stands on the left, so that every reply begins at the same column."""
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
    return ids, torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])


def positions_of(mask: Tensor) -> Tensor:
    """Token positions that start at 0 at each row's first real token."""
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


# ---- rollouts: lines 2 to 6 of Algorithm 1 ------------------------------------------------------------------------


def seed_of(name: str, *path: int) -> int:
    """The seed of one stream of draws, from what names it: nothing depends on batches or on what was drawn before."""
    return int(np.random.SeedSequence([*name.encode(), *path]).generate_state(1)[0] >> 1)


def play(envs: GroupVectorEnv, policy: Policy, update: int, settings: Settings) -> list[Row]:
    """Play G copies of each of the update's tasks to the end; the rows, rollout after rollout.

    `envs` has proved that the copies start alike, and has counted every transition (anchor, action, successor).
    """
    rng = np.random.default_rng(seed_of("tasks", settings.seed, update, 0))
    tasks = rng.integers(len(envs.panel), size=settings.num_groups).tolist()
    seeds = [seed_of("group", settings.seed, update, 0, g) for g in range(settings.num_groups)]
    observations, infos = envs.reset(options={"task": tasks, "group_seed": seeds})
    windows = [PromptWindow.of(envs, settings.prompt, settings.history) for _ in range(envs.num_envs)]
    rows: list[list[Row]] = [[] for _ in range(envs.num_envs)]
    while envs.active.any():
        live = np.flatnonzero(envs.active).tolist()  # members that have ended cost no token
        prompts, reply_seeds = [], []
        for m in live:
            info = {name: values[m] for name, values in infos.items() if not name.startswith("_")}
            prompts.append(policy.encode(windows[m].prompt(observations[m], info)))
            group, member = divmod(m, settings.group_size)
            reply_seeds.append(seed_of("reply", seeds[group], member, len(rows[m])))
        replies = policy.sample(prompts, reply_seeds, settings.temperature, settings.max_new_tokens)
        actions: list[str | None] = [None] * envs.num_envs
        for m, row in zip(live, replies, strict=True):
            rows[m].append(row)
            actions[m] = policy.decode(row.response)
        before = list(observations)
        observations, _, _, _, infos = envs.step(actions)
        for m in live:
            windows[m].record(before[m], infos["action"][m])  # the action as it was executed, not the reply
    return [row for member in rows for row in member]


# ---- batches ------------------------------------------------------------------------------------------------------


@dataclass
class Batch:
    """B rows as tensors: `prompt` (B, P), `response` (B, R) padded on the right, `mask` (B, P + R) of real tokens, and
    (B, R) each: `counts`, 1 on sampled tokens, `old` log-probabilities and `advantage`."""

    prompt: Tensor
    response: Tensor
    mask: Tensor
    counts: Tensor
    old: Tensor
    advantage: Tensor


def collate(rows: Sequence[Row], pad: int) -> Batch:
    prompt, prompt_mask = pad_left([row.prompt for row in rows], pad)
    width = max(len(row.response) for row in rows)

    def table(values: Sequence[Sequence[float]], filler: float) -> Tensor:
        return torch.tensor([[*value, *[filler] * (width - len(value))] for value in values])

    counts = table([[1] * len(row.response) for row in rows], 0)
    return Batch(
        prompt=prompt,
        response=table([row.response for row in rows], pad),
        mask=torch.cat([prompt_mask, counts], dim=1),
        counts=counts.float(),
        old=table([row.logprobs for row in rows], 0.0),
        advantage=torch.tensor([row.advantage for row in rows])[:, None].expand(-1, width),
    )


def minibatches(rows: Sequence[Row], envs: GroupVectorEnv, update: int, settings: Settings) -> Iterator[list[Row]]:
    """The rows in mini-batches, group by group in shuffled order."""
    table = envs.interned()
    order = np.random.default_rng(seed_of("shuffle", settings.seed, update)).permutation(settings.num_groups)
    shuffled = [rows[i] for i in table.rows_of(order.tolist()).tolist()]
    for start in range(0, len(shuffled), settings.minibatch):
        yield shuffled[start : start + settings.minibatch]


# ---- the objective: eqs. 2 and 15 ---------------------------------------------------------------------------------


def objective(policy: Policy, reference: Policy, batch: Batch, tokens: float, settings: Settings) -> Tensor:
    """The loss to minimise: minus the clipped surrogate, plus KL to the frozen reference; mean over tokens, of which
    a mini-batch of the update has `tokens` on average."""
    logprobs = policy.logprobs(batch, settings.temperature)
    with torch.no_grad():
        anchored = reference.logprobs(batch, settings.temperature)
    ratio = ((logprobs - batch.old) * batch.counts).exp()
    clipped = ratio.clamp(1.0 - settings.clip, 1.0 + settings.clip)
    surrogate = (ratio * batch.advantage).minimum(clipped * batch.advantage)
    # Where A < 0, min() has no lower bound: a ratio far above 1 would swamp everything else.
    bounded = surrogate.maximum(settings.dual_clip * batch.advantage)
    surrogate = surrogate.where(batch.advantage >= 0, bounded)
    d = (anchored - logprobs).clamp(-20.0, 20.0)
    kl = (d.exp() - d - 1.0).clamp(max=10.0)  # k3: never negative, low variance
    return (-(surrogate - settings.kl * kl) * batch.counts).sum() / tokens


# ---- Algorithm 1 --------------------------------------------------------------------------------------------------


def train(settings: Settings) -> Policy:
    """Run Algorithm 1 for `settings.updates` updates; prints each, returns the trained policy."""
    policy, reference = Policy(settings.model), Policy(settings.model)
    reference.model.requires_grad_(False)
    parameters = list(policy.model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=settings.lr, weight_decay=settings.weight_decay)
    envs = GroupVectorEnv(
        settings.env_id,
        settings.num_groups,
        settings.group_size,
        observation="text",
        split="train",
        replies="tags",  # a reply counts only as <think>...</think><action>...</action>
    )
    for update in range(1, settings.updates + 1):
        # Lines 2 to 6: complete rollouts of every group.
        rows = play(envs, policy, update, settings)
        # Lines 7 to 16: anchors into an empirical process, its Bellman closure, and the credit of every step.
        table = envs.interned()
        for row, advantage in zip(rows, credit.advantages_interned(table, settings.method).tolist(), strict=True):
            row.advantage = advantage
        # Line 19: with the advantages held fixed, one pass over the rows.
        parts = list(minibatches(rows, envs, update, settings))
        tokens = sum(len(row.response) for row in rows) / len(parts)
        for part in parts:
            optimizer.zero_grad()
            loss = objective(policy, reference, collate(part, policy.pad), tokens, settings)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(parameters, settings.grad_clip)
            if torch.isfinite(norm):
                optimizer.step()
        invalid = 1.0 - table.valid.mean()
        print(f"update {update:3d}  success {table.success.mean():.1%}  steps {len(rows)}  invalid {invalid:.1%}")
    envs.close()
    return policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--updates", type=int, default=Settings.updates)
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--method", default=Settings.method, choices=sorted(credit.METHODS))
    parser.add_argument("--out", type=Path, help="folder to save the trained policy in")
    given = parser.parse_args()
    policy = train(Settings(updates=given.updates, seed=given.seed, method=given.method))
    if given.out:
        policy.model.save_pretrained(given.out)
        policy.tokenizer.save_pretrained(given.out)


if __name__ == "__main__":
    main()
