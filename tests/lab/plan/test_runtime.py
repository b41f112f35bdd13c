from contextlib import closing
from dataclasses import replace
from itertools import islice, product
from math import exp, sqrt
from types import SimpleNamespace

import numpy as np
import pytest
from paths import ROOT

from benchmarks import lengths, paper_runtime
from benchmarks.paper_runtime import BLOCKS, DECODED, PAPER, REST, as_verl_agent, blocks, paper_phases
from crbc_envs.demonstrations import expert_steps, prompted
from crbc_envs.prompts import PromptWindow
from crbc_envs.vector.members import make_member
from crbc_lab import cli
from crbc_lab.plan.architecture import Architecture, find_architecture
from crbc_lab.plan.hardware import HARDWARE, Hardware, fewest_nodes, find_hardware
from crbc_lab.plan.lengths import expert_lengths
from crbc_lab.plan.padding import computed, drawn_lengths
from crbc_lab.plan.plan import make_plan
from crbc_lab.plan.runtime import Job, Phase, decode, decode_step, estimate, forward, total, validations
from crbc_lab.plan.workload import MEASURED, Workload, going_on, longest_chain, spread, workload_of
from crbc_rl.batches import RolloutBatch, Turn, micro_batches
from crbc_rl.config import TrainConfig, load_config
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.policies.load import load_policy
from crbc_rl.rollout.prompts import prompt_options

SIZES = {"parameters": 1_040, "block": 500, "outside": 40, "layers": 2, "hidden": 4, "intermediate": 8}
TOY = Architecture(source="by hand", **SIZES, heads=2, kv_heads=1, vocabulary=10, context=4_096, vision=False)
"""Two blocks of 500 weights, and tied embeddings of 10 x 4. Keys and values of a token take 16 bytes."""

ROUND = Hardware("round", flops=1e4, memory=1e3, link=100, network=10, flops_share=0.5, memory_share=0.8, layer=0.25)
WORK = Workload(prompt=8, reply=4, solved=10, success=0.5)
FULL = replace(WORK, reply=8)
"""Every reply has the length of the limit, so that nothing is padded."""
ALFWORLD = "paper/alfworld-qwen2.5-1.5b"


def toy(work: Workload = WORK, *overrides: str, gpus: int = 1, nodes: int = 1, max_steps: int = 50) -> Job:
    """An update of 2 groups of 2 with the toy model; replies have at most 8 tokens."""
    small = ["rollout.num_groups=2", "rollout.group_size=2", "rollout.max_new_tokens=8", "optim.minibatch=40"]
    config = load_config(ALFWORLD, [*small, *overrides])
    return Job(config, TOY, ROUND, work, max_steps, gpus, nodes)


def seconds(phases: tuple[Phase, ...]) -> dict[str, float]:
    return {phase.name: phase.seconds for phase in phases}


def of_paper(*overrides: str, gpus: int = 8, nodes: int = 1, work: Workload | None = None) -> dict[str, float]:
    config = load_config(ALFWORLD, overrides)
    model, work = find_architecture(config.model), work or workload_of(config)
    assert model is not None and work is not None
    return seconds(estimate(Job(config, model, HARDWARE["a100"], work, 50, gpus, nodes)))


# ---- by hand --------------------------------------------------------------------------------------------------------


def test_a_forward_pass_costs_two_operations_for_each_weight_and_token() -> None:
    # 5 tokens x 1,000 weights x 2; attention 2 x 2 layers x 4 x 5^2; logits at 2 tokens x 40 weights x 2
    assert forward(TOY, 5, 2) == 10_000 + 400 + 160
    # 3 of them read before: 2 tokens x 1,000 weights x 2; those of 5 less those of 3, 2 x 2 layers x 4 x 3^2
    assert forward(TOY, 5, 2, known=3) == 4_000 + (400 - 144) + 160


