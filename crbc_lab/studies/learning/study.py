"""`crbc study learning`: every estimator trains the same agents in every setting, at several rates.

A part is one estimator in one setting. It is trained at every rate on instances that serve the choice of the rate
alone, with seeds of their own, and at every rate on those that results are of. The largest area on the first decides
which rate is the estimator's. Each part is a file, so a study that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from anchors.columns import Floats
from crbc_envs.storage.files import read_json, replace_file
from crbc_lab.interrupts import worker_pool
from crbc_lab.studies.estimators import CRBC, ORACLE, Estimator
from crbc_lab.studies.learning.settings import BLOCK, FEW, SECONDS, Draws, Setting, setting
from crbc_lab.studies.learning.training import SHUFFLED, Budget, found, train
from crbc_rl import credit
from crbc_rl.config.extensions import locate
from crbc_rl.config.sections import SMALLEST
from crbc_rl.config.text import parse_yaml
from crbc_rl.errors import ConfigError

Progress = Callable[[int, int], None]

METHODS = (CRBC, "crbc_plus", "gigpo", "graphgpo", "g2po", "grpo")
"""The default estimators."""
BOUNDS = (ORACLE, SHUFFLED)
"""The rows that bound all others: the exact advantage, and CRBC's credit at the wrong steps."""
CHOOSING = 500
"""The first of the seeds that rates are chosen with, within a block."""


