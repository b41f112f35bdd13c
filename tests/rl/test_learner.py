import json
import math
import os
import shutil
import signal
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from learner_fixtures import small, without_times, write_config
from warm import Warm
from worker_processes import workers

from crbc_envs.prompts import Prompt
from crbc_envs.tasks import rng
from crbc_rl import learner
from crbc_rl.batches import RolloutBatch, TokenBatch
from crbc_rl.config import load_config
from crbc_rl.distributed import Distributed
from crbc_rl.errors import ConfigError
from crbc_rl.learner import Learner
from crbc_rl.policies.load import load_policy
from crbc_rl.runs.folder import Run, finished
from crbc_rl.runs.metrics import Metrics, read_metrics
from crbc_rl.training.actor import Actor
from crbc_rl.training.clock import Callback
from crbc_rl.training.files import write_manifest


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_policy(folder).model.state_dict()


def _same_weights(a: Path, b: Path) -> bool:
    first, second = _weights(a), _weights(b)
    return all(torch.equal(first[name], second[name]) for name in first)


def _transcripts(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "transcripts").iterdir()}


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from its start to its end."""
    folder = tmp_path_factory.mktemp("whole")
    Learner(small(model), Run.start(folder, small(model), resume=False)).train()
    return folder


def test_two_seeded_trainings_are_equal(model: Path, whole: Path, tmp_path: Path) -> None:
    Learner(small(model), Run.start(tmp_path, small(model), resume=False)).train()
    assert without_times(read_metrics(tmp_path)) == without_times(read_metrics(whole))
    assert _same_weights(tmp_path / "checkpoints/000004", whole / "checkpoints/000004")
    assert not _same_weights(tmp_path / "checkpoints/000004", model)


@pytest.mark.slow
def test_environments_in_worker_processes_train_the_same_weights(model: Path, tmp_path: Path) -> None:
    sizes = {"num_groups": 2, "group_size": 3, "max_new_tokens": 4}
    for name, more in (("here", {}), ("workers", {"backend": "process", "num_workers": 2})):
        config = small(model, updates=2, rollout={**sizes, **more})
        Learner(config, Run.start(tmp_path / name, config, resume=False)).train()
    assert without_times(read_metrics(tmp_path / "here")) == without_times(read_metrics(tmp_path / "workers"))
    assert _same_weights(tmp_path / "here/checkpoints/000002", tmp_path / "workers/checkpoints/000002")
    assert not workers()


def test_a_run_folder_holds_what_it_promises(whole: Path) -> None:
    records = read_metrics(whole)
    assert [record["update"] for record in records] == [0, 1, 2, 3, 4]
    assert "test/success" in records[0] and "test/success" in records[-1]
    assert {"success", "kl", "clip_share", "seconds/generate", "seconds/step_credit", "seconds/train"} <= set(
        records[1]
    )
    assert json.loads((whole / "versions.json").read_text())["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert sorted(path.name for path in (whole / "checkpoints").iterdir()) == ["000002", "000004"]
    run = Run.open(whole)
    assert run.config == small(whole / "model")
    assert run.best() is not None and load_policy(run.best())
    assert set(run.groups()) == {1, 2, 3, 4}
    assert not (whole / "rollouts").exists()  # unless `record_every` asks for them
    assert list((whole / "tensorboard").iterdir())


class StopAfter(Callback):
    def __init__(self, update: int) -> None:
        self.update = update
        self.learner: Learner

    def record(self, record: dict) -> None:
        if record["update"] + 1 == self.update:
            self.learner.stop()  # as Ctrl-C does, after the checkpoint: the next update ends and is saved


def test_a_stopped_run_resumes_to_the_same_bytes(model: Path, whole: Path, tmp_path: Path) -> None:
    config = small(model)
    callback = StopAfter(3)
    callback.learner = Learner(config, Run.start(tmp_path / "cut", config, resume=False), callback)
    callback.learner.train()
    assert Run.open(tmp_path / "cut").last_checkpoint().name == "000003"
    assert read_metrics(tmp_path / "cut")[-1]["update"] == 3
    Learner(config, Run.start(tmp_path / "cut", config, resume=True)).train()

    assert without_times(read_metrics(tmp_path / "cut")) == without_times(read_metrics(whole))
    assert _same_weights(tmp_path / "cut/checkpoints/000004", whole / "checkpoints/000004")
    assert _transcripts(tmp_path / "cut") == _transcripts(whole)


def test_a_run_that_is_ended_where_it_was_stopped_is_tested(model: Path, tmp_path: Path) -> None:
    callback = StopAfter(3)
    callback.learner = Learner(small(model), Run.start(tmp_path, small(model), resume=False), callback)
    callback.learner.train()
    before = read_metrics(tmp_path)
    for _ in range(2):  # again, it does nothing
        fewer = small(model, updates=3)
        Learner(fewer, Run.start(tmp_path, fewer, resume=True)).train()
    now = read_metrics(tmp_path)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == [0, 1, 2, 3] and finished(tmp_path, 3)
    assert without_times(now[:3]) == without_times(before[:3]) and "test/success" not in before[3]
    kept = {name: value for name, value in before[3].items() if not name.startswith("seconds/")}
    assert kept.items() <= now[3].items()
    assert {"validation/success", "test/success"} <= now[3].keys()


def _bests(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "best").iterdir())


def test_a_best_policy_stays_until_a_checkpoint_is_behind_the_next(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Learner(small(model), Run.start(tmp_path, small(model), resume=False))) as learner:
        scores = (0, 0.1, [0]), (1, 0.2, [0, 1]), (2, 0.1, [1]), (3, 0.3, [1, 3])
        for learner.update, success, kept in scores:
            learner._finish_update({"validation/success": success})
            assert _bests(tmp_path) == [f"{update:06d}" for update in kept]
    shutil.rmtree(tmp_path / "best/000001")
    copies = tmp_path / "rollouts"
    copies.mkdir()
    for name in ("000002.parquet", "000003.parquet", "mine.parquet"):
        (copies / name).touch()
    with monkeypatch.context() as late:  # another rank has looked before rank 0 deleted it
        late.setattr(Distributed, "gather", lambda self, own: [own, not own] if isinstance(own, bool) else [own])
        again = Learner(small(model), Run.start(tmp_path, small(model), resume=True))
    assert (again.update, again.best, _bests(tmp_path)) == (2, -math.inf, []), "the best of update 2 is lost"
    assert sorted(path.name for path in copies.iterdir()) == ["000002.parquet", "mine.parquet"]
    again.train()
    assert len(_bests(tmp_path)) == 1


def test_a_run_goes_on_with_its_own_limit_of_a_reply(model: Path, tmp_path: Path) -> None:
    rollout = {"num_groups": 2, "group_size": 3}
    named, unnamed = small(model, rollout={**rollout, "max_new_tokens": 5}), small(model, rollout=rollout)
    Run.start(tmp_path, named, resume=False)
    (tmp_path / "metrics.jsonl").write_text('{"update": 0}\n')
    (tmp_path / "versions.json").unlink()
    with pytest.raises(ConfigError, match=r"rollout\.max_new_tokens = 5, not 6"):
        Run.start(tmp_path, small(model, rollout={**rollout, "max_new_tokens": 6}), resume=True)
    with closing(Learner(unnamed, Run.start(tmp_path, unnamed, resume=True))) as learner:
        assert learner.worker.config.rollout.max_new_tokens == learner.run.config.rollout.max_new_tokens == 5


@pytest.mark.full  # `test_a_run_killed_in_any_phase_resumes_to_the_same_bytes` kills at chosen moments
def test_a_run_killed_at_any_moment_resumes_without_a_gap_or_a_repeat(warm: Warm, model: Path, tmp_path: Path) -> None:
    """kill -9 at random moments, some of them inside a save, until the run gets through."""
    changes = {"updates": 8, "save_every": 1}
    config, file = small(model, **changes), write_config(tmp_path / "config.yaml", model, **changes)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    Learner(config, Run.start(whole, config, resume=False)).train()

    rng, kills = np.random.default_rng(0), 0
    while kills < 4:
        process = warm.start(["train", file, "--run", cut, "--start-or-resume"], tmp_path)
        seen = len(read_metrics(cut))
        while process.is_running() and len(read_metrics(cut)) < seen + 2:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.3))
        os.kill(process.pid, signal.SIGKILL)
        kills += process.wait().status == -signal.SIGKILL
        if len(read_metrics(cut)) == 9:
            break
    Learner(config, Run.start(cut, config, resume=True)).train()

    assert kills >= 2
    assert [record["update"] for record in read_metrics(cut)] == list(range(9))
    assert without_times(read_metrics(cut)) == without_times(read_metrics(whole))
    assert _same_weights(cut / "checkpoints/000008", whole / "checkpoints/000008")
    assert _transcripts(cut) == _transcripts(whole)


def test_a_run_in_the_way_is_not_overwritten(model: Path, tmp_path: Path) -> None:
    Run.start(tmp_path, small(model), resume=False)
    (tmp_path / "metrics.jsonl").write_text('{"update": 0}\n')
    with pytest.raises(ConfigError, match="already holds a run: add --resume"):
        Run.start(tmp_path, small(model), resume=False)
    with pytest.raises(ConfigError, match=r"was started with seed = 0, not 7"):
        Run.start(tmp_path, small(model, seed=7), resume=True)
    Run.start(tmp_path, small(model, updates=9), resume=True)
    (tmp_path / "metrics.jsonl").write_text('{"update": 5}\n')
    with pytest.raises(ConfigError, match="updates: 4, and .* is at update 5 already: set it to more"):
        Run.start(tmp_path, small(model, updates=4), resume=True)


def test_the_end_of_a_falling_rate_stays_where_it_was(model: Path, tmp_path: Path) -> None:
    falling = {"optim": {"lr": 1e-3, "minibatch": 8, "schedule": "linear"}}
    Run.start(tmp_path, small(model, **falling), resume=False)
    (tmp_path / "metrics.jsonl").write_text('{"update": 0}\n')
    Run.start(tmp_path, small(model, **falling), resume=True)
    with pytest.raises(ConfigError, match="was started with updates = 4, not 9"):
        Run.start(tmp_path, small(model, updates=9, **falling), resume=True)


def test_keys_of_memory_and_speed_may_change_on_resuming(model: Path, tmp_path: Path) -> None:
    Run.start(tmp_path, small(model), resume=False)
    (tmp_path / "metrics.jsonl").write_text('{"update": 0}\n')
    less = {"rollout": {**small(model).rollout.model_dump(), "truncation": "error", "backend": "process", "waves": 2}}
    less |= {"generator": {"prefix_cache": 0.1, "memory": 0.3}, "policy": {"gradient_checkpointing": True}}
    optim = small(model).optim.model_dump()
    changed = small(model, **less, threads=2, optim={**optim, "microbatch_tokens": 64})
    Run.start(tmp_path, changed, resume=True)
    own = Run.open(tmp_path).config
    assert own.model_copy(update={"model": changed.model, "base": None}) == changed, "as others read it"
    Run.start(tmp_path, small(model, optim={**optim, "microbatch": 2, "score_microbatch": 3}), resume=True)
    shutil.rmtree(tmp_path)
    ranks = {**optim, "minibatch": 8, "order": "ranks"}
    Run.start(tmp_path, small(model, optim=ranks), resume=False)
    (tmp_path / "metrics.jsonl").write_text('{"update": 0}\n')
    Run.start(tmp_path, small(model, optim={**ranks, "microbatch_tokens": 64}), resume=True)
    for key in ("microbatch", "score_microbatch"):
        with pytest.raises(ConfigError, match=rf"was started with optim\.{key} = "):
            Run.start(tmp_path, small(model, optim={**ranks, key: 1}), resume=True)


def test_a_critic_is_loaded_before_the_engine_takes_its_memory(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[str]()
    for name in ("Critic", "RolloutWorker"):
        real = getattr(learner, name)
        monkeypatch.setattr(learner, name, lambda *given, name=name, real=real: made.append(name) or real(*given))
    config = small(model, credit={"method": "gae"})
    Learner(config, Run.start(tmp_path, config, resume=False)).close()
    assert made == ["Critic", "RolloutWorker"]


def test_an_option_left_out_on_resuming_is_a_change_too(model: Path, tmp_path: Path) -> None:
    Run.start(tmp_path, small(model, credit={"crbc": {"beta": 0.9}}), resume=False)
    (tmp_path / "metrics.jsonl").write_text('{"update": 0}\n')
    with pytest.raises(ConfigError, match=r"was started with credit\.crbc\.beta = 0\.9, not None"):
        Run.start(tmp_path, small(model), resume=True)


def test_a_checkpoint_of_another_architecture_is_refused(model: Path, whole: Path, tmp_path: Path) -> None:
    config, folder = small(model), tmp_path / "run"
    shutil.copytree(whole, folder)
    file = folder / "checkpoints/000004/config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "num_hidden_layers": 6}))  # says 4 elsewhere
    write_manifest(file.parent)
    with pytest.raises(ConfigError, match=r"config\.json cannot be read: .*layer"):
        Learner(config, Run.start(folder, config, resume=True))


def test_metrics_drop_what_lies_behind_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"update": 0}\n{"update": 1}\n{"update": 2}\n{"upd')
    metrics = Metrics(tmp_path, upto=1)
    metrics.write({"update": 2, "success": 0.5})
    metrics.close()
    assert read_metrics(tmp_path) == [{"update": 0}, {"update": 1}, {"update": 2, "success": 0.5}]


def test_gradient_checkpointing_changes_nothing(model: Path, tmp_path: Path) -> None:
    """Neither what is sampled, which a model in training mode gets wrong, nor what policy and critic learn. Nor does a
    model's dropout, which is off in both."""
    dropping = shutil.copytree(model, tmp_path / "model")
    about = json.loads((dropping / "config.json").read_text())
    (dropping / "config.json").write_text(json.dumps({**about, "attention_dropout": 0.5}))
    more = {"credit": {"method": "gae"}, "loss": {"entropy": 0.1}}  # so that there is something to learn
    more["env"] = {"kwargs": {"observation": "text", "max_steps": 4}}
    for name, on in (("plain", False), ("checkpointed", True)):
        config = small(dropping, policy={"gradient_checkpointing": on}, updates=2, **more)
        Learner(config, Run.start(tmp_path / name, config, resume=False)).train()
    plain, checkpointed = (without_times(read_metrics(tmp_path / name)) for name in ("plain", "checkpointed"))
    assert plain == checkpointed and plain[1]["grad_norm"] > 0
    assert _same_weights(tmp_path / "plain/checkpoints/000002", tmp_path / "checkpointed/checkpoints/000002")


