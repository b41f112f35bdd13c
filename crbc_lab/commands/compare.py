"""`crbc study NAME`: runs a comparison of trained agents, or what is missing of it; `crbc study list` names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markdown import Markdown
from rich.markup import escape
from rich.table import Table

from crbc_envs.storage.files import replace_file
from crbc_lab.commands.console import print_line, print_written
from crbc_lab.studies.comparison.definition import MOST_SEEDS, SCALES, Scale, Study, load_study
from crbc_lab.studies.comparison.kept import all_tried, best_candidates, find
from crbc_lab.studies.comparison.trainings import Training, count, trainings, tunings
from crbc_rl.errors import ConfigError
from crbc_rl.names import studies

if TYPE_CHECKING:
    from crbc_lab.studies.comparison.run import Runner


def list_studies(results: Path, console: Console) -> None:
    """Print every study: its settings, its trainings, and how many of these are finished in `results`."""
    shown = Table("study", "scale", "setting", "trainings", "finished", "hours", title="studies of trained agents")
    for name in studies():
        study = load_study(name)
        for scale in SCALES:
            for env, setting in study.settings.get(scale, {}).items():
                total = count(study, scale, env)
                hours = f"{total * setting.minutes / 60:.1f}" if setting.minutes else ""
                done = str(_finished(study, scale, env, results)) if scale == "lab" else ""
                shown.add_row(name, scale, env, str(total), done, hours)
    console.print(shown)
    console.print("hours of one core, at the scale lab; candidates may have fewer updates, so it may be less")


def _finished(study: Study, scale: Scale, env: str, results: Path) -> int:
    """How many trainings of a setting `results` has. No config is read where it has nothing of the setting."""
    if not (results / scale / env).is_dir():
        return 0
    tuned = {one.place: one for _, _, one in tunings(study, scale, env)}
    # Which candidates win is known when all were tried.
    chosen = best_candidates(study, scale, env, results) if all_tried(study, scale, env, results) else {}
    distinct = {one.place: one for one in trainings(study, scale, env, study.setting(scale, env).seeds, chosen)}
    return sum(find(one, results) is not None for one in (*tuned.values(), *distinct.values()))


def run_settings(study: Study, scale: Scale, envs: Sequence[str], seeds: int | None, runner: Runner) -> bool:
    """Run what a study lacks in some of its settings, and print their tables. Returns whether they are complete."""
    console = runner.console
    console.print(f"[bold]{escape(study.title)}[/]: {escape(study.asks)}", highlight=False, soft_wrap=True)
    for env in envs:
        if seeds and seeds > (most := max(study.setting(scale, env).seeds, MOST_SEEDS)):
            raise ConfigError(f"--seeds {seeds}: a table has {most} at most; a study of your own may say more")
        if not runner.study(study, scale, env, seeds or study.setting(scale, env).seeds):
            console.print("[yellow]not finished; everything is saved[/]\nto continue: the same command")
            return False
        _print_setting(study, scale, env, runner.results, console)
    return True


def _print_setting(study: Study, scale: Scale, env: str, results: Path, console: Console) -> None:
    """Print what a setting's results show, and write it with its figure to RESULTS/SCALE/SETTING/NAME.md and .png."""
    from crbc_lab.studies.comparison.document import NEEDS, section  # a second of scipy, which a list does without

    place = results / scale / env / study.name

    def picture(name: str, title: str, draw: Callable[[Path], None]) -> str:
        draw(place.with_suffix(".png"))
        return f"![{title}]({study.name}.png)"

    text = section(study, scale, env, results, picture)
    replace_file(place.with_suffix(".md"), f"# {study.title}, {env}\n\n{text}\n".encode())
    console.print(Markdown("\n\n".join(part for part in text.split("\n\n") if not part.startswith("!["))))
    if text.startswith("Not ") and "test success" not in text:
        console.print(NEEDS, highlight=False)
    print_written(console, place.with_suffix(".md"))


def _different(study: Study, scale: Scale, envs: tuple[str, ...]) -> Iterator[Training]:
    """One training of each config of a study."""
    for env in envs:
        distinct = {one.key: one for one in trainings(study, scale, env, 1, {})}
        distinct |= {one.key: one for _, _, one in tunings(study, scale, env)}
        yield from distinct.values()


def check_trainings(study: Study, scale: Scale, envs: tuple[str, ...], gpus: int, console: Console) -> bool:
    """Check each different training of a study for so many GPUs. Returns whether none can never work."""
    from crbc_lab.plan.check import check_run  # seconds of imports, which tables and lists do without

    sound = True
    for training in _different(study, scale, envs):
        try:
            findings = check_run(training.config, gpus=gpus).findings
            missing = [finding.name for finding in findings if not finding.optional]
            verdict = f"sound; missing here: {', '.join(missing)}" if missing else "sound, and can be run here"
        except ConfigError as error:
            verdict, sound = f"cannot work: {error}", False
        print_line(console, f"{scale}/{training.env}/{training.key}: {verdict}")
    return sound
