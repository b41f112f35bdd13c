import json
from pathlib import Path

import numpy as np
import pytest
import torch
from learner_fixtures import fresh_policy
from safetensors.torch import load_file, save_file
from tables import table, weighed
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, DynamicCache

from crbc_envs.prompts import Prompt
from crbc_rl.batches import RolloutBatch, TokenBatch, micro_batches
from crbc_rl.errors import ConfigError
from crbc_rl.policies.decoding import Decoding, Reply, draw
from crbc_rl.policies.load import load_policy
from crbc_rl.policies.transformers import TransformersPolicy

PROMPTS = ["Sokoban\n# # #\n# @ #\n# # #\nYour move?", "up", "Sokoban\n# _\nYour move?", "up"]


@pytest.fixture(scope="module")
def policy(device: torch.device) -> TransformersPolicy:
    policy = fresh_policy()
    policy.model.to(device)
    with torch.no_grad():  # sharpen it, so that a wrong position or mask would show
        for weight in policy.model.parameters():
            weight.mul_(3.0 if weight.dim() > 1 else 1.0)
    return policy


def _generate(policy: TransformersPolicy, prompts: list[str], seed: int = 0, temperature: float = 1.0) -> list:
    seeds = [1000 * seed + i for i in range(len(prompts))]
    return policy.generate([Prompt(text) for text in prompts], seeds, temperature, 6)


def _batch(turns: list, policy: TransformersPolicy, advantages: list[float] | None = None) -> TokenBatch:
    return weighed(table(turns, advantage=advantages), policy.pad).to(policy.device)


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_log_probabilities_of_sampling_and_of_training_agree(policy: TransformersPolicy, temperature: float) -> None:
    turns = _generate(policy, PROMPTS, temperature=temperature)
    batch = _batch(turns, policy)
    with torch.no_grad():
        again, _ = policy.logprobs(batch, temperature)
    assert len({len(turn.prompt) for turn in turns}) > 1  # some rows are padded
    assert ((again - batch.old_logprobs) * batch.response_mask).abs().max() < 1e-4


def test_padding_changes_nothing(policy: TransformersPolicy) -> None:
    turns = _generate(policy, PROMPTS)
    together = _batch(turns, policy)
    with torch.no_grad():
        padded, _ = policy.logprobs(together, 1.0)
        for values, row in zip(padded, together.rows, strict=True):
            alone, _ = policy.logprobs(_batch([turns[row]], policy), 1.0)
            assert torch.allclose(values[: alone.shape[1]], alone[0], atol=1e-5)


@pytest.mark.parametrize("at_once", [1, 7])
@pytest.mark.parametrize("plain", [True, False])
def test_log_probabilities_made_for_a_few_tokens_at_a_time_are_the_same(
    policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch, at_once: int, plain: bool
) -> None:
    batch = _batch(_generate(policy, PROMPTS), policy)
    seen: list[int] = []

    def found() -> tuple[torch.Tensor, ...]:
        policy.model.zero_grad()
        logprobs, entropy = policy.logprobs(batch, 0.7)
        (logprobs.sum() - 0.3 * entropy.sum()).backward()
        return logprobs, entropy, *(p.grad for p in policy.model.parameters())

    whole = found()
    said = TransformersPolicy._logprobs_and_entropy
    monkeypatch.setattr(
        TransformersPolicy,
        "_logprobs_and_entropy",
        lambda self, logits, *rest: seen.append(len(logits)) or said(self, logits, *rest),
    )
    monkeypatch.setattr("crbc_rl.policies.transformers.LOGITS_PER_CHUNK", at_once * policy.model.config.vocab_size)
    monkeypatch.setattr(TransformersPolicy, "plain_head", plain)
    for one, other in zip(whole, found(), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6 * max(1.0, one.abs().max().item()))
    parts = [len(part) for part in batch.row.split(at_once)]
    assert sorted(seen) == sorted(2 * parts), "each part is made, and made again for its gradient"


class Widest(TorchDispatchMode):
    """The most rows of any tensor over the vocabulary, forward and backward; the head's own weight is none."""

    def __init__(self, vocabulary: int, weights: int) -> None:
        super().__init__()
        self.vocabulary, self.weights, self.rows = vocabulary, weights, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple) else (made,):
            if isinstance(one, torch.Tensor) and one.dim() and one.shape[-1] == self.vocabulary:
                rows = one.numel() // self.vocabulary
                self.rows = max(self.rows, rows if rows != self.weights else 0)
        return made