def test_what_is_only_read_is_read_in_passes_of_its_own_size(model: Path) -> None:
    """Rollouts' log-probabilities have fewer tensors to keep than the passes that train."""
    actor = Actor(small(model, optim={"minibatch": 32, "microbatch": 2, "score_microbatch": 5}), Distributed())
    turns = actor.policy.generate([Prompt("up" * n) for n in range(1, 13)], range(12), 1.0, 4)
    batch = RolloutBatch.of_turns(turns)
    sizes: list[int] = []
    logprobs = actor.policy.logprobs

    def watched(part: TokenBatch, *rest: object, **more: object) -> object:
        sizes.append(len(part.real))
        return logprobs(part, *rest, **more)

    actor.policy.logprobs = watched
    actor.score(batch)
    assert sum(sizes) == 12 and 2 < max(sizes) <= 5
    sizes.clear()
    actor.optimise(batch, rng("test"))
    assert sum(sizes) == 12 and max(sizes) == 2


DIE = """
import os, signal, sys
from pathlib import Path
from crbc_rl.config import load_config
from crbc_rl.learner import Learner
from crbc_rl.training.clock import Callback
from crbc_rl.runs.folder import Run

config, run, where, count = sys.argv[1:]
left = int(count)

def here(what):
    global left
    left -= what == where
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

class Dying(Callback):
    def phase(self, name):
        here(name)

def dying(name):
    call = getattr(os, name)
    def die(*arguments):
        call(*arguments)
        here(name)
    setattr(os, name, die)

dying("fsync")
dying("replace")
config = load_config(Path(config))
Learner(config, Run.start(Path(run), config, resume=True), Dying()).train()
"""