@dataclass(frozen=True, slots=True)
class Grid:
    """What is trained: each estimator in each setting, with `seeds` on `instances`, after a choice of the rate with
    `choosing` seeds on as many other instances."""

    estimators: tuple[Estimator, ...]
    settings: tuple[str, ...] = FEW
    seeds: tuple[int, ...] = tuple(range(10))
    instances: int = 16
    choosing: int = 5
    every_rate: bool = False
    """All rates of a setting, in the place of the `few`."""
    budget: Budget = field(default_factory=Budget)

    @property
    def block(self) -> int:
        """Raises `ConfigError` for seeds of several blocks, whose instances differ."""
        blocks = {seed // BLOCK for seed in self.seeds}
        if len(blocks) != 1 or max(self.seeds) % BLOCK >= CHOOSING:
            raise ConfigError(f"seeds {self.seeds[0]} to {self.seeds[-1]}: give at most {CHOOSING} of one thousand")
        return blocks.pop()

    def rates(self, setting: Setting) -> tuple[float, ...]:
        return setting.rates if self.every_rate else setting.few

    def digest(self) -> str:
        """Of everything that a result depends on, of code only that of modules which are named."""
        names = [*self.settings, *(str(one.method) for one in self.estimators)]
        own = sorted({name.partition(":")[0] for name in names if ":" in name})
        code = [locate(module, [Path.cwd()], "study learning").sha256 for module in own]
        told = json.dumps(asdict(self), sort_keys=True, default=str) + "".join(code)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def parts(self) -> list[Grid]:
        """Each part as a grid, whose digest does not depend on the others."""
        each = product(self.settings, self.estimators)
        return [replace(self, estimators=(estimator,), settings=(setting,)) for setting, estimator in each]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """An estimator in a setting. `areas` are mean success over a training by rate and seed, (rates, S), `chosen_on` the
    same on the instances that serve the choice; `rate` is the chosen one's place. At it, `values` (S, I) is the area of
    every seed and instance, and `curve` (E, S) the success at each evaluation."""

    setting: str
    estimator: str
    rates: tuple[float, ...]
    chosen_on: Floats
    areas: Floats
    rate: int
    values: Floats
    curve: Floats

    @property
    def area(self) -> float:
        return float(self.values.mean())


def named(text: str) -> Estimator:
    """The estimator of a method with options, such as "gigpo" or "crbc,depth=0,w_step=1"; one of `BOUNDS`; or that of a
    module, "module:attribute". Raises `ConfigError` for a name or an option that is none."""
    method, *options = text.split(",")
    known = (*credit.METHODS, *BOUNDS)
    if method not in known and ":" not in method:
        raise ConfigError(f"--method {text}: take one of {', '.join(known)}, or module:attribute")
    given: dict[str, Any] = {}
    for option in options:
        name, separator, value = option.partition("=")
        if not separator:
            raise ConfigError(f"--method {text}: {option!r} is no option=value")
        given[name] = parse_yaml(value, f"--method {text}: {option!r} is not YAML")
    if method in BOUNDS and given:
        raise ConfigError(f"--method {text}: {method} has no options")
    if method in BOUNDS:
        return Estimator(text, method)
    try:
        credit.estimator_of(found(method)).check(given)
        if ":" not in method:
            credit.advantages(SMALLEST, method, **given)  # each checks the values of its own options
    except (credit.CreditError, TypeError) as error:
        raise ConfigError(f"--method {text}: {error}") from error
    return Estimator(text, method, given)


def run(grid: Grid, folder: Path, progress: Progress = lambda done, total: None, jobs: int = 1) -> list[Result]:
    """Train what `folder` lacks, long parts first, and return all results in the grid's order."""
    check_plan(grid, folder)
    wanted, todo = grid.parts(), sorted(left(grid, folder), key=lambda one: -SECONDS.get(one.settings[0], 0))
    progress(len(wanted) - len(todo), len(wanted))
    for number, (one, told) in enumerate(_trained(todo, jobs), len(wanted) - len(todo) + 1):
        kept = place(one, folder)
        kept.parent.mkdir(parents=True, exist_ok=True)
        replace_file(kept, (json.dumps({"digest": one.digest(), **told}) + "\n").encode())
        progress(number, len(wanted))
    return [read(place(one, folder)) for one in wanted]


def _trained(todo: Sequence[Grid], jobs: int) -> Iterator[tuple[Grid, dict[str, Any]]]:
    if jobs == 1:
        yield from ((one, _part(one)) for one in todo)
        return
    with worker_pool(jobs) as pool:
        under_way = {pool.submit(_part, one): one for one in todo}
        try:
            for done in as_completed(under_way):
                yield under_way[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _part(grid: Grid) -> dict[str, Any]:
    """Train one estimator in one setting."""
    import torch

    torch.set_num_threads(1)
    (estimator,), (name,) = grid.estimators, grid.settings
    agents = setting(name)
    first = BLOCK * grid.block + CHOOSING
    draws = Draws(grid.block, chosen_on=True, count=grid.instances)
    rates, budget = grid.rates(agents), grid.budget
    others = range(first, first + grid.choosing)
    reporting = Draws(grid.block, chosen_on=False, count=grid.instances)
    try:
        choosing = [_success(agents, estimator, rate, draws, others, budget) for rate in rates]
        reported = [_success(agents, estimator, rate, reporting, grid.seeds, budget) for rate in rates]
    except credit.CreditError as error:
        raise ConfigError(f"--method {estimator.name}: {error}") from error
    chosen_on = np.stack([success.mean(axis=(0, 2)) for success in choosing])
    rate = int(chosen_on.mean(axis=1).argmax())
    return {
        "setting": name,
        "estimator": estimator.name,
        "rates": rates,
        "chosen_on": chosen_on.round(5).tolist(),
        "areas": np.stack([success.mean(axis=(0, 2)) for success in reported]).round(5).tolist(),
        "rate": rate,
        "values": reported[rate].mean(axis=0).round(5).tolist(),
        "curve": reported[rate].mean(axis=2).round(5).tolist(),
        "updates": budget.updates,
    }


def _success(
    setting: Setting, estimator: Estimator, rate: float, draws: Draws, seeds: Sequence[int], budget: Budget
) -> Floats:
    agents = setting.make(draws, [np.random.default_rng([71, seed]) for seed in seeds])
    return train(agents, estimator, rate, budget)


def place(part: Grid, folder: Path) -> Path:
    """Where the result of a part is kept."""
    (estimator,), (world,) = part.estimators, part.settings
    names = (re.sub(r"[^\w.=-]", "_", name) for name in (world, f"{estimator.name}.json"))
    return folder.joinpath("alike" if part.budget.alike else "own", *names)


def left(grid: Grid, folder: Path) -> list[Grid]:
    """The parts that `folder` has no result of, each as a grid."""
    wanted = ((one, place(one, folder)) for one in grid.parts())
    return [one for one, kept in wanted if not kept.is_file() or _digest(kept) != one.digest()]


def check(grid: Grid, folder: Path) -> None:
    """Raises `ConfigError` for what cannot be compared, and where the folder's plan or results are of another grid:
    these would be lost."""
    names = {estimator.name for estimator in grid.estimators}
    if CRBC not in names or names == {CRBC}:
        raise ConfigError(f"all are compared with {CRBC}: ask for it and another, by --method")
    if min(len(grid.seeds), grid.instances) < 2:
        raise ConfigError("intervals need two seeds and instances or more, such as --seeds 0-4 --instances 8")
    if grid.budget.group_size < 2:
        raise ConfigError(f"--group-size {grid.budget.group_size}: a group has at least 2 rollouts; give 2 or more")
    for name in grid.settings:
        instances, blocks = setting(name).most
        if grid.instances > instances:
            raise ConfigError(f"--instances {grid.instances}: {name} has {instances:.0f} that no other seeds have")
        if grid.block >= blocks:
            raise ConfigError(f"--seeds {grid.seeds[0]}: {name} has instances for seeds below {blocks * BLOCK:.0f}")
    places = [place(one, folder) for one in grid.parts()]
    if twice := [kept for kept in places if places.count(kept) > 1]:
        raise ConfigError(f"two of the methods or worlds would be kept in {twice[0]}: rename one")
    check_plan(grid, folder)
    for kept in (place(one, folder) for one in left(grid, folder)):
        if kept.is_file():
            raise ConfigError(f"{kept} is of other seeds, instances or options: choose another --out, or delete it")


def _digest(kept: Path) -> str:
    try:
        return str(read_json(kept)["digest"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{kept} is damaged ({error}): delete it, and run again") from error


def read(kept: Path) -> Result:
    told = read_json(kept)
    chosen_on, areas, values, curve = (np.array(told[key]) for key in ("chosen_on", "areas", "values", "curve"))
    rates, rate = tuple(told["rates"]), int(told["rate"])
    return Result(told["setting"], told["estimator"], rates, chosen_on, areas, rate, values, curve)


PLAN = "plan.json"


def write_plan(grid: Grid, folder: Path) -> Path:
    """State a grid beforehand. Raises `ConfigError` where another one is stated already, and where a part is known."""
    check_plan(grid, folder)
    folder.mkdir(parents=True, exist_ok=True)
    stated = folder / PLAN
    if not stated.is_file() and len(left(grid, folder)) < len(grid.parts()):
        raise ConfigError(f"{folder} has results of it: what is known already cannot be stated beforehand")
    told = {
        "digest": grid.digest(),
        "measure": "area: exact success, mean over the evaluations of a training, seeds and instances",
        "family": "every method in every setting against crbc, but for the two bounds; two-sided, Holm",
        "rate": "that of the largest area on other instances with other seeds",
        "rates": {name: grid.rates(setting(name)) for name in grid.settings},
        **asdict(grid),
    }
    replace_file(stated, (json.dumps(told, indent=1) + "\n").encode())
    return stated


def planned(folder: Path) -> Grid | None:
    """The grid that a plan of the folder states; None without one. Raises `ConfigError` for a plan that was changed."""
    stated = folder / PLAN
    if not stated.is_file():
        return None
    try:
        told = read_json(stated)
        stated_as = {each.name: told[each.name] for each in fields(Grid)}
        stated_as |= {name: tuple(stated_as[name]) for name in ("settings", "seeds")}
        estimators = tuple(Estimator(**one) for one in told["estimators"])
        grid = Grid(**stated_as | {"estimators": estimators, "budget": Budget(**told["budget"])})
        rates = {name: list(grid.rates(setting(name))) for name in grid.settings}
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{stated} is damaged ({error}): restore it, or choose another folder with --out") from error
    check_plan(grid, folder)
    if told["rates"] != rates:
        raise ConfigError(f"{stated} states other rates than are tried now: choose another folder with --out")
    return grid


def check_plan(grid: Grid, folder: Path) -> None:
    """Raises `ConfigError` for seeds of several blocks, and where the folder's plan states another grid: it holds."""
    _ = grid.block
    stated = folder / PLAN
    if stated.is_file() and (planned := read_json(stated)["digest"]) != grid.digest():
        raise ConfigError(
            f"{stated} states the grid {planned} beforehand, and this one is {grid.digest()}: run it as it is stated, "
            "or choose another folder with --out"
        )
