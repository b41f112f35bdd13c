"""VllmPolicy on vLLM's CPU build, beside transformers with the same weights. Run by scripts/test_vllm.sh."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from learner_fixtures import fresh_policy

from crbc_envs.prompts import Prompt
from crbc_lab import tiny
from crbc_rl.batches import RolloutBatch, Turn, collate
from crbc_rl.errors import ConfigError
from crbc_rl.policies.transformers import TransformersPolicy
from crbc_rl.policies.vllm import VllmPolicy

BOARD = Prompt("Sokoban\n# # # #\n# @ $ .\n# # # #\nYour move?")
PROMPTS = [BOARD, Prompt("up"), Prompt("Sokoban\n# _\nYour move?"), BOARD, Prompt("left " * 150)]
SEEDS = [3, 2**62, 5, 7, 11]


def sharpened(seed: int) -> TransformersPolicy:
    """A fresh model of the tiny agents' shape, since vLLM has no kernel for the heads of a smaller one. It is sharp
    enough that a wrong token, mask or weight shows in the log-probabilities."""
    policy = tiny.build(fresh_policy().tokenizer, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.mul_(3.0 if weight.dim() > 1 else 1.0)
    return policy


@pytest.fixture(scope="module")
def peer() -> TransformersPolicy:
    return sharpened(0)


@pytest.fixture(scope="module")
def engine(peer: TransformersPolicy, tmp_path_factory: pytest.TempPathFactory) -> VllmPolicy:
    folder = tmp_path_factory.mktemp("model")
    peer.save(folder)
    greedy = {"do_sample": True, "temperature": 0.2, "top_k": 1, "top_p": 0.1, "repetition_penalty": 2.0}
    (folder / "generation_config.json").write_text(json.dumps({**greedy, "eos_token_id": list(range(40, 80))}))
    return VllmPolicy(folder, peer, max_model_len=512, gpu_memory_utilization=0.2, enforce_eager=True)


@pytest.fixture(autouse=True)
def _weights_of_the_peer(engine: VllmPolicy, peer: TransformersPolicy) -> None:
    engine.load_weights(peer.model.state_dict().items())


@torch.no_grad()
def furthest(turns: list[Turn], policy: TransformersPolicy, temperature: float) -> float:
    """The largest difference between the turns' log-probabilities and the policy's."""
    batch = collate(RolloutBatch.of_turns(turns), policy.pad)
    return ((policy.logprobs(batch, temperature)[0] - batch.old_logprobs) * batch.response_mask).abs().max().item()


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_log_probabilities_are_those_of_transformers(
    engine: VllmPolicy, peer: TransformersPolicy, temperature: float
) -> None:
    turns = engine.generate(PROMPTS * 4, range(len(PROMPTS) * 4), temperature, 16)
    difference = furthest(turns, peer, temperature)
    print(f"temperature {temperature}: log-probabilities differ by {difference:.1e} at most")
    assert difference <= 1e-4
    assert furthest(turns, peer, temperature * 1.1) > 0.01  # the measure can tell


def test_prompts_and_replies_are_read_and_told_as_by_transformers(engine: VllmPolicy, peer: TransformersPolicy) -> None:
    for prompt, turn in zip(PROMPTS, engine.generate(PROMPTS, SEEDS, 1.0, 16), strict=True):
        assert turn.prompt == peer.encode(prompt)
        assert turn.text == peer.text(turn.response)


def test_replies_end_with_the_end_token_or_at_the_limit(
    engine: VllmPolicy, peer: TransformersPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both engines. Of all tokens the end token would come once in a thousand; of these four, once in five."""
    few = {peer.eos, 40, 41, 42}
    monkeypatch.setattr(peer, "suppressed_tokens", [token for token in range(peer.vocabulary) if token not in few])
    for policy in (engine, peer):
        turns = policy.generate([BOARD] * 300, range(300), 1.0, 6)
        endings = {(len(turn.response), turn.response[-1] == peer.eos) for turn in turns}
        assert endings == {*((length, True) for length in range(1, 7)), (6, False)}
        for turn in turns:
            assert len(turn.response) == len(turn.logprobs)
            assert peer.eos not in turn.response[:-1]


@torch.no_grad()
def test_samples_come_from_the_whole_softmax_whatever_the_checkpoint_asks_for(
    engine: VllmPolicy, peer: TransformersPolicy
) -> None:
    turns = engine.generate([BOARD] * 4000, range(4000), 1.0, 1)
    counts = torch.bincount(torch.tensor([turn.response[0] for turn in turns]), minlength=len(peer.tokenizer))
    expected = peer.model(torch.tensor([peer.encode(BOARD)])).logits[0, -1].softmax(-1)
    assert (counts > 0).sum() > 60
    assert (counts / 4000 - expected).abs().max() < 0.04


def test_a_reply_is_a_function_of_its_prompt_and_its_seed(engine: VllmPolicy) -> None:
    turns = engine.generate(PROMPTS, SEEDS, 1.0, 16)
    torch.manual_seed(99)
    assert [turn.response for turn in engine.generate(PROMPTS, SEEDS, 1.0, 16)] == [turn.response for turn in turns]
    for prompt, seed, turn in zip(PROMPTS, SEEDS, turns, strict=True):
        (alone,) = engine.generate([prompt], [seed], 1.0, 16)
        assert alone.response == turn.response
    crowd = engine.generate([*[BOARD] * 20, *reversed(PROMPTS)], [*range(100, 120), *reversed(SEEDS)], 1.0, 16)
    assert [turn.response for turn in reversed(crowd[20:])] == [turn.response for turn in turns]
    others = engine.generate(PROMPTS, [seed + 1 for seed in SEEDS], 1.0, 16)
    assert all(other.response != turn.response for other, turn in zip(others, turns, strict=True))