@pytest.mark.parametrize("shares", [False, True])
def test_what_prompts_begin_with_is_read_once(shares: bool) -> None:
    job = replace(toy(replace(FULL, shared=5.0), gpus=2), hardware=replace(ROUND, shares=shares))
    trained = seconds(estimate(job))
    assert trained["prefill"] == pytest.approx(120 * forward(TOY, 8, 1, known=5) / 10_000)
    once = 120 * forward(TOY, 16, 8, known=5 * shares) / 10_000
    assert trained["old log-probabilities"] == pytest.approx(once)


def test_a_decode_step_reads_the_weights_once_and_every_members_keys_and_values() -> None:
    # 1,040 weights in bfloat16; 3 members x context 8 + 4 / 2 x 16 bytes; at 800 bytes a second; 2 layers of 0.25 s
    assert decode_step(toy(), 3) == pytest.approx(0.5 + (2_080 + 3 * 10 * 16) / 800)


def test_a_decode_step_of_many_members_is_limited_by_operations() -> None:
    job = replace(toy(), hardware=replace(ROUND, memory=1e9))
    # 100 members x (2 x 1,040 weights + 4 x 2 layers x 4 x context 10) at 5,000 a second
    assert decode_step(job, 100) == pytest.approx(0.5 + 100 * (2_080 + 320) / 5_000)


def test_engines_over_two_gpus_share_the_weights_but_not_a_single_head_of_keys_and_values() -> None:
    job = toy(WORK, "generator.tensor_parallel=2", gpus=2)
    assert decode_step(job, 3) == pytest.approx(0.5 + (1_040 + 3 * 10 * 16) / 800)


def test_transformers_waits_for_its_program() -> None:
    job = toy(WORK, "generator.engine=transformers")
    assert decode_step(replace(job, hardware=replace(ROUND, eager=7.0)), 3) == 14.0
    assert decode_step(job, 3) == pytest.approx((2_080 + 480) / 800)


def test_rows_and_turns() -> None:
    job = toy()
    assert job.turns == ((10, 4), (40, 2.0)) and job.sampled == job.turns
    assert job.rows == 10 * 4 + 40 * 2
    kept = toy(replace(WORK, kept=True))
    assert kept.sampled == ((50, 4),) and kept.rows == job.rows
    assert toy(replace(WORK, kept=True, success=1.0)).sampled == ((10, 4), (40, 0.0))


def test_replies_of_one_length_make_lockstep_exact() -> None:
    job = toy(replace(WORK, reply=8, lockstep=True))
    steps, spent = decode(job)
    assert steps == pytest.approx(50 * 8)
    assert spent == pytest.approx(10 * 8 * decode_step(job, 4) + 40 * 8 * decode_step(job, 2))


def test_without_lockstep_the_longest_chain_counts() -> None:
    for engines in (1, 2):
        job = toy(replace(WORK, reply=8), gpus=engines)
        steps, spent = decode(job)
        assert steps == pytest.approx(50 * 8)
        assert spent == pytest.approx(steps * decode_step(job, 120 * 8 / engines / steps))


def test_replies_end_at_random() -> None:
    on = going_on(1.75, 3)  # 1 + q + q^2 = 1.75 at q = 0.5
    assert on == pytest.approx(0.5)
    # lengths 1, 2, 3 with probabilities 1/2, 1/4, 1/4
    assert spread(1.75, 3) ** 2 == pytest.approx(0.5 * 0.75**2 + 0.25 * 0.25**2 + 0.25 * 1.25**2)
    assert going_on(3, 3) == 1.0 and spread(3, 3) == pytest.approx(0)
    one = Workload(prompt=8, reply=1.75, solved=1, success=0, lockstep=True)
    job = toy(one, "rollout.max_new_tokens=3", max_steps=1)
    chance = {1: 0.5, 2: 0.25, 3: 0.25}
    longest = sum(
        chance[a] * chance[b] * chance[c] * chance[d] * max(a, b, c, d) for a, b, c, d in product(chance, repeat=4)
    )
    assert decode(job)[0] == pytest.approx(longest)


