"""Modules that a config names: where they are found, when they may run, and that all five kinds of them work."""

import json
import sys

import numpy as np
import pytest
import yaml
from learner_fixtures import fresh_policy, small_config
from paths import SUPPORT

from crbc_rl.config import extensions, load_config
from crbc_rl.errors import ConfigError
from crbc_rl.runs.folder import Run

OWN = '''
"""An environment, a prompt, an estimator, a loss and an engine, all in one file outside the project."""
import pathlib
import numpy as np
import toy_env
from crbc_rl.policies.engines import Engine

pathlib.Path({trace!r}).write_text("ran")

def prompt(view):
    return f"{{view.task}} {{view.observation}} {{len(view.history)}}"

def flat(process, level=1.0):
    return np.full(len(process.rollouts.anchor), level)

def same(config, policy):
    from crbc_rl.policies.load import load_policy
    return load_policy(config.model)

def halved(logprobs, entropy, reference, batch, config):
    from crbc_rl.training.loss import policy_loss
    loss, metrics = policy_loss(logprobs, entropy, reference, batch, config)
    return loss / 2, {{**metrics, "whole": metrics["loss"]}}

class Nested:
    engine = Engine(same)
'''


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A folder with a config, its own module beside it, and a trace that says whether the module ran."""
    monkeypatch.delenv(extensions.VARIABLE, raising=False)
    folder = tmp_path / "world"
    folder.mkdir()
    (folder / "toy_env.py").write_text((SUPPORT / "toy_env.py").read_text())
    (folder / "own_world.py").write_text(OWN.format(trace=str(tmp_path / "trace")))
    fresh_policy().save(folder / "model")
    data = small_config("model", updates=2, save_every=1)
    data["model"] = "model"
    data["env"] = {"id": "own_world:Corridor-v0", "kwargs": {"max_steps": 4}, "prompt": "own_world:prompt"}
    data["credit"] = {"method": "own_world:flat", "flat": {"level": 0.5}}
    data["loss"] = {"objective": "own_world:halved"}
    data["generator"] = {"engine": "own_world:Nested.engine"}
    data["rollout"] |= {"backend": "process", "num_workers": 2}
    (folder / "config.yaml").write_text(yaml.safe_dump(data))
    return folder


@pytest.fixture
def crbc(warm):
    """Status and output of a command in a process of its own, where nothing of the tests is on the path."""

    def run(*args, cwd, allowed=False):
        variables = {extensions.VARIABLE: None, "PYTHONPATH": None, "COLUMNS": "300"}
        ended = warm.run([*args, *(["--allow-import"] if allowed else [])], cwd, variables)
        assert "Traceback" not in ended.err, ended.err
        return ended.status, ended.out + ended.err

    return run


# ---- permission ------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [("train",), ("train", "--dry-run")])
def test_nothing_runs_without_permission(crbc, world, args):
    status, shown = crbc(args[0], str(world / "config.yaml"), "--run", str(world / "run"), *args[1:], cwd=world.parent)
    assert status == 2 and shown.count("\n") == 1
    assert "own_world" in shown and str(world / "own_world.py") in shown and "--allow-import" in shown
    assert not (world.parent / "trace").exists()
    assert not (world / "run").exists()


def test_reading_a_config_runs_nothing(world):
    config = load_config(world / "config.yaml")
    assert not (world.parent / "trace").exists()
    assert config.modules["own_world"].file == str(world / "own_world.py")
    assert len(config.modules["own_world"].sha256) == 64


def test_our_own_ids_need_no_permission(model, tmp_path):
    data = small_config(model, env={"id": "crbc_envs:CRBC-Sokoban-v0"})
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(data))
    config = load_config(tmp_path / "c.yaml")
    assert not config.modules
    assert config.registered_id() == "crbc_envs:CRBC-Sokoban-v0"


# ---- all five, from other folders ------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_of_one_s_own_modules_goes_on_from_any_folder(crbc, world, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    config, run = str(world / "config.yaml"), str(world / "run")
    status, shown = crbc("train", config, "--run", run, "--set", "updates=1", cwd=elsewhere, allowed=True)
    assert status == 0 and "update 1 of" in shown, shown
    assert (world.parent / "trace").exists()
    kept = yaml.safe_load((world / "run/config.yaml").read_text())["modules"]["own_world"]
    assert kept["file"] == str(world / "own_world.py")

    status, shown = crbc("train", config, "--run", run, "--resume", cwd=elsewhere, allowed=True)
    assert status == 0 and "update 2 of" in shown, shown
    records = [json.loads(line) for line in (world / "run/metrics.jsonl").read_text().splitlines()]
    assert records[-1]["update"] == 2 and records[-1]["whole"] == records[-1]["loss"]

    assert crbc("eval", run, "--episodes", "3", cwd=elsewhere)[0] == 2
    status, shown = crbc("eval", run, "--episodes", "3", cwd=elsewhere, allowed=True)
    assert status == 0 and "3 test tasks" in shown

    # What was trained with one file is not continued with another.
    own = world / "own_world.py"
    text = own.read_text()
    own.write_text(text + "# changed\n")
    status, shown = crbc("train", config, "--run", run, "--resume", "--set", "updates=3", cwd=elsewhere, allowed=True)
    assert status == 2 and "modules.own_world.sha256" in shown
    own.unlink()
    status, shown = crbc("eval", run, "--episodes", "3", cwd=elsewhere, allowed=True)
    assert status == 2 and f"{own} is missing" in shown
    assert crbc("report", run, cwd=elsewhere)[0] == 0
    (elsewhere / "own_world.py").write_text(text)
    (elsewhere / "toy_env.py").write_text((world / "toy_env.py").read_text())
    assert crbc("eval", run, "--episodes", "3", cwd=elsewhere, allowed=True)[0] == 0


# ---- finding and loading ---------------------------------------------------------------------------


@pytest.fixture
def paths(tmp_path, monkeypatch):
    """Two folders, with a permission and a search path that end with the test."""
    monkeypatch.setenv(extensions.VARIABLE, "1")
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    yield tmp_path / "one", tmp_path / "two"
    for name in [name for name in sys.modules if name.startswith("extension_")]:
        del sys.modules[name]


def test_the_first_folder_is_searched_first_then_the_others_then_what_is_installed(paths):
    one, two = paths
    (two / "extension_a.py").write_text("value = 2\n")
    assert extensions.locate("extension_a", paths, "key").file == str(two / "extension_a.py")
    (one / "extension_a.py").write_text("value = 1\n")
    assert extensions.locate("extension_a", paths, "key").file == str(one / "extension_a.py")
    assert extensions.locate("yaml", paths, "key").file == yaml.__file__


def test_a_module_may_be_in_a_package_and_the_attribute_dotted(paths):
    package = paths[0] / "extension_pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("class Box:\n    value = 7\n")
    place = {"extension_pack.inner": extensions.locate("extension_pack.inner", paths, "key")}
    assert extensions.load("extension_pack.inner:Box.value", place, "key") == 7
    before = extensions.locate("extension_pack", paths, "key").sha256
    (package / "inner.py").write_text("value = 8\n")
    assert extensions.locate("extension_pack", paths, "key").sha256 != before  # a package is all its files


@pytest.mark.parametrize("name", ["extension_b", "no such thing", "..up", ""])
def test_a_module_that_is_nowhere_is_an_error_with_the_nearest_name(paths, name):
    (paths[0] / "extension_a.py").write_text("")
    with pytest.raises(ConfigError, match=r"key: no module .* and none is installed") as error:
        extensions.locate(name, paths, "key")
    assert ("did you mean 'extension_a'" in str(error.value)) == (name == "extension_b")


def test_what_a_module_lacks_is_named(paths):
    (paths[0] / "extension_a.py").write_text("def estimate(): ...\n")
    (paths[0] / "extension_c.py").write_text("import not_there_at_all\n")
    place = {name: extensions.locate(name, paths, "key") for name in ("extension_a", "extension_c")}
    with pytest.raises(ConfigError, match="extension_a.py has no 'estimat'; did you mean 'estimate'"):
        extensions.load("extension_a:estimat", place, "key")
    with pytest.raises(ConfigError, match="extension_c.py needs the module 'not_there_at_all'"):
        extensions.load("extension_c:x", place, "key")


def test_a_module_of_that_name_from_elsewhere_is_not_taken_for_it(paths):
    one, two = paths
    (one / "extension_a.py").write_text("value = 1\n")
    (two / "extension_a.py").write_text("value = 2\n")
    assert extensions.load("extension_a:value", {"extension_a": extensions.locate("extension_a", [one], "k")}, "k") == 1
    with pytest.raises(ConfigError, match="is .*one.* already, not .*two"):
        extensions.load("extension_a:value", {"extension_a": extensions.locate("extension_a", [two], "k")}, "k")


def test_a_changed_file_is_told(paths):
    file = paths[0] / "extension_a.py"
    file.write_text("value = 1\n")
    place = {"extension_a": extensions.locate("extension_a", paths, "key")}
    file.write_text("value = 2\n")
    with pytest.warns(UserWarning, match="extension_a.py has changed"):
        assert extensions.load("extension_a:value", place, "key") == 2


def test_a_moved_file_may_be_resumed(model, tmp_path, paths):
    (paths[0] / "extension_a.py").write_text("import numpy as np\n\ndef flat(process):\n    return np.zeros(1)\n")
    data = small_config(model, credit={"method": "extension_a:flat"})
    (paths[0] / "c.yaml").write_text(yaml.safe_dump(data))
    Run.start(tmp_path / "run", load_config(paths[0] / "c.yaml"), resume=False)
    (tmp_path / "run/metrics.jsonl").write_text('{"update": 0}\n')  # the run has begun
    (paths[0] / "extension_a.py").rename(paths[1] / "extension_a.py")
    (paths[0] / "c.yaml").rename(paths[1] / "c.yaml")
    Run.start(tmp_path / "run", load_config(paths[1] / "c.yaml"), resume=True)
    (paths[1] / "extension_a.py").write_text("changed = True\n")
    with pytest.raises(ConfigError, match=r"modules\.extension_a\.sha256"):
        Run.start(tmp_path / "run", load_config(paths[1] / "c.yaml"), resume=True)


def test_an_estimator_s_options_are_a_section_after_its_attribute(paths, model):
    (paths[0] / "extension_a.py").write_text(
        "import numpy as np\n\ndef flat(process, level):\n    return np.full(len(process.rollouts.anchor), level)\n"
    )
    data = small_config(model, credit={"method": "extension_a:flat", "flat": {"level": 3.0}, "gigpo": {"gamma": 0.9}})
    (paths[0] / "c.yaml").write_text(yaml.safe_dump(data))
    config = load_config(paths[0] / "c.yaml")
    assert config.credit.options == {"level": 3.0}
    assert np.array_equal(config.method()(type("P", (), {"rollouts": type("R", (), {"anchor": [1, 2]})}), 3.0), [3, 3])


@pytest.mark.parametrize(("found", "arguments"), [(3, ("view",)), (int.bit_length, ("config", "policy"))])
def test_what_cannot_be_called_as_a_hook_is_refused_by_its_key(found, arguments):
    with pytest.raises(ConfigError, match="env.prompt: my:hook is no such function .*: name a function of"):
        extensions.called_with(found, "env.prompt: my:hook", *arguments)
    assert extensions.called_with(len, "env.prompt: my:hook", "view") is len
