"""Every command of `crbc` with its options: init, train, eval, agents, report, view, export, play, warmstart, bench and
doctor; and data, model, serve, results and study, which have files of their own."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from rich.markup import escape
from tyro.conf import Positional

from crbc_lab.commands.console import console, print_line
from crbc_lab.commands.data import data
from crbc_lab.commands.evaluating import evaluate
from crbc_lab.commands.looking import export, report, view
from crbc_lab.commands.models import MODEL
from crbc_lab.commands.parse import ConfigPath, Count, Index, MaybePath, Seeds, Settings, Size, SomePath, permit
from crbc_lab.commands.serving import SERVE
from crbc_lab.commands.studying import RESULT, STUDY
from crbc_rl.errors import ConfigError
from crbc_rl.names import RUNS, find


def train(
    config: ConfigPath,
    /,
    run: MaybePath = None,
    resume: bool = False,
    start_or_resume: bool = False,
    seed: Index = None,
    seeds: Seeds = None,
    jobs: Count = None,
    set: Settings = (),
    dry_run: bool = False,
    gpus: Count = None,
    gpu_memory: Size = None,
    nodes: Count = None,
    hardware: str | None = None,
    online: bool = False,
    follow_links: bool = False,
    allow_import: bool = False,
) -> None:
    """Train a policy as defined in CONFIG. Prints held-out success before and after, and writes a report.

    Args:
        config: a YAML file, the name of a config that comes with crbc, such as sokoban-tiny, or a run for its config.
        run: run folder; default runs/NAME-seedSEED. With --seeds a folder for the runs RUN/seedSEED.
        resume: continue the run in that folder from its last checkpoint. With --seeds, also start those not begun.
        start_or_resume: the same, but start the run where there is none.
        seed: replaces the config's seed.
        seeds: train with each of several seeds, such as 0-4 or 0,2,5, in a process and a run folder each.
        jobs: with --seeds: how many at a time; default by the cores and the config's threads, and at most one a GPU.
        set: replaces config values, each as section.key=value.
        dry_run: check everything that can be checked without training, print the plan, and stop.
        gpus: dry run: number of GPUs to plan for; default 8 for each of --nodes; without it 8 with vLLM, else 1.
        gpu_memory: dry run: memory of each GPU in GiB; default 80.
        nodes: dry run: number of nodes that the GPUs are dealt to; default the fewest.
        hardware: dry run: whose time is estimated: a100, h100, or cpu for this machine itself; default a100.
        online: dry run: look up a model that is not on this machine on the Hugging Face hub.
        follow_links: write through links in the run folder, such as rollouts/ on another disk.
        allow_import: run the modules that the config names ("module:attribute").
    """
    found = find(config, "config", "run")  # before packages are imported that only a command with a config needs
    from crbc_rl.config import load_config

    permit(allow_import)
    if () in set:
        raise ConfigError("--set: write what to set as section.key=value")
    overrides = [*chain(*set), *([] if seed is None else [f"seed={seed}"])]
    settings = load_config(config, overrides)
    again = found.path if found.kind == "run" and seed is seeds is None else None
    folder = run or again or RUNS / f"{settings.name}-seed{settings.seed}"
    if dry_run:
        from crbc_lab.plan.environment import played_slope
        from crbc_lab.plan.plan import make_plan
        from crbc_lab.plan.show import print_plan

        print_plan(plan := make_plan(settings, gpus, gpu_memory, online, nodes, hardware or "a100"), console, folder)
        if plan.checked.env.panels:
            console.print(f"anchors: {played_slope(settings)}", highlight=False, markup=False)
        return
    if (seed if seeds else jobs) is not None:
        raise ConfigError("--seeds and --seed exclude each other, and --jobs belongs to --seeds: --seeds 0-4 --jobs 2")
    if online or any(given is not None for given in (gpus, gpu_memory, nodes, hardware)):
        raise ConfigError(
            "--gpus, --gpu-memory, --nodes, --hardware and --online belong to --dry-run; to train on N GPUs: "
            "torchrun --shutdown-timeout=3600 --nproc_per_node=N -m crbc_lab.cli train CONFIG"
        )
    if seeds is not None:
        from crbc_lab.commands.seeds import train_seeds

        if not train_seeds(settings, seeds, run, resume or start_or_resume, jobs, console, follow_links):
            sys.exit(1)
        return
    from crbc_lab.commands.train import require_run
    from crbc_lab.commands.train import train as run_training

    if resume and not start_or_resume:
        require_run(folder)
    run_training(settings, folder, resume or start_or_resume, console, follow_links)


def agents(
    config: ConfigPath,
    /,
    endpoint: str | None = None,
    model: str | None = None,
    key_variable: str | None = None,
    run: MaybePath = None,
    again: bool = False,
    transcripts: Index = None,
    set: Settings = (),
    dry_run: bool = False,
    allow_import: bool = False,
) -> None:
    """Play held-out tasks with a prompting agent (direct, react or reflexion) and print its success and cost.

    The same command continues a run that was stopped: finished episodes are not played again, and no call is made
    twice. Exits with status 1 where a budget ended the run.

    Args:
        config: a YAML file, or the name of a config that comes with crbc, such as agents/alfworld-react.
        endpoint: an OpenAI-compatible server, such as http://localhost:8000/v1; replaces model.endpoint.
        model: the name of a model there, or without an endpoint a model folder; replaces model.name.
        key_variable: the environment variable that holds the server's API key.
        run: run folder; default runs/NAME.
        again: play episodes again that ended without an answer of the model.
        transcripts: how many episodes go into RUN/transcripts, half of them unsolved; default 16.
        set: replaces config values, each as section.key=value.
        dry_run: check everything that can be checked without a call, print the plan and the first prompt, and stop.
        allow_import: run the modules that the config names ("module:attribute").
    """
    find(config, "config", "run")
    from crbc_lab.agents.config import load_agents_config

    permit(allow_import)
    if () in set:
        raise ConfigError("--set: write what to set as section.key=value")
    settings = load_agents_config(config, tuple(chain(*set)), endpoint, model, key_variable)
    from crbc_lab.commands import agents as module

    folder = run or RUNS / settings.name
    if dry_run:
        module.dry_run(settings, folder, console)
    elif not module.agents(settings, folder, again, 16 if transcripts is None else transcripts, console):
        sys.exit(1)


def play(
    env: Positional[str],
    /,
    split: Literal["train", "validation", "test"] = "train",
    task: Index = None,
    seed: Index = 0,
    set: Settings = (),
    unsafe_root: bool = False,
    allow_import: bool = False,
) -> None:
    """Play an environment in the terminal, with its anchors and admissible actions.

    Args:
        env: an environment id such as CRBC-Sokoban-v0, or a config or a run for its environment.
        split: the split of the tasks.
        task: index of the first task; by default drawn with the seed.
        seed: seed of the draw.
        set: the environment's options, each as key=value, such as slippery=true or data=official.
        unsafe_root: let CRBC-WebShopSite-v0 run its browser as root, without a sandbox.
        allow_import: run the modules that the config names ("module:attribute").
    """
    permit(allow_import)
    from crbc_lab.commands.play import play as play_env

    play_env(env, split, task, seed or 0, console, settings=tuple(chain(*set)), unsafe_root=unsafe_root)


def warmstart(
    config: ConfigPath,
    /,
    steps: Count = None,
    out: MaybePath = None,
    set: Settings = (),
    allow_import: bool = False,
) -> None:
    """Make a warm start: train a tokenizer and a tiny policy on demonstrations of the environment's expert.

    Without an expert, the successful episodes of random play are the demonstrations.

    Args:
        config: a YAML file, or the name of a config that comes with crbc, such as warmstart-sokoban.
        steps: replaces the config's number of optimizer steps.
        out: replaces the config's output folder.
        set: replaces config values, each as key=value.
        allow_import: run the modules that the config names ("module:attribute").
    """
    find(config, "config", "run")
    from crbc_lab.commands.warmstart_config import load_warmstart_config

    permit(allow_import)
    settings = load_warmstart_config(config, tuple(chain(*set)))
    settings = settings.model_copy(
        update={**({} if steps is None else {"steps": steps}), **({} if out is None else {"out": str(out)})}
    )
    from rich.progress import Progress

    from crbc_lab.commands import warmstart as module

    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("imitation", total=settings.steps)

        def tell(step: int, nll: float) -> None:
            progress.update(bar, completed=step, description=f"imitation, nll {nll:.3f}")
            if step % min(50, max(1, settings.steps // 10)) == 0 or step == settings.steps:
                console.print(f"step {step:5d}  nll per reply token {nll:.4f}", highlight=False)

        played: list[bool] = []

        def on_episode(success: bool) -> None:
            played.append(success)
            won, total = sum(played), settings.random_episodes
            progress.update(bar, description=f"random play, {won:,} of {len(played):,} episodes succeeded")
            if len(played) == total:
                console.print(f"no expert: {won:,} of {total:,} episodes of random play succeeded", highlight=False)

        module.warmstart(
            settings, tell, on_episode, on_test=lambda evaluation: console.print(f"wins {evaluation}", highlight=False)
        )
    print_line(console, f"saved {settings.out}")


def init(name: Positional[str], /, folder: SomePath = Path()) -> None:
    """Write a small installable package: an environment, its test, configs to train on it, and a README.

    Args:
        name: the package's name, such as my_env.
        folder: the folder that gets it.
    """
    from crbc_lab.commands.init import init as write

    target = write(name, folder)
    console.print(f"wrote {escape(str(target))}: its README.md says how to install, test and train it", soft_wrap=True)


def bench(
    name: Positional[Literal["conformance", "splits"]],
    env: Positional[str | None] = None,
    /,
    games: MaybePath = None,
    all: bool = False,
    count: Count = None,
    steps: Count = 105,
    seed: Index = 0,
    out: SomePath = Path("runs/conformance.jsonl"),
    train_tasks: Count = 1_000,
    held_out_tasks: Count = 2_000,
    walks: Index = 8,
    set: Settings = (),
) -> None:
    """Compare the suite's own engines with the originals, or an environment's splits with each other.

    `crbc bench conformance CRBC-Sokoban-v0` plays gym-sokoban beside it, and CRBC-ALFWorld-v0 TextWorld.

    Exits with status 1 where engines differ, and where a held-out task is in training or 1 % of the held-out starts
    are visited there.

    Args:
        name: conformance: an environment's own engine and the original, side by side at every step; splits: what of
            the validation and test splits is also in training.
        env: an environment id such as CRBC-Sokoban-v0.
        games: conformance: instead of an environment, a folder with ALFWorld's game.tw-pddl files anywhere below it.
        all: conformance: ALFWorld's games in both wordings, those installed or of --games, and generated ones.
        count: conformance: number of games, in order of their names, default all; of an environment's tasks, the first
            ones, default 100 rooms or 5 households.
        steps: conformance: steps in each game: its solution, then random play.
        seed: conformance: seed of the first game's random play; each further game has the next seed; splits: seed of
            the draws.
        out: conformance --games: file for the results of finished games; a run that was stopped continues from it.
        train_tasks: splits: number of training tasks, drawn at random.
        held_out_tasks: splits: number of tasks of each held-out split, the first ones.
        walks: splits: random walks in each of the training tasks.
        set: the environment's arguments, each as key=value, such as panel=paper.
    """
    if name == "splits":
        from crbc_lab.commands.bench import splits

        if env is None or games is not None:
            raise ConfigError("crbc bench splits takes an environment, such as crbc bench splits CRBC-Sokoban-v0")
        numbers = {"train": train_tasks or 1, "held_out": held_out_tasks or 1, "walks": walks or 0, "seed": seed or 0}
        if not splits(env, tuple(chain(*set)), console, **numbers):
            sys.exit(1)
        return
    from crbc_lab.commands.bench import compare_engines

    amounts = count, 105 if steps is None else steps, seed or 0
    if not compare_engines(env, games, all, tuple(chain(*set)), amounts, out, console):
        sys.exit(1)


def doctor() -> None:
    """Print what is installed, what is missing, and the command that installs it."""
    from crbc_lab.commands.doctor import examine, print_sections

    if not print_sections(examine(), console):
        sys.exit(1)


COMMANDS: dict[str, Any] = {
    "init": init,
    "train": train,
    "eval": evaluate,
    "agents": agents,
    "report": report,
    "view": view,
    "export": export,
    "play": play,
    "warmstart": warmstart,
    "study": STUDY,
    "results": RESULT,
    "bench": bench,
    "data": data,
    "model": MODEL,
    "serve": SERVE,
    "doctor": doctor,
}
