from pathlib import Path

import pytest
from learner_fixtures import small_config
from paths import ROOT

from crbc_lab.commands.warmstart_config import load_warmstart_config
from crbc_rl.config import load_config, parse_config
from crbc_rl.errors import ConfigError

CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_config_is_valid(path: Path) -> None:
    load_warmstart_config(path) if path.name.startswith("warmstart") else load_config(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 1e-6}, r"unknown key 'lr'; did you mean 'critic.lr' or 'optim.lr'\?"),
        ({"credit": {"method": "gae", "gae": {"lam": 0.9}}}, "credit: 'gae' has no options; .* is critic.lr"),
        ({"credit": {"crbc": {"w_step": True}}}, "credit: crbc: w_group and w_step must be finite .* and True"),
        ({"credit": {"crbc": {"beta": True}}}, r"credit: crbc: beta must lie in \(0, 1\], got True"),
        ({"updatez": 3}, r"unknown key 'updatez'; did you mean 'updates'\?"),
        ({"rollout": {"group_sise": 8}}, r"unknown key 'rollout.group_sise'; did you mean 'group_size'\?"),
        ({"rollout": {"group_size": -8}}, r"rollout.group_size: .*greater than or equal to 1 \(got -8\)"),
        ({"credit": {"method": "crcb"}}, r"credit.method: no estimator 'crcb'; did you mean 'crbc'\?"),
        ({"credit": {"crbc": {"w_stp": 1.0}}}, r"credit: crbc has no option 'w_stp'; did you mean 'w_step'\?"),
        ({"credit": {"crbc": {"beta": 1.5}}}, r"credit: crbc: beta must lie in \(0, 1\], got 1.5"),
        ({"credit": {"graphgpo": {"reward": "score"}}}, "credit: graphgpo: reward must be 'outcome' here, got"),
        ({"credit": {"method": "scores"}}, r"credit: credit.method: no estimator 'scores'; .* as module:attribute"),
        ({"credit": {"beta": 0.9}}, r"credit: 'beta' must be a section with a method's options; known: crbc, "),
        ({"env": {"kwargs": {"split": "test"}}}, r"env.kwargs: .*split is set by the command"),
        (
            {"env": {"kwargs": {"unsafe_root": True}}},
            r"env.kwargs: .*not for a config to allow: set CRBC_UNSAFE_ROOT=1",
        ),
        ({"loss": {"ratio": "sequence"}}, r"loss.ratio: .*'token' or 'response'"),
        ({"name": "../escape"}, r"name: "),
    ],
)
def test_a_bad_key_or_value_names_itself(change: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config({**small_config(Path("m")), **change}, "here.yaml")


def test_the_error_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: No such file"):
        load_config(tmp_path / "missing.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_text("a: [")
    with pytest.raises(ConfigError, match=r"bad\.yaml is not YAML"):
        load_config(bad)
    bad.write_text("- 1\n")
    with pytest.raises(ConfigError, match=r"bad\.yaml holds \[1\]: a config is a mapping"):
        load_config(bad)


def test_overrides_reach_into_sections_and_are_checked() -> None:
    path = next(path for path in CONFIGS if path.name == "sokoban_tiny.yaml")
    config = load_config(path, ["seed=3", "credit.method=crbc", "credit.crbc.depth=2", "rollout.group_size=4"])
    assert (config.seed, config.credit.options["depth"], config.rollout.group_size) == (3, 2, 4)
    with pytest.raises(ConfigError, match="did you mean 'num_groups'"):
        load_config(path, ["rollout.num_group=4"])
    with pytest.raises(ConfigError, match=r"write it as section\.key=value"):
        load_config(path, ["seed"])


def test_a_relative_model_is_taken_from_the_config_file() -> None:
    path = next(path for path in CONFIGS if path.name == "sokoban_tiny.yaml")
    assert Path(load_config(path).model) == path.parents[1] / "warmstarts" / "sokoban-tiny"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: " + "[" * 10_000, "nested too deeply"),
        ("name: 2020-01-01", "name: Input should be a valid string"),
        ("updates: 1:30:00", "1:30:00 would be read as a number to the base of 60"),
        ("seed: 0x" + "f" * 5_000, "seed: .*a int of thousands of digits"),
    ],
)
def test_a_text_of_other_values_is_refused(tmp_path, text, says):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_config(tmp_path / "c.yaml")


def test_honest_aliases_are_read(tmp_path):
    text = "name: &n run\nmodel: *n\neval: &e {every: 7}\n"
    (tmp_path / "c.yaml").write_text(text + "rollout:\n  <<: {num_groups: 3}\n  group_size: 4\n")
    config = load_config(tmp_path / "c.yaml")
    assert (config.model, config.eval.every) == (str(tmp_path / "run"), 7)
    assert (config.rollout.num_groups, config.rollout.group_size) == (3, 4)


def test_a_template_is_no_link_to_another_kind_of_file(tmp_path):
    (tmp_path / "key").write_text("PRIVATE")
    (tmp_path / "real.j2").write_text("{{ task }}")
    (tmp_path / "c.yaml").write_text("name: run\nmodel: m\nenv: {prompt: p.j2}\n")
    (tmp_path / "p.j2").symlink_to(tmp_path / "key")
    with pytest.raises(ConfigError, match="which is no template"):
        load_config(tmp_path / "c.yaml")
    (tmp_path / "p.j2").unlink()
    (tmp_path / "p.j2").symlink_to(tmp_path / "real.j2")
    assert load_config(tmp_path / "c.yaml").env.template == "{{ task }}"


def test_another_prompt_takes_the_place_of_a_template_s_text(tmp_path):
    """A run's own config has the text beside the name."""
    (tmp_path / "p.j2").write_text("{{ task }}")
    (tmp_path / "q.j2").write_text("{{ step }}")
    (tmp_path / "c.yaml").write_text("name: run\nmodel: m\nenv: {prompt: p.j2, template: kept}\n")
    kept, compact, other = (
        load_config(tmp_path / "c.yaml", settings).env
        for settings in ([], ["env.prompt=compact"], [f"env.prompt={tmp_path}/q.j2"])
    )
    assert (kept.template, compact.template, other.template) == ("kept", None, "{{ step }}")
