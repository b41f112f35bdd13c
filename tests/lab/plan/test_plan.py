import json
import re
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from learner_fixtures import fresh_policy, small
from paths import ROOT
from safetensors.torch import save_file
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from crbc_envs.alfworld.engine import textworld
from crbc_envs.sokoban import gym_engine
from crbc_envs.webshop.site import browser
from crbc_lab import cli
from crbc_lab.plan import architecture, lengths
from crbc_lab.plan.architecture import PUBLISHED, find_architecture, has_weights, measure
from crbc_lab.plan.batches import contradictions
from crbc_lab.plan.environment import check_env
from crbc_lab.plan.lengths import expert_lengths
from crbc_lab.plan.memory import estimate, kept_in_layer, trained
from crbc_lab.plan.plan import make_plan
from crbc_rl.batches import RolloutBatch, Turn, collate
from crbc_rl.config import TrainConfig, load_config, parse_config
from crbc_rl.credit import METHODS
from crbc_rl.policies.files import INDEX
from crbc_rl.policies.transformers import TransformersPolicy

CONFIGS = ROOT / "configs"
PAPER = sorted((CONFIGS / "paper").glob("*.yaml"))

SETUP = {  # model, tensor parallel, micro-batch, mini-batch, groups, steps, prompt tokens, GraphGPO's discount
    "alfworld_qwen2.5_1.5b": ("Qwen/Qwen2.5-1.5B-Instruct", 1, 32, 256, 16, 50, 2048, 0.10),
    "alfworld_qwen2.5_7b": ("Qwen/Qwen2.5-7B-Instruct", 4, 4, 64, 16, 50, 2048, 0.10),
    "webshop_qwen2.5_1.5b": ("Qwen/Qwen2.5-1.5B-Instruct", 2, 8, 64, 16, 15, 5120, 0.20),
    "webshop_qwen2.5_7b": ("Qwen/Qwen2.5-7B-Instruct", 4, 4, 64, 16, 15, 5120, 0.20),
    "sokoban_qwen2.5_vl_3b": ("Qwen/Qwen2.5-VL-3B-Instruct", 2, 8, 64, 32, 15, 1024, 0.80),
}
"""The paper's setup: its tables of settings, resources and methods."""