def test_a_chain_is_no_longer_than_its_limit() -> None:
    assert longest_chain(1, 50, 4, 8) == 200
    assert 200 < longest_chain(10, 50, 4, 8) < longest_chain(100, 50, 4, 8) < 400
    assert longest_chain(1e9, 1, 4, 8) == 8
    # 4 replies of 1.75 and 2 deviations of the mean of 4, each of variance 0.6875 as above
    assert longest_chain(exp(2), 4, 1.75, 3) == pytest.approx(4 * (1.75 + 2 * sqrt(0.6875) / 2))


PASSES = {"old log-probabilities": 1, "reference": 2, "values": 1, "critic": 8, "forward and backward": 8}
"""Forward passes over all rows in two epochs; backward costs two, checkpointing repeats one."""


def test_training_by_hand() -> None:
    """120 rows on two GPUs of 5,000 operations and 800 bytes a second: 6 optimizer steps of 40 rows."""
    trained = phases_on(ROUND)
    once = 120 * forward(TOY, 16, 8) / 10_000
    for name, times in PASSES.items():
        assert trained[name] == (pytest.approx(times * once), "operations"), name
    assert trained["prefill"][0] == pytest.approx(120 * forward(TOY, 8, 1) / 10_000)
    assert trained["optimizer"][0] == pytest.approx(6 * 40 * 1_040 / 2 / 800)
    assert trained["weights to the engine"][0] == pytest.approx(4_160 / 2 / 100 + (4 + 2) * 1_040 / 800)
    assert trained["credit"][0] == pytest.approx(120 * 3.1e-3 / 4_500)
    factors = phases_on(ROUND, "policy.lora_rank=2")  # 2 x 2 layers x (8 + 6 + 6 + 8 + 3 x 12) = 256
    assert factors["forward and backward"][0] == pytest.approx(6 * once)
    assert factors["optimizer"][0] == pytest.approx(6 * 40 * 256 / 2 / 800)


def test_training_over_slow_links_by_hand() -> None:
    """Each of 24 passes, 4 for each step, and of 6 that score, gathers 2,080 bytes, of which half come from the other
    GPU at 100 bytes a second. Backward gathers again, and reduces 4 bytes for each trained weight."""
    slow, gathered = replace(ROUND, flops=1e9), 2_080 / 2 / 100
    moved = {"old log-probabilities": 6, "reference": 24, "values": 6, "critic": 24 * 4, "forward and backward": 24 * 4}
    trained = phases_on(slow)
    assert {name: trained[name] for name in moved} == {
        name: (pytest.approx(times * gathered), "links") for name, times in moved.items()
    }
    factors = phases_on(slow, "policy.lora_rank=2")
    assert factors["forward and backward"][0] == pytest.approx(24 * (2 * gathered + 4 * 256 / 2 / 100))


def phases_on(rates: Hardware, *overrides: str) -> dict[str, tuple[float, str]]:
    """Seconds and limits with a critic, two epochs, five rows to a pass and ten to one that scores."""
    sizes = ("optim.epochs=2", "optim.microbatch=5", "optim.score_microbatch=10", "credit.method=gae")
    config = toy(FULL, *sizes, *overrides).config
    phases = estimate(Job(config, TOY, rates, FULL, max_steps=50, gpus=2, nodes=1))
    return {phase.name: (phase.seconds, phase.bound) for phase in phases}


def test_two_nodes_by_hand() -> None:
    # A ring over 4 GPUs carries 3/4 of what is gathered: 100 bytes a second within a node, 2 x 10 between nodes.
    assert toy(gpus=4).move(400) == pytest.approx(3)
    assert toy(gpus=4, nodes=2).move(400) == pytest.approx(15)
    assert toy().move(400) == 0