@pytest.fixture(scope="module")
def undisturbed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A config, and a whole run of it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    path = write_config(folder / "config.yaml", model, save_every=1, updates=3)
    Learner(load_config(path), Run.start(folder / "run", load_config(path), resume=False)).train()
    return path, folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "count"),
    [
        *[("validation", 2), ("test", 2), ("train", 2), ("replace", 4), ("fsync", 35)],
        *(
            pytest.param(where, count, marks=pytest.mark.full)  # what was last written is the same
            for where, count in (("test", 1), ("rollout", 3), ("credit", 1), ("fsync", 55))
        ),
    ],
)
def test_a_run_killed_in_any_phase_resumes_to_the_same_bytes(
    warm: Warm, undisturbed: tuple[Path, Path], tmp_path: Path, where: str, count: int
) -> None:
    """kill -9 at the n-th time that a phase begins, that a file reaches the disk, or that one is renamed."""
    path, whole = undisturbed
    assert warm.run(["-c", DIE, path, tmp_path, where, count], tmp_path.parent).status == -signal.SIGKILL
    Learner(load_config(path), Run.start(tmp_path, load_config(path), resume=True)).train()
    assert without_times(read_metrics(tmp_path)) == without_times(read_metrics(whole))
    assert _same_weights(tmp_path / "checkpoints/000003", whole / "checkpoints/000003")
    assert _transcripts(tmp_path) == _transcripts(whole)
    assert not list(tmp_path.rglob("*.tmp"))
