"""A policy that sees: what it samples is what is trained, in batches and one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from learner_fixtures import small_config
from tables import by_turn, table
from vision_fixtures import fresh_vision_policy

from crbc_envs.prompts import Prompt
from crbc_rl.batches import RolloutBatch, Turn, collate
from crbc_rl.config import parse_config
from crbc_rl.distributed import Distributed
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.policies.load import load_policy
from crbc_rl.policies.vision import Frames, VisionPolicy
from crbc_rl.runs.folder import Run
from crbc_rl.runs.metrics import read_metrics
from crbc_rl.training.critic import Critic


@pytest.fixture(scope="module")
def policy(device: torch.device) -> VisionPolicy:
    policy = fresh_vision_policy()
    policy.model.to(device)
    return policy


def _frame(seed: int, side: int = 96) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(side, side, 3), dtype=np.uint8)


PROMPTS = [
    Prompt("<image> up", (_frame(0),)),
    Prompt("You see <image> and move", (_frame(1),)),
    Prompt("down"),
    Prompt("You see <image> and move", (_frame(0),)),
    Prompt("<image> and <image>", (_frame(2), _frame(3, 56))),
    Prompt("You see <image> and move", (_frame(1),)),
]


def _logprobs(policy: VisionPolicy, turns: list[Turn]) -> dict[int, torch.Tensor]:
    batch = collate(RolloutBatch.of_turns(turns), policy.pad).to(policy.device)
    with torch.no_grad():
        found, _ = policy.logprobs(batch, 1.0)
    return dict(zip(batch.rows, found.cpu(), strict=True))


def test_sampling_training_and_reading_one_by_one_agree(policy: VisionPolicy) -> None:
    turns = policy.generate(PROMPTS, range(len(PROMPTS)), 1.0, 6)
    together = _logprobs(policy, turns)
    for i, turn in enumerate(turns):
        n = len(turn.response)
        alone = _logprobs(policy, [turn])[0]
        assert torch.allclose(together[i][:n], alone[:n], atol=1e-5)
        assert torch.allclose(together[i][:n], torch.tensor(turn.logprobs), atol=1e-4)


def test_sampled_replies_are_those_of_each_prompt_alone(policy: VisionPolicy) -> None:
    together = policy.generate(PROMPTS, range(len(PROMPTS)), 1.0, 6)
    alone = [policy.generate([prompt], [i], 1.0, 6)[0] for i, prompt in enumerate(PROMPTS)]
    assert [turn.response for turn in together] == [turn.response for turn in alone]


def test_logits_are_those_of_the_model_called_plainly(policy: VisionPolicy) -> None:
    """The library's own way: no positions given, the kinds of tokens told."""
    turn = policy.generate([PROMPTS[1]], [0], 1.0, 5)[0]
    ids = torch.tensor([turn.prompt + turn.response], device=policy.device)
    kinds = (ids == policy.image_token).int()
    seen = policy.processor(images=list(turn.images), return_tensors="pt").to(policy.device)
    with torch.no_grad():
        logits = policy.model(input_ids=ids, mm_token_type_ids=kinds, **seen).logits[0, len(turn.prompt) - 1 : -1].cpu()
    logits[:, policy.suppressed_tokens] = -torch.inf
    expected = logits.log_softmax(-1).gather(1, torch.tensor(turn.response)[:, None])[:, 0]
    assert torch.allclose(_logprobs(policy, [turn])[0], expected, atol=1e-5)


def test_what_is_seen_matters(policy: VisionPolicy) -> None:
    first, other = (Turn(policy.encode(PROMPTS[i]), [5, 6], [0.0, 0.0], images=PROMPTS[i].images) for i in (1, 3))
    assert first.prompt == other.prompt
    assert not torch.allclose(_logprobs(policy, [first])[0], _logprobs(policy, [other])[0], atol=1e-4)


def test_marks_of_frames_are_never_said(policy: VisionPolicy) -> None:
    turns = policy.generate([PROMPTS[2]] * 2000, range(2000), 5.0, 3)
    said = {token for turn in turns for token in turn.response}
    assert len(said) > 100
    assert not said & set(policy.suppressed_tokens)


def test_a_frame_takes_its_places_and_none_may_be_missing(policy: VisionPolicy) -> None:
    assert (
        policy.encode(PROMPTS[1]).count(policy.image_token) == 9
    )  # 96 x 96 becomes 84 x 84: 6 x 6 patches, merged by 4
    assert (
        policy.encode(Prompt("<image>", (_frame(0, 256),))).count(policy.image_token) == 81
    )  # what the paper's runs feed
    with pytest.raises(ValueError, match="1 frames for 2 places in the prompt"):
        policy.encode(Prompt("<image> <image>", (_frame(0, 96),)))


def test_a_place_without_a_frame_is_text(policy: VisionPolicy) -> None:
    ids = policy.encode(Prompt("A page says <image> and <|image_pad|>."))
    assert not set(ids) & set(policy.suppressed_tokens)
    assert "A page says <image> and <|image_pad|>." in policy.tokenizer.decode(ids)


def test_it_is_saved_and_loaded_like_any_checkpoint(policy: VisionPolicy, tmp_path: Path) -> None:
    policy.save(tmp_path)
    again = load_policy(tmp_path)
    assert isinstance(again, VisionPolicy)
    turns = policy.generate(PROMPTS, range(len(PROMPTS)), 1.0, 4)
    for i, values in _logprobs(again, turns).items():
        assert torch.equal(values, _logprobs(policy, turns)[i])
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_policy(tmp_path)