def test_environments_by_hand() -> None:
    work = replace(WORK, step=2.0, reset=3.0)
    costs = of_toy(work, gpus=2)
    assert costs["reset"] == 6 and costs["environments"] == 10 * 2 * 2 + 40 * 1 * 2
    each = of_toy(replace(work, workers=4), gpus=2)
    assert each["reset"] == 3 and each["environments"] == 50 * 2


def of_toy(work: Workload, gpus: int) -> dict[str, float]:
    return seconds(estimate(replace(toy(work, gpus=gpus), hardware=HARDWARE["a100"])))


# ---- padding --------------------------------------------------------------------------------------------------------


def test_padding_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 1 to 4 tokens in one pass of two ranks: each computes two rows, as long as the longest."""
    monkeypatch.setattr("crbc_lab.plan.padding.drawn_lengths", lambda work, rows, limit: np.array([3.0, 1.0, 4.0, 2.0]))
    config = toy(WORK).config
    assert computed(config, WORK, False, 4, 2, 4, None) == (2 * 2 * 4 / 10, 1)
    assert computed(config, WORK, False, 4, 1, 4, 1) == (1.0, 4)  # each row alone
    assert computed(config, WORK, False, 4, 2, 4, 1) == (2 * (2 + 4) / 10, 2)
    assert computed(config, WORK, False, 4, 2, 2, None) == (2 * (3 + 4) / 10, 2)  # two mini-batches
    assert computed(config, WORK, False, 40, 2, 2, None)[1] == 20, "of all rows, where fewer are drawn"
    packed = toy(WORK, "policy.attention=flash_attention_2").config
    assert computed(packed, WORK, False, 4, 2, 4, None) == (2 * (2 + 4) / 10, 1)  # ranks wait, and nothing is padded
    assert computed(packed, WORK, False, 4, 1, 4, None) == (1.0, 1)
    assert computed(packed, WORK, True, 4, 2, 4, None) == (2 * 2 * 4 / 10, 1)  # rows with frames are never packed


def test_drawn_lengths_have_the_workloads_means() -> None:
    drawn = drawn_lengths(Workload(prompt=400, spread=50, reply=20, solved=1), 2_048, 60)
    assert drawn.mean() == pytest.approx(420, abs=3) and drawn.std() == pytest.approx(
        sqrt(50**2 + spread(20, 60) ** 2), rel=0.1
    )
    assert set(drawn_lengths(replace(FULL, spread=0.0), 50, 8)) == {16}


@pytest.mark.slow
@pytest.mark.parametrize("env", ["alfworld-short", "sokoban-short", "webshop-short"])
def test_the_padding_is_that_of_the_experts_turns(env: str) -> None:
    """What the learner's passes pad of them, beside what the plan draws of their lengths."""
    config = load_config(env, ["optim.minibatch=64"])
    work = workload_of(config, expert_lengths(config))
    assert work is not None
    turns = expert_turns(config, 512)
    real = sum(len(turn.prompt) + len(turn.response) for turn in turns)
    batch = RolloutBatch.of_turns(turns)
    spent = made = 0
    for begin in range(0, 512, 64):
        for rank in range(2):
            for part in micro_batches(batch, np.arange(begin, begin + 64), None, 0, 8, rank, 2):
                spent, made = spent + part.ids.numel(), made + 1
    padded, passes = computed(config, work, False, 512, 2, 64, 8)
    assert padded - 1 == pytest.approx(spent / real - 1, abs=0.05) and passes == pytest.approx(made / 2, rel=0.2)


def expert_turns(config: TrainConfig, rows: int) -> list[Turn]:
    """Steps of the environment's expert in the tokens of the config's model."""
    policy = load_policy(config.model)
    with closing(make_member(config.registered_id(), {**config.env.kwargs, "split": "train"})) as env:
        window = PromptWindow.of(env, **prompt_options(config))
        steps = islice(prompted(window, expert_steps(env, np.random.default_rng(1))), rows)
        return [
            Turn(policy.encode(prompt), ids := [*policy.tokenizer.encode(reply), policy.eos], [0.0] * len(ids))
            for prompt, _, reply in steps
        ]