@pytest.fixture(autouse=True)
def _bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No data, nothing in the hub's cache, and no network but this machine's own, where a browser is driven."""
    monkeypatch.setenv("CRBC_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any, **options: Any) -> Any:
            host = args[1][0] if isinstance(args[0], socket.socket) else args[0]
            assert host in ("localhost", "127.0.0.1", "::1"), f"a plan asked the network: {host}"
            return call(*args, **options)

        return asked

    monkeypatch.setattr(socket.socket, "connect", refusing(socket.socket.connect))
    monkeypatch.setattr(socket, "getaddrinfo", refusing(socket.getaddrinfo))


def paper(name: str, *overrides: str) -> TrainConfig:
    return load_config(CONFIGS / "paper" / f"{name}.yaml", overrides)


def crbc(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    """The status of a `crbc` command, and what it printed, spaces and line breaks as one space."""
    code = 0
    try:
        cli.main(list(args))
    except SystemExit as end:
        code = int(end.code or 0)
    return code, " ".join("".join(capsys.readouterr()).split())


# ---- the paper's configs ---------------------------------------------------------------------------


def test_there_is_one_config_for_each_of_the_papers_setups() -> None:
    assert {path.stem for path in PAPER} == set(SETUP)


@pytest.mark.parametrize("name", SETUP)
def test_a_paper_config_has_the_papers_numbers(name: str) -> None:
    config = paper(name)
    model, parallel, microbatch, minibatch, groups, steps, prompt, omega = SETUP[name]
    assert config.model == model
    assert (config.generator.engine, config.generator.tensor_parallel) == ("vllm", parallel)
    assert (config.optim.microbatch, config.optim.minibatch, config.optim.lr) == (microbatch, minibatch, 1e-6)
    assert config.optim.score_microbatch == (32 if name == "alfworld_qwen2.5_1.5b" else 16)
    assert (config.rollout.num_groups, config.rollout.group_size, config.rollout.temperature) == (groups, 8, 1.0)
    assert (config.rollout.max_prompt_tokens, config.rollout.max_new_tokens) == (prompt, 512)
    assert (config.env.kwargs["max_steps"], config.policy.precision) == (steps, "bfloat16")
    assert (config.updates, config.loss.kl, config.policy.gradient_checkpointing) == (150, 0.01, True)
    assert (config.eval.every, config.eval.episodes, config.eval.temperature) == (5, 128, 0.4)
    assert paper(name, "credit.method=graphgpo").credit.options["omega"] == omega


@pytest.mark.parametrize("name", SETUP)
def test_one_flag_chooses_the_estimator_with_the_papers_settings(name: str) -> None:
    options = {method: paper(name, f"credit.method={method}").credit.options for method in METHODS}
    crbc = {"beta": 0.98, "depth": None, "w_group": 1.0, "w_step": 5.0, "sigma_min": 0.1, "weighting": "step"}
    own = {"group_reward": "step"} if name.startswith("sokoban") else {}
    assert options["crbc"] == {**crbc, **own}
    assert {"gamma": 0.95, "w_group": 1.0, "w_step": 1.0}.items() <= options["gigpo"].items()
    assert {"w_group": 1.0, "w_step": 1.0}.items() <= options["graphgpo"].items()
    if name.startswith("sokoban"):
        assert options["gigpo"]["mode"] == "mean_norm"
    for method in METHODS:  # the reward of a success and the penalty of an invalid reply are the methods' defaults
        given = METHODS[method].options
        assert (given["success_reward"], given["invalid_penalty"]) == (10.0, 0.1)


@pytest.mark.parametrize("name", SETUP)
def test_ppo_has_the_papers_critic_and_room_for_it(name: str) -> None:
    config = paper(name, "credit.method=gae")
    assert config.critic.lr == 1e-5
    plan, group = make_plan(config), make_plan(paper(name))
    assert plan.memory is not None and group.memory is not None and plan.memory.peak > group.memory.peak
    assert plan.memory.fits(80) or "--set generator.memory=0.5" in plan.remedies


def test_sokoban_is_the_papers_board_in_colour() -> None:
    env = paper("sokoban_qwen2.5_vl_3b").env
    assert {
        "observation": "rgb",
        "height": 6,
        "width": 6,
        "num_boxes": 1,
        "panel": "paper",
    }.items() <= env.kwargs.items()
    assert env.prompt == "image"


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_a_paper_config_is_planned_without_network_data_or_gpu(
    path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, shown = crbc(capsys, "train", str(path), "--dry-run")
    model = SETUP[path.stem][0]
    assert code == 0
    assert "fits in 80 GiB" in shown and f"hf download {model}" in shown
    for name in ("alfworld", "webshop"):
        assert (f"crbc data {name} --from DIR" in shown) == path.stem.startswith(name)
    assert not list(tmp_path.iterdir())


# ---- models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
        ("Qwen/Qwen2.5-VL-3B-Instruct", 3_754_622_976),
    ],
)
def test_the_table_of_shapes_gives_the_published_parameter_counts(name: str, parameters: int) -> None:
    found = find_architecture(name)
    assert found is not None and found.parameters == parameters
    assert found.vision == ("VL" in name)
    blocks = {"Qwen/Qwen2.5-1.5B-Instruct": 46_797_824, "Qwen/Qwen2.5-7B-Instruct": 233_057_792}
    if name in blocks:  # 28 equal layers, and the embedding, the head if it is another, and the last norm
        assert (found.block, found.outside) == (blocks[name], parameters - 28 * blocks[name])


def test_blocks_of_two_sizes_are_counted_each() -> None:
    """The vision tower's blocks are smaller than the language model's layers."""
    sizes = dict(PUBLISHED["Qwen/Qwen2.5-VL-3B-Instruct"])
    config = AutoConfig.for_model(sizes.pop("model_type"), **sizes)
    with torch.device("meta"):
        weights = AutoModelForImageTextToText.from_config(config).named_parameters()
    outside = sum(weight.numel() for name, weight in weights if not re.search(r"\.(blocks|layers)\.\d+\.", name))
    assert measure(config, "by hand").outside == outside


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [  # inner size, heads of keys, size of a head, positions
        ("gpt2", {}, (256, 4, 16, 1_024)),
        ("opt", {"ffn_dim": 200, "word_embed_proj_dim": 64}, (200, 4, 16, 2_048)),
        ("gpt_neox", {"intermediate_size": 100}, (100, 4, 16, 2_048)),
        ("bloom", {}, (256, 4, 16, 2**20)),
        ("qwen3", {"head_dim": 32, "num_key_value_heads": 2, "intermediate_size": 96}, (96, 2, 32, 32_768)),
    ],
)
def test_shapes_are_read_by_whatever_name_a_config_has(
    kind: str, given: dict[str, int], wanted: tuple[int, ...]
) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, **given}
    found = measure(AutoConfig.for_model(kind, **sizes), "by hand")
    assert (found.intermediate, found.kv_heads, found.head, found.context) == wanted
    assert found.kv_bytes == 2 * 2 * 2 * wanted[1] * wanted[2], "keys and values of two layers in two bytes"
    if kind == "qwen3":
        lora = parse_config({"name": "x", "model": "m", "policy": {"lora_rank": 3}}, "test")
        with torch.device("meta"):
            made = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes))
        shapes = [part.weight.shape for name, part in made.named_modules() if re.search(r"_proj$", name)]
        assert trained(lora, found) == 3 * sum(map(sum, shapes)) and len(shapes) == 14


def test_a_model_folder_is_counted_as_it_is(model: Path) -> None:
    found = find_architecture(str(model))
    assert found is not None
    assert found.parameters == sum(p.numel() for p in fresh_policy().model.parameters())
    assert has_weights(str(model))


def test_a_cached_model_is_read_from_the_hubs_cache(tmp_path: Path) -> None:
    name = "someone/tiny"
    assert find_architecture(name) is None and not has_weights(name)
    shape = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = AutoConfig.for_model("qwen2", **shape, num_key_value_heads=1, vocab_size=32)
    repository = tmp_path / "hub" / "models--someone--tiny"
    snapshot = repository / "snapshots" / "0123abcd"
    config.save_pretrained(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abcd")
    found = find_architecture(name)
    assert found is not None and (found.layers, found.hidden, found.source) == (2, 8, "the hub's cache")
    shards = ["model-1-of-2.safetensors", "model-2-of-2.safetensors"]
    (snapshot / INDEX).write_text(json.dumps({"weight_map": dict(zip("ab", shards, strict=True))}))
    save_file({}, snapshot / shards[0])
    assert not has_weights(name)
    save_file({}, snapshot / shards[1])
    assert has_weights(name)


def test_a_model_of_the_hub_gets_replies_of_its_own_length(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(model, env={"kwargs": {"observation": "text"}})
    of_hub = config.model_copy(update={"model": "someone/new"})
    wanted = expert_lengths(config)
    assert wanted is not None and expert_lengths(of_hub) is None
    monkeypatch.chdir(model.parent)
    assert expert_lengths(config.model_copy(update={"model": model.name})) == wanted, "a folder of the current one"
    asked: list[Any] = []

    def download(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((name, [pattern for pattern in allow_patterns if "safetensors" in pattern]))
        return str(model)

    monkeypatch.setattr(lengths, "snapshot_download", download)
    assert expert_lengths(of_hub, online=True) == wanted and asked == [("someone/new", [])]
    snapshot = tmp_path / "hub" / "models--someone--new" / "snapshots" / "0123abcd"
    shutil.copytree(model, snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0123abcd")
    assert expert_lengths(of_hub) == wanted and len(asked) == 1


def test_keys_that_cannot_be_split_are_told() -> None:
    found = find_architecture(str(ROOT / "warmstarts/sokoban-tiny"))
    assert found is not None
    config = small(ROOT / "warmstarts/sokoban-tiny", generator={"engine": "vllm", "tensor_parallel": 4})
    shaped = replace(found, heads=40, kv_heads=10)
    assert "10 heads of keys cannot be split by 4" in " ".join(contradictions(config, 8, shaped))
    assert "heads" not in " ".join(contradictions(config, 8, replace(found, heads=40, kv_heads=2)))


def test_the_hub_is_asked_only_when_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def download(name: str, file: str, revision: str | None, local_dir: str) -> None:
        asked.append(name)
        AutoConfig.for_model("qwen2", num_hidden_layers=3).save_pretrained(local_dir)

    monkeypatch.setattr(architecture, "hf_hub_download", download)
    assert find_architecture("someone/new") is None and not asked
    found = find_architecture("someone/new", online=True)
    assert found is not None and (found.layers, asked) == (3, ["someone/new"])


def test_a_model_of_unknown_shape_leaves_the_memory_open(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(CONFIGS / "paper" / "sokoban_qwen2.5_vl_3b.yaml")
    code, shown = crbc(capsys, "train", path, "--dry-run", "--set", "model=someone/new")
    assert code == 0
    assert "hf download someone/new, or add --online" in shown and "GiB at most" not in shown
    (tmp_path / "config.json").write_text('{"model_type": "no such thing"}')
    code, shown = crbc(capsys, "train", path, "--dry-run", "--set", f"model={tmp_path}")
    assert code == 2 and "config.json cannot be read" in shown


# ---- what can never work ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("alfworld_qwen2.5_1.5b", ("rollout.num_groups=12",), "12 groups cannot be dealt evenly to 8 generators"),
        ("alfworld_qwen2.5_7b", ("generator.tensor_parallel=3",), "8 GPUs cannot be put together by 3"),
        ("alfworld_qwen2.5_1.5b", ("generator.tensor_parallel=8",), "12 attention heads cannot be split by 8"),
        ("webshop_qwen2.5_7b", ("rollout.max_prompt_tokens=40000",), "40,512 tokens do not fit the model's context"),
        ("webshop_qwen2.5_7b", ("generator.engine=transformers",), "needs generator.engine=vllm"),
        (
            "alfworld_qwen2.5_1.5b",
            ("policy.attention=flash_attention_2", "policy.precision=float32"),
            "flash attention cannot compute in float32",
        ),
        (
            "sokoban_qwen2.5_vl_3b",
            ("env.kwargs.observation=text",),
            "'image': sokoban: the prompt shows a frame, and the observation is none",
        ),
        ("sokoban_qwen2.5_vl_3b", ("model=Qwen/Qwen2.5-7B-Instruct",), "sees no images"),
        ("sokoban_qwen2.5_vl_3b", ("eval.episodes=3000",), "3000 episodes, and the validation panel has 2,000 tasks"),
    ],
)
def test_a_plan_that_can_never_work_says_why(
    name: str, given: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = crbc(capsys, "train", str(CONFIGS / "paper" / f"{name}.yaml"), "--dry-run", "--set", *given)
    assert code == 2 and message in shown


# ---- batches and memory ----------------------------------------------------------------------------


def test_the_arithmetic_of_an_update() -> None:
    batches = make_plan(paper("alfworld_qwen2.5_7b")).batches
    assert (batches.engines, batches.groups, batches.rollouts, batches.rows) == (2, 8, 128, 6400)
    assert (batches.optimizer_steps, batches.rows_per_rank, batches.microbatch) == (100, 8, 4)
    uneven = make_plan(paper("alfworld_qwen2.5_7b", "optim.minibatch=136", "optim.epochs=2")).batches  # 47.1 in 6,400
    assert (uneven.optimizer_steps, uneven.rows_per_rank) == (96, 17)


def test_a_small_config_is_planned_for_one_process_and_is_all_there(model: Path) -> None:
    plan = make_plan(small(model))
    assert (plan.gpus, plan.checked.findings) == (1, ())
    assert plan.memory is None  # prompts have no limit
    rollout = {"num_groups": 2, "group_size": 3, "max_new_tokens": 4, "max_prompt_tokens": 60}
    memory = make_plan(small(model, rollout=rollout)).memory
    assert memory is not None and memory.concurrent is None and memory.fits(6) and not memory.fits(1)


def test_a_reference_is_offloaded_only_where_it_is_sharded() -> None:
    found = find_architecture("Qwen/Qwen2.5-1.5B-Instruct")
    assert found is not None
    for gpus, precision, held in ((1, "float32", True), (1, "bfloat16", False), (8, "float32", False)):
        config = paper("alfworld_qwen2.5_1.5b", "policy.offload_reference=true", f"policy.precision={precision}")
        assert ("reference, float32" in estimate(config, found, gpus, 80).phases["training"]) == held


def test_every_remedy_makes_it_fit() -> None:
    name = "alfworld_qwen2.5_1.5b"
    plan = make_plan(paper(name), gib=24)
    assert plan.memory is not None and not plan.memory.fits(24) and plan.remedies
    for remedy in plan.remedies:
        if found := re.fullmatch(r"--set (.*)", remedy):
            cured = make_plan(paper(name, found[1]), gib=24)
        else:
            cured = make_plan(paper(name), gpus=int(remedy.split()[0]), gib=24)
        assert cured.memory is not None and cured.memory.fits(24), remedy


def test_a_pass_of_one_row_is_a_remedy() -> None:
    """A pass of two rows keeps more of long prompts than there is."""
    limits = ("rollout.max_new_tokens=64", "rollout.max_prompt_tokens=4000")
    tight = paper("alfworld_qwen2.5_1.5b", "optim.score_microbatch=1", "generator.memory=0.28", *limits)
    assert "--set optim.microbatch=1" in make_plan(tight, gib=10.8).remedies


def test_a_limit_of_tokens_is_a_remedy() -> None:
    plan = make_plan(paper("alfworld_qwen2.5_1.5b"), gib=24)
    assert "--set optim.microbatch_tokens=40960" in plan.remedies  # 16 of 32 rows of 2,560


def test_vllm_needs_room_for_a_reply() -> None:
    plan = make_plan(paper("alfworld_qwen2.5_7b", "generator.memory=0.04"))
    assert plan.memory is not None and plan.memory.concurrent == 0 and not plan.memory.fits(80)
    assert plan.remedies == ("--set generator.memory=0.1",)


def test_what_an_environment_lacks_is_listed_with_the_command_that_installs_it(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "PROGRAMS", {"chromium": ("no-chromium",)})
    for original in (textworld, gym_engine):
        monkeypatch.setattr(original, "PACKAGES", ("no_such_package",))
    for env_id, kwargs, fix in (
        ("CRBC-WebShopSite-v0", {}, "chromium is missing: apt-get install"),
        ("CRBC-ALFWorld-v0", {"engine": "textworld"}, "no_such_package is not installed: "),
        ("CRBC-Sokoban-v0", {"engine": "gym"}, "no_such_package is not installed: "),
    ):
        config = small(model, env={"id": env_id, "kwargs": kwargs, "prompt": "compact"})
        found = check_env(config)
        (finding,) = [finding for finding in found.findings if finding.name == "environment"]
        assert fix in finding.fix
        assert not finding.ok and not found.errors


def counted(made: Any, rows: int, prompt: int, reply: int, checkpointing: bool) -> int:
    """Bytes of activations at the peak of a pass, by torch, on fake tensors."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        policy = TransformersPolicy(
            AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16), fresh_policy().tokenizer
        )
        if checkpointing:
            policy.model.gradient_checkpointing_enable({"use_reentrant": False})
        policy.model.train()
        turns = [Turn([1] * (prompt - i), [2] * reply, [0.0] * reply) for i in range(rows)]
        batch = collate(RolloutBatch.of_turns(turns), 0)
        tracker = MemTracker()
        tracker.track_external(policy.model)
        with tracker:
            logprobs, entropy = policy.logprobs(batch, 1.0)
            (logprobs.sum() + entropy.sum()).backward()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    return sum(size for kind, size in peak.items() if str(kind).endswith(("ACT", "TEMP")))