def test_logits_exist_for_a_few_tokens_at_a_time(policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = _batch(_generate(policy, PROMPTS), policy)
    vocabulary = policy.vocabulary
    monkeypatch.setattr("crbc_rl.policies.transformers.LOGITS_PER_CHUNK", 5 * vocabulary)
    with Widest(vocabulary, policy.model.config.hidden_size) as widest:
        logprobs, entropy = policy.logprobs(batch, 1.0)
        (logprobs.sum() + entropy.sum()).backward()
    assert 0 < widest.rows <= 5 < len(batch.row)


def test_an_entropy_that_does_not_count_has_no_gradient(policy: TransformersPolicy) -> None:
    batch = _batch(_generate(policy, PROMPTS), policy)
    logprobs, entropy = policy.logprobs(batch, 1.0, entropy_counts=False)
    assert logprobs.requires_grad and not entropy.requires_grad
    assert torch.equal(entropy, policy.logprobs(batch, 1.0)[1])


def test_replies_end_with_the_end_token_or_at_the_limit(policy: TransformersPolicy) -> None:
    for turn in _generate(policy, PROMPTS * 8):
        assert len(turn.response) == len(turn.logprobs) <= 6
        assert policy.eos not in turn.response[:-1]
        assert len(turn.response) == 6 or turn.response[-1] == policy.eos


def test_a_reply_ends_with_each_end_token_of_the_generation_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of Qwen2.5, whose config has <|endoftext|> beside the end of a turn."""
    first = fresh_policy()
    word, other = (first.tokenizer.convert_tokens_to_ids(text) for text in ("!", "<|im_start|>"))
    first.save(tmp_path)
    assert load_policy(tmp_path).ends == {first.eos}
    told = json.loads((tmp_path / "generation_config.json").read_text())
    for also in ([first.eos, other, word, first.vocabulary + 5], other):  # a default may be a word
        (tmp_path / "generation_config.json").write_text(json.dumps({**told, "eos_token_id": also}))
        policy = load_policy(tmp_path)
        assert policy.ends == {first.eos, other}
    scores, often = policy.scores, torch.zeros(policy.vocabulary)
    often[other] = 4.0
    monkeypatch.setattr(policy, "scores", lambda logits, temperature: scores(logits + often, temperature))
    turns = _generate(policy, ["Go.", "Wait.", "Left or right?"] * 8)
    ended = [turn for turn in turns if turn.response[-1] == other]
    assert ended and all(other not in turn.response[:-1] for turn in turns)
    for turn in ended:
        assert turn.finish_reason is None and turn.text == policy.tokenizer.decode(turn.response[:-1])
    cut = RolloutBatch.of_turns(turns).cut(policy.ends)
    assert cut.tolist() == [turn.finish_reason == "length" for turn in turns]


def _tokens(turns: list) -> list[list[int]]:
    return [turn.response for turn in turns]


def test_sampling_follows_its_seeds_alone(policy: TransformersPolicy) -> None:
    first = _generate(policy, PROMPTS, seed=1)
    torch.manual_seed(99)
    assert first == _generate(policy, PROMPTS, seed=1)
    assert _tokens(first) != _tokens(_generate(policy, PROMPTS, seed=2))


def test_attention_that_is_planned_anew_for_every_length_is_left_out_of_sampling(policy: TransformersPolicy) -> None:
    enabled = torch.backends.cuda.cudnn_sdp_enabled
    seen = list[bool]()
    torch.backends.cuda.enable_cudnn_sdp(True)  # torch's default
    with policy.model.register_forward_pre_hook(lambda *_: seen.append(enabled())):
        policy.generate([Prompt("Go.")], [1], 1.0, 3)
    assert seen and not any(seen) and enabled()


def test_a_reply_does_not_depend_on_what_is_sampled_beside_it(policy: TransformersPolicy) -> None:
    prompts, seeds = [Prompt(PROMPTS[i % 4]) for i in range(40)], [7 * i for i in range(40)]
    together = policy.generate(prompts, seeds, 1.0, 6)
    alone = [policy.generate([prompt], [seed], 1.0, 6)[0] for prompt, seed in zip(prompts, seeds, strict=True)]
    assert _tokens(together) == _tokens(alone)
    assert len({tuple(t) for t in _tokens(together)}) > 20


def test_rows_that_ended_are_dropped_and_the_others_go_on(
    policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, most = [f"{text} {n}" for n in range(4) for text in PROMPTS], 24
    limits = [1, 2, 2, 3, 3, 5, 8, 8, 9, 12, 13, 17, 20, 21, 22, 24]
    asked, seeds = [policy.asked(Prompt(text)) for text in texts], list(range(len(texts)))
    alone = [policy.generate([Prompt(text)], [seed], 1.0, most)[0] for text, seed in zip(texts, seeds, strict=True)]
    sizes: list[int] = []
    forward = policy.model.forward

    def counted(**inputs: torch.Tensor) -> object:
        sizes.append(len(inputs["input_ids"]))
        return forward(**inputs)

    monkeypatch.setattr(policy.model, "forward", counted)
    replies = [Reply(turn, np.random.default_rng(seed), most) for turn, seed in zip(asked, seeds, strict=True)]
    decoding = Decoding[Reply](policy, 1.0)
    for step in range(2 * most):
        if step in (0, 1, 7):  # the last of them join when rows of others have been dropped
            decoding.join(replies[{0: slice(10), 1: slice(10, 13), 7: slice(13, 16)}[step]])
        decoding.step()
        for reply, limit in zip(replies, limits, strict=True):
            reply.ended |= len(reply.tokens) >= limit
    assert min(sizes) <= 4 < max(sizes) and not decoding.replies
    for told, single, limit in zip(replies, alone, limits, strict=True):
        assert told.tokens == single.response[:limit]
        assert told.logprobs == pytest.approx(single.logprobs[:limit], abs=1e-5)


@pytest.mark.parametrize("uniform", [0.0, 0.3, 1.0 - 2**-53, 1.0])  # the last as rounding might make it
@pytest.mark.parametrize("words", [5, 256, 700])
def test_no_impossible_token_is_drawn(uniform: float, words: int) -> None:
    logits = torch.full((2, words), -torch.inf)
    possible = [words // 3, words - 2]
    logits[1, possible] = torch.tensor([1.0, 2.0])
    scores = logits.softmax(dim=-1).log()
    assert draw(scores, torch.tensor([1]), torch.tensor([[uniform]], dtype=torch.float64)).item() in possible


@pytest.mark.parametrize("words", [7, 256, 1000, 50_000])
def test_a_draw_inverts_the_cumulated_probabilities(words: int) -> None:
    draws = torch.Generator().manual_seed(words)
    scores = torch.log_softmax(4.0 * torch.randn(5, words, generator=draws), dim=-1)
    rows = torch.randint(5, (400,), generator=draws)
    uniforms = torch.rand(400, 1, generator=draws, dtype=torch.float64)
    cumulated = scores.exp().double().cumsum(dim=-1)
    wanted = uniforms[:, 0] * cumulated[rows, -1]
    drawn = draw(scores, rows, uniforms)
    assert (cumulated[rows, drawn] > wanted - 1e-9).all()
    assert (cumulated[rows, drawn] - scores.exp().double()[rows, drawn] <= wanted + 1e-9).all()


def test_replies_that_are_the_same_so_far_share_a_row(
    policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [policy.asked(Prompt(text)) for text in PROMPTS for _ in range(8)]
    read = list[int]()
    read_on = TransformersPolicy.read_on

    def counted(self: TransformersPolicy, ids: torch.Tensor, *rest: object, **beside: torch.Tensor) -> torch.Tensor:
        read.append(len(ids))
        return read_on(self, ids, *rest, **beside)

    monkeypatch.setattr(TransformersPolicy, "read_on", counted)
    replies = [Reply(turn, np.random.default_rng(seed // 2), 6) for seed, turn in enumerate(asked)]
    decoding = Decoding[Reply](policy, 0.5)
    decoding.join(replies)
    while True:
        begun = {(one.asked.key, *one.tokens) for one in replies if one.tokens and not one.ended}
        read.clear()
        if not decoding.step():
            break
        if begun:
            assert len(begun) <= sum(read) <= max(2 * len(begun), len({one.asked.key for one in replies}))
    beginnings = {(one.asked.key, *one.tokens[:k]) for one in replies for k in range(len(one.tokens))}
    assert len(beginnings) < 0.6 * sum(len(one.tokens) for one in replies)
    for one, other in zip(replies[::2], replies[1::2], strict=True):
        assert one.tokens == other.tokens and one.logprobs == other.logprobs


def test_the_cache_is_not_copied_while_rows_stay(policy: TransformersPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DynamicCache, "batch_select_indices", lambda self, rows: pytest.fail("copied"))
    one, other = policy.generate([Prompt("up")] * 2, [3, 3], 1.0, 6)
    assert one.response == other.response and len(one.response) > 2


def test_samples_come_from_the_whole_softmax(policy: TransformersPolicy) -> None:
    """No hidden top-k: the frequencies of first tokens are those of the model's own distribution."""
    prompt = policy.encode_text("up")
    turns = policy.generate([Prompt("up")] * 20_000, range(20_000), 1.0, 1)
    counts = torch.bincount(torch.tensor([t.response[0] for t in turns]), minlength=len(policy.tokenizer))
    with torch.no_grad():
        expected = policy.model(torch.tensor([prompt], device=policy.device)).logits[0, -1].softmax(-1).cpu()
    assert (counts > 0).sum() > 60
    assert (counts / 20_000 - expected).abs().max() < 0.02


def test_a_saved_policy_is_an_ordinary_checkpoint(policy: TransformersPolicy, tmp_path: Path) -> None:
    policy.save(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "<think>box left</think><action>up</action> 12 √"
    assert tokenizer.encode(text) == policy.tokenizer.encode(text)
    for name, weight in policy.model.state_dict().items():
        assert torch.equal(weight.cpu(), model.state_dict()[name]), name
    assert load_policy(tmp_path).encode_text("up") == policy.encode_text("up")


def test_loading_tells_what_is_wrong(policy: TransformersPolicy, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is no model folder: it has no config\.json"):
        load_policy(tmp_path)
    policy.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())

    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_size": 64}))
    with pytest.raises(ConfigError, match="the weights are not those of the architecture|cannot be loaded"):
        load_policy(tmp_path)

    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop("model.norm.weight")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"1 tensors differ, the first is model\.norm\.weight"):
        load_policy(tmp_path)

    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(ConfigError, match=r"model\.safetensors cannot be read \(fetch it again\)"):
        load_policy(tmp_path)


def test_a_system_message_is_before_the_prompt():
    policy = fresh_policy()
    plain, told = (policy.encode(Prompt("up or down?", system=system)) for system in (None, "Play well."))
    assert policy.tokenizer.decode(told).startswith("<|im_start|>system\nPlay well.<|im_end|>\n")
    assert told[-len(plain) :] == plain
    assert policy.encode(Prompt("up or down?")) == plain  # neither is taken for the other


def test_a_sampling_copy_takes_buffers_that_a_checkpoint_has() -> None:
    """Apertus keeps a part of its activation in buffers."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"intermediate_size": 48, "vocab_size": 2_000, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    tokenizer = fresh_policy().tokenizer
    models = [AutoModelForCausalLM.from_config(AutoConfig.for_model("apertus", **sizes)) for _ in range(2)]
    first, second = (TransformersPolicy(model.eval(), tokenizer) for model in models)
    for name, buffer in models[0].named_buffers():
        buffer.mul_(1.0 if "rotary" in name else 2.0)
    second.cast(torch.bfloat16)
    second.load_weights(first.weights())
    told = {
        name: (one, other) for (name, one), (_, other) in zip(*(m.state_dict().items() for m in models), strict=True)
    }
    assert sum("act_fn" in name for name in told) > 2, "weights and buffers"
    assert all(torch.equal(one.to(other.dtype), other) for one, other in told.values())


HYBRID = {"head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8}
HYBRID |= {"linear_value_head_dim": 8, "layer_types": ["linear_attention", "full_attention"]}


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("lfm2", {"layer_types": ["conv", "full_attention"]}),
        ("qwen3_5_text", HYBRID),
        ("falcon", {"alibi": True}),
        ("cohere", {"logit_scale": 0.06}),
    ],
)
def test_other_families_sample_what_they_score(kind: str, own: dict[str, object]) -> None:
    """Rows fork and end, so recurrent states are selected; and what scales the head's output is in both."""
    tokenizer = fresh_policy().tokenizer
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 256, **own}
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **sizes, eos_token_id=tokenizer.eos_token_id, pad_token_id=0, bos_token_id=1)
    )
    other = TransformersPolicy(made, tokenizer)
    turns = [turn for seed in range(3) for turn in _generate(other, PROMPTS, seed)]
    rows = table(turns)
    parts = micro_batches(rows, np.arange(len(turns)), None, other.pad, reach=other.reach)
    for batch in parts:
        with torch.no_grad():
            again, _ = other.logprobs(batch, 1.0)
        assert ((again - batch.old_logprobs) * batch.response_mask).abs().max() < 1e-3


def test_a_model_without_a_cache_of_keys_and_values_is_refused() -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "vocab_size": 2_000, "eos_token_id": 0}
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model("mamba", **sizes, bos_token_id=0, pad_token_id=1))
    with pytest.raises(ConfigError, match="MambaForCausalLM takes no past_key_values"):
        TransformersPolicy(made, fresh_policy().tokenizer)


def test_a_model_that_keeps_its_state_in_its_layers_is_refused() -> None:
    """Rows that part would go on with the state of one."""
    tokenizer = fresh_policy().tokenizer
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "vocab_size": len(tokenizer), "intermediate_size": 64}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 1, "lru_width": 32, "pad_token_id": 0, "bos_token_id": 1}
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model("recurrent_gemma", **sizes))
    with pytest.raises(ConfigError, match="RecurrentGemmaForCausalLM keeps its state in its layers"):
        TransformersPolicy(made, tokenizer)