# ---- the rates ------------------------------------------------------------------------------------------------------


def test_the_decode_rates_are_solved_from_two_published_rows_and_agree_with_the_others() -> None:
    rate, layer = HARDWARE["a100"].memory * HARDWARE["a100"].memory_share, HARDWARE["a100"].layer
    (layers, *small), (_, *large) = DECODED["Qwen2.5-1.5B"], DECODED["Qwen2.5-7B"]
    read = [weights + token * context for weights, token, context, _ in (small, large)]
    found = (read[1] - read[0]) / (1 / large[3] - 1 / small[3])
    assert rate == pytest.approx(found, rel=0.002)
    assert layer == pytest.approx((1 / small[3] - read[0] / found) / layers, rel=0.01)
    for layers, weights, token, context, published in DECODED.values():
        step = layers * layer + (weights + token * context) / rate
        assert step == pytest.approx(1 / published, rel=0.16)


@pytest.mark.parametrize("size", ["1.5B", "7B"])
def test_the_published_rows_are_of_the_plans_shapes(size: str) -> None:
    model = find_architecture(f"Qwen/Qwen2.5-{size}-Instruct")
    assert model is not None
    layers, weights, token, *_ = DECODED[f"Qwen2.5-{size}"]
    read = 2 * (model.parameters - model.outside + model.vocabulary * model.hidden)
    assert (layers, token) == (model.layers, model.kv_bytes) and weights == pytest.approx(read, rel=1e-4)


@pytest.mark.slow
def test_the_lengths_are_those_that_the_benchmark_measures() -> None:
    """A few episodes of it: the prompts' lengths, and the expert's turns."""
    for env_id, expert in (("CRBC-ALFWorld-v0", False), ("CRBC-WebShop-v0", True), ("CRBC-Sokoban-v0", True)):
        style, kwargs = lengths.WORLDS[env_id]
        prompt, turns, *_ = (value for _, value in lengths.measure(env_id, style, kwargs, expert, episodes=5))
        stated = MEASURED[env_id, style]
        assert float(prompt.partition(",")[0]) == pytest.approx(stated.prompt, rel=0.25)
        assert not expert or float(turns) == pytest.approx(stated.solved, rel=0.35)


# ---- laws -----------------------------------------------------------------------------------------------------------


def test_more_gpus_are_slower_in_communication_alone() -> None:
    few, many = of_paper(), of_paper(gpus=16, nodes=2)
    for name in few:
        assert many[name] <= few[name] or name == "weights to the engine", name
    assert many["forward and backward"] == pytest.approx(few["forward and backward"] / 2, rel=0.05)  # more padding
    assert many["weights to the engine"] > few["weights to the engine"]


def test_longer_is_slower() -> None:
    work = workload_of(load_config(ALFWORLD))
    assert work is not None
    base = of_paper(work=work)
    for name in ("prompt", "reply", "solved"):
        longer = of_paper(work=replace(work, **{name: 2 * getattr(work, name)}))
        assert all(longer[phase] >= base[phase] for phase in base) and longer != base
    assert of_paper(work=replace(work, success=0.9))["decode"] < base["decode"]
    theirs = of_paper(work=as_verl_agent(work, 128))
    assert theirs["decode"] > 2 * base["decode"]
    assert theirs["forward and backward"] == base["forward and backward"]  # the same rows are trained on


def test_phases_follow_the_config() -> None:
    base = of_paper()
    plain = of_paper("policy.gradient_checkpointing=false")
    assert plain["forward and backward"] == pytest.approx(base["forward and backward"] * 3 / 4)
    assert "reference" not in of_paper("loss.kl=0")
    assert "old log-probabilities" not in of_paper("generator.engine=transformers")