@pytest.mark.parametrize(
    ("kind", "hidden", "intermediate", "heads", "keys", "head"),
    [("qwen2", 1536, 8960, 12, 2, 128), ("qwen3", 1024, 3072, 16, 8, 128), ("llama", 1024, 2752, 8, 8, 128)],
)
def test_a_layer_keeps_what_torch_counts(
    kind: str, hidden: int, intermediate: int, heads: int, keys: int, head: int
) -> None:
    """Also where its heads are wider together than the hidden size, and where queries share no keys."""
    shape = {"hidden_size": hidden, "intermediate_size": intermediate, "head_dim": head, "vocab_size": 1_000}
    shape |= {"num_attention_heads": heads, "num_key_value_heads": keys}
    few, more = (AutoConfig.for_model(kind, num_hidden_layers=layers, **shape) for layers in (2, 4))
    there = (counted(more, 2, 512, 1, False) - counted(few, 2, 512, 1, False)) / (2 * 2 * 2 * 513)
    assert 0.95 < kept_in_layer(measure(few, "here")) / there < 1.1


@pytest.mark.parametrize(
    ("rows", "prompt", "reply", "largest"),
    [(16, 256, 512, "logits"), (4, 2560, 1, "one layer")],
)
def test_activations_are_what_torch_counts_on_fake_tensors_of_the_real_shape(
    rows: int, prompt: int, reply: int, largest: str
) -> None:
    """A pass over two layers of Qwen2.5-1.5B's shape, with gradient checkpointing."""
    layers = 2
    shape = {**PUBLISHED["Qwen/Qwen2.5-1.5B-Instruct"], "num_hidden_layers": layers}
    made = AutoConfig.for_model(shape.pop("model_type"), **shape)
    limits = (f"rollout.max_prompt_tokens={prompt}", f"rollout.max_new_tokens={reply}")
    sizes = (f"optim.minibatch={8 * rows}", f"optim.microbatch={rows}", "optim.score_microbatch=1")
    config = paper("alfworld_qwen2.5_1.5b", *limits, *sizes)
    training = estimate(config, measure(made, "here"), 8, 80).phases["training"]

    there = counted(made, rows, prompt, reply, True)
    there -= rows * (prompt + reply) ** 2 * 3  # a mask, which transformers makes where tensors are fake
    assert 0.95 < (training["activations kept"] + training[largest]) / there < 1.2