@pytest.mark.full
def test_ppo_has_a_critic_that_sees(tmp_path: Path) -> None:
    fresh_vision_policy().save(tmp_path / "model")
    data = small_config(tmp_path / "model", updates=2, credit={"method": "gae"}, critic={"lr": 1e-2})
    data["env"] = {"id": "CRBC-Sokoban-v0", "kwargs": {"observation": "rgb", "max_steps": 3}, "prompt": "image"}
    data["optim"]["minibatch"] = 64  # one optimizer step: the first loss is a fresh critic's
    config = parse_config(data, "test")
    Learner(config, Run.start(tmp_path / "run", config, resume=False)).train()
    first, second = (record["value_loss"] for record in read_metrics(tmp_path / "run")[1:])
    assert first == pytest.approx(0.5 * 0.1**2)  # every reply is malformed and costs 0.1; a fresh critic says 0
    assert np.isfinite(second)

    critic = Critic(config, Distributed())
    turns = fresh_vision_policy().generate(PROMPTS, range(len(PROMPTS)), 1.0, 4)
    length = [len(turn.response) for turn in turns]
    returns = [[5.0 * i] * n for i, n in enumerate(length)]
    lessons = table(turns, returns=returns, value=[[0.0] * n for n in length])
    for _ in range(3):
        critic.optimise(lessons, np.random.default_rng(0))
    together = by_turn(lessons, critic.forward_no_grad(lessons, critic.values))
    for turn, values in zip(turns, together, strict=True):
        alone = critic.forward_no_grad(table([turn]), critic.values)
        assert np.allclose(values, alone, atol=1e-5)
    pixels = replace(turns[1], images=tuple(255 - image for image in turns[1].images))
    other = critic.forward_no_grad(table([pixels]), critic.values)
    assert not np.allclose(other, together[1], atol=1e-4)


@pytest.mark.full
def test_it_trains_on_frames_of_sokoban(tmp_path: Path) -> None:
    fresh_vision_policy().save(tmp_path / "model")
    # All its replies are malformed alike, so there is no credit; the entropy has a gradient.
    data = small_config(tmp_path / "model", updates=2, loss={"entropy": 0.1})
    data["env"] = {"id": "CRBC-Sokoban-v0", "kwargs": {"observation": "rgb", "max_steps": 3}, "prompt": "image"}
    config = parse_config(data, "test")
    Learner(config, Run.start(tmp_path / "run", config, resume=False)).train()
    records = read_metrics(tmp_path / "run")
    assert [record["update"] for record in records] == [0, 1, 2]
    assert records[1]["drift"] < 1e-4
    assert records[1]["grad_norm"] > 0
    before, after = (load_policy(tmp_path / f) for f in ("model", "run/checkpoints/000002"))
    changed = [
        n for n, w in after.model.named_parameters() if not torch.equal(w, dict(before.model.named_parameters())[n])
    ]
    assert any(name.startswith("model.visual") for name in changed)


def test_frames_are_cut_as_by_the_library_and_equal_ones_once_for_all_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = fresh_vision_policy(), fresh_vision_policy()
    images = [_frame(7), _frame(8, 56), _frame(7), _frame(7).copy()]
    expected = first.processor(images=images, return_tensors="pt")
    assert first.frames is second.frames
    cut: list[int] = []
    process = type(first.processor).__call__

    def counted(self: object, images: list[object], **options: object) -> object:
        cut.append(len(images))
        return process(self, images, **options)

    monkeypatch.setattr(type(first.processor), "__call__", counted)
    for policy in (first, second):
        patches, grids = zip(*(policy.frames.patches(image) for image in images), strict=True)
        assert torch.equal(torch.cat(patches), expected["pixel_values"])
        assert torch.equal(torch.cat(grids), expected["image_grid_thw"])
    assert cut == [1, 1]


def test_frames_with_other_settings_are_cut_apart() -> None:
    policy, other = fresh_vision_policy(), fresh_vision_policy()
    other.processor.merge_size = 1
    assert VisionPolicy(other.model, other.tokenizer, other.processor).frames is not policy.frames


def test_patches_are_kept_up_to_a_bound_and_the_first_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = Frames(fresh_vision_policy().processor)
    size = frames.patches(_frame(0))[0].nbytes
    monkeypatch.setattr("crbc_rl.policies.vision.KEPT", 2 * size)
    kept = [frames.patches(_frame(seed))[0] for seed in (1, 2, 1)]
    assert frames.bytes == 2 * size and kept[0] is kept[2]
    assert frames.patches(_frame(1))[0] is kept[0] and frames.patches(_frame(0))[0] is not kept[0]
    monkeypatch.setattr("crbc_rl.policies.vision.KEPT", 1)
    assert frames.patches(_frame(3))[0].nbytes == frames.bytes == size


def test_frames_of_the_same_bytes_and_another_shape_are_two() -> None:
    frames, wide = Frames(fresh_vision_policy().processor), np.zeros((56, 112, 3), dtype=np.uint8)
    assert frames.patches(wide)[1].tolist() == [[1, 4, 8]]
    assert frames.patches(wide.reshape(112, 56, 3))[1].tolist() == [[1, 8, 4]]