# ---- mistakes -------------------------------------------------------------------------------------------------------


def test_unknown_hardware_is_named() -> None:
    with pytest.raises(ConfigError, match="--hardware a10: its rates are not known; did you mean 'a100'"):
        find_hardware("a10")
    assert find_hardware("H100") is HARDWARE["h100"]


@pytest.mark.parametrize(
    ("gpus", "nodes", "said"),
    [(8, 3, "cannot be dealt evenly to 3 nodes"), (16, 1, "more than 8 to a node: set --nodes 2"), (8, 0, "nodes 0")],
)
def test_gpus_that_cannot_be_dealt_are_refused(gpus: int, nodes: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_plan(load_config(ALFWORLD), gpus=gpus, nodes=nodes)


def test_without_lengths_there_is_no_time() -> None:
    assert make_plan(load_config(ALFWORLD, ["env.prompt=compact"])).phases is None


def test_lengths_stay_within_the_limits_of_the_config() -> None:
    work = workload_of(load_config(ALFWORLD, ["rollout.max_prompt_tokens=100", "rollout.max_new_tokens=50"]))
    assert work is not None and (work.prompt, work.reply) == (100, 50)


# ---- what is shown --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("updates", "every"), [(30, 25), (3, 25), (50, 25), (4, 2), (5, 2), (1, 1)])
def test_as_many_validations_are_planned_as_a_learner_makes(updates: int, every: int) -> None:
    config = load_config(ALFWORLD, [f"updates={updates}", f"eval.every={every}"])
    made = [Learner._validates.fget(SimpleNamespace(update=n, config=config)) for n in range(updates + 1)]
    assert validations(config) == sum(made)


def test_a_dry_run_shows_the_time_and_what_it_rests_on(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["train", ALFWORLD, "--dry-run", "--nodes", "2", "--hardware", "h100"])
    shown = " ".join(capsys.readouterr().out.split())
    plan = make_plan(load_config(ALFWORLD), nodes=2, hardware="h100")
    assert plan.gpus == 16 and plan.phases is not None
    assert f"{total(plan.phases):.1f}" in shown and "16 on 2 nodes" in shown and "16 GPUs on 2 nodes" in shown
    assert plan.memory is not None
    assert f"{plan.memory.main / 2**31:.0f} GiB of each machine" in shown  # half of it on either node
    for assumed in ("472 tokens", "127 of at most 512", "8.5 turns", "42 % of 989 TFLOP/s", "50 GB/s for each"):
        assert assumed in shown


def test_the_fewest_nodes_hold_the_gpus() -> None:
    assert [fewest_nodes(gpus) for gpus in (1, 8, 9, 12, 16, 24)] == [1, 1, 3, 2, 2, 3]


@pytest.mark.slow
def test_the_document_has_the_computed_tables() -> None:
    text = (ROOT / "docs" / "runtime.md").read_text(encoding="utf-8")
    tables = ("comparison", "by_phase", "sensitivity", "elsewhere", "scaling")
    for name in tables:
        assert getattr(paper_runtime, name)() in text, f"{name}: python -m benchmarks.paper_runtime"


def test_three_of_the_papers_four_parts_are_met_within_30_percent() -> None:
    found = blocks(paper_phases(paper_runtime.CONFIGS[0], launcher=True))
    stated = {**PAPER, REST: 2 * PAPER["together"] - sum(PAPER.values())}
    assert {name for name in stated if abs(found[name] / stated[name] - 1) > 0.3} == {"advantages"}
    assert sum(stated[name] for name in BLOCKS) == pytest.approx(stated["together"])


def test_float32_has_rates_of_its_own() -> None:
    slow, fast = (find_hardware("a100", precision) for precision in ("float32", "bfloat16"))
    assert slow.flops == 19.5e12 and fast.flops == 312e12 and replace(slow, flops=fast.flops) == fast