def test_who_is_asked_later_joins_the_batch_and_gets_the_same_reply(engine: VllmPolicy) -> None:
    """Every prompt waits for the reply to the one before last, as members wait for their environments."""
    prompts, seeds = PROMPTS * 3, list(range(len(PROMPTS) * 3))
    turns = engine.generate(prompts, seeds, 1.0, 24)
    found: dict[int, Turn] = {}
    upcoming = list(range(len(prompts)))
    with engine.queue(1.0, 24) as queue:
        while upcoming or queue.waiting:
            while upcoming and queue.waiting < 2:
                queue.ask(upcoming[0], prompts[upcoming[0]], seeds[upcoming.pop(0)])
            found |= queue.ready()
    assert [found[key].response for key in range(len(prompts))] == [turn.response for turn in turns]


def test_what_was_asked_when_a_rollout_broke_off_is_given_up(engine: VllmPolicy) -> None:
    turns = engine.generate(PROMPTS, SEEDS, 1.0, 64)

    def break_off() -> None:
        with engine.queue(1.0, 64) as queue:
            for key, prompt in enumerate(PROMPTS):
                queue.ask(key, prompt, 0)
            queue.ready()
            raise OSError("the environment is gone")

    with pytest.raises(OSError, match="the environment is gone"):
        break_off()
    assert not engine.llm.llm_engine.has_unfinished_requests()
    assert [turn.response for turn in engine.generate(PROMPTS, SEEDS, 1.0, 64)] == [turn.response for turn in turns]


def test_tokens_that_cannot_be_said_are_left_out(
    engine: VllmPolicy, peer: TransformersPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {token for turn in engine.generate([BOARD] * 200, range(200), 1.0, 4) for token in turn.response}
    left_out = sorted(usual)[::2]
    monkeypatch.setattr(peer, "suppressed_tokens", left_out)
    turns = engine.generate([BOARD] * 200, range(200), 1.0, 4)
    assert not {token for turn in turns for token in turn.response} & set(left_out)
    assert furthest(turns, peer, 1.0) <= 1e-4


def test_a_long_thought_is_closed_and_what_was_sampled_is_scored_behind_it(
    engine: VllmPolicy, peer: TransformersPolicy
) -> None:
    peer.think_at_most(5, 16)
    close = peer.tokenizer.encode("\n</think>\n\n", add_special_tokens=False)
    try:
        turns = engine.generate(PROMPTS, SEEDS, 1.0, 16)
        assert engine.generate(PROMPTS, SEEDS, 1.0, 16) == turns
    finally:
        peer.think_at_most(None, 16)
    closed = [turn for turn in turns if turn.forced[1]]
    assert closed and all(turn.forced == (5, 5 + len(close)) for turn in closed)
    assert all(turn.response[5 : turn.forced[1]] == close and len(turn.response) <= 16 for turn in closed)
    assert furthest(turns, peer, 1.0) <= 1e-4
    free = engine.generate(PROMPTS, SEEDS, 1.0, 16)
    assert [turn.response[:5] for turn in turns] == [turn.response[:5] for turn in free]


def test_new_weights_are_sampled_from_at_once(engine: VllmPolicy, peer: TransformersPolicy) -> None:
    engine.generate(PROMPTS, SEEDS, 1.0, 16)  # every prompt is in the prefix cache
    updated = sharpened(1)
    engine.load_weights(updated.model.state_dict().items())
    turns = engine.generate(PROMPTS, SEEDS, 1.0, 16)
    assert furthest(turns, updated, 1.0) <= 1e-4
    assert furthest(turns, peer, 1.0) > 0.1


def test_prefixes_are_cached_until_the_weights_change(engine: VllmPolicy, peer: TransformersPolicy) -> None:
    def cached() -> int:
        """Tokens of the longest prompt that were not read again."""
        (output,) = engine.llm.generate(
            {"prompt_token_ids": peer.encode(PROMPTS[-1])},
            engine._sampling(max_tokens=1, detokenize=False),
            use_tqdm=False,
        )
        return output.num_cached_tokens

    assert cached() == 0
    assert cached() > 100
    engine.load_weights(peer.model.state_dict().items())
    assert cached() == 0


def test_a_weight_that_is_not_given_is_an_error(engine: VllmPolicy, peer: TransformersPolicy) -> None:
    some = [(name, weight) for name, weight in peer.model.state_dict().items() if "norm" not in name]
    with pytest.raises(ConfigError, match="9 weights of the engine were not given, the first is model.layers.0.input"):
        engine.load_weights(some)


def test_sleep_costs_nothing_without_a_gpu(engine: VllmPolicy) -> None:
    before = engine.generate(PROMPTS, SEEDS, 1.0, 8)
    engine.sleep()
    engine.wake()
    assert engine.generate(PROMPTS, SEEDS, 1.0, 8) == before


def test_what_cannot_be_loaded_is_one_clear_error(peer: TransformersPolicy, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="vLLM cannot load .*config"):
        VllmPolicy(tmp_path, peer)
    with pytest.raises(ConfigError, match="tensor_parallel=2 needs that many processes: start with torchrun"):
        VllmPolicy(tmp_path, peer, tensor_parallel=2)
    peer.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "unheard-of"}))
    with pytest.raises(ConfigError, match="vLLM cannot load .*unheard-of"):
        VllmPolicy(tmp_path, peer)
