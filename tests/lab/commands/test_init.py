"""`crbc init`: what it writes works as its README says."""

import sys

import gymnasium
import pytest
import yaml

import crbc_envs
from crbc_envs.errors import DataError
from crbc_lab.commands.init import init
from crbc_lab.commands.warmstart_config import load_warmstart_config
from crbc_rl.config import load_config
from crbc_rl.errors import ConfigError


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A new package that is importable for the length of a test."""
    folder = init("init_probe", tmp_path)
    monkeypatch.syspath_prepend(folder)
    yield folder
    gymnasium.registry.pop("InitProbe-v0", None)
    for name in [name for name in sys.modules if name.startswith("init_probe")]:
        del sys.modules[name]


def test_the_environment_keeps_the_contract(package):
    report = crbc_envs.check_anchor_env(gymnasium.make("init_probe:InitProbe-v0"), fuzz=50)
    assert not report.skipped and report.shared > 0.5


@pytest.mark.slow
def test_its_own_tests_pass_in_a_process_of_their_own(warm, package):
    code = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider']))"
    done = warm.run(["-c", code], package)
    assert done.status == 0 and "2 passed" in done.out, done.out + done.err


def test_no_task_is_in_two_splits(package):
    from init_probe.env import Corridors

    corridors = [{(task[0], task[1]) for task in Corridors(split).tasks} for split in ("train", "validation", "test")]
    assert len(set.union(*corridors)) == sum(map(len, corridors)) == 35


def test_its_configs_fit_each_other_and_name_its_module(package):
    config = load_config(package / "configs/train.yaml")
    warm = load_warmstart_config(package / "configs/warmstart.yaml")
    assert config.model == warm.out == str(package / "warmstart")
    assert config.env == warm.env
    assert config.modules["init_probe"].file == str(package / "init_probe/__init__.py")
    assert yaml.safe_load((package / "configs/train.yaml").read_text())["name"] == "init_probe"


@pytest.mark.parametrize(
    "name", ["Demo", "my-env", "1st", "class", "json", "crbc_envs", "../up", "", "a b", "my_env_", "configs"]
)
def test_a_name_that_no_package_can_have_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="name"):
        init(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_link_is_not_written_through(tmp_path):
    (tmp_path / "mine").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="is a link to"):
        init("mine", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_exists_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("keep")
    with pytest.raises(ConfigError, match="exists already"):
        init("mine", tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "notes.txt"]
