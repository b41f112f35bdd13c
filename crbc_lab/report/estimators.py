"""What a run's own estimator and others credit to each step of a group, all by `crbc_rl.credit`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from anchors import EmpiricalProcess, RolloutGroup
from anchors.columns import Floats
from crbc_rl import credit
from crbc_rl.config.sections import CreditConfig
from crbc_rl.config.text import parse_yaml
from crbc_rl.credit.crbc import BETA
from crbc_rl.errors import ConfigError

CLOSURES = ("crbc", "crbc_plus")
DISCOUNTS = {"crbc": ("beta", "β"), "gigpo": ("gamma", "γ")}
"""The option of a method's discount, and the letter that it is written with."""
COMPARED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("CRBC, K = 0", "crbc", {"depth": 0, "horizon": None}),
    ("CRBC, K = 1", "crbc", {"depth": 1, "horizon": None}),
    ("CRBC, full", "crbc", {"depth": None, "horizon": None}),
    ("GiGPO", "gigpo", {}),
    ("GraphGPO", "graphgpo", {}),
    ("GRPO", "grpo", {}),
)
"""The estimators that a run's own is compared with: name, method, and options that are not the config's."""
DIGITS = 3
DEEPEST = 10_000
"""The largest depth that a reader may ask for."""


class Named(NamedTuple):
    """An estimator with its options, under the name that the page gives it."""

    name: str
    method: str
    options: Mapping[str, Any]


def compared(config: CreditConfig | None) -> list[Named]:
    """The run's own estimator first, then `COMPARED` at the run's discount and at the paper's.

    The options of a method are those of its section, with what all methods of the config share. Without a config there
    is no own one.
    """
    own = [] if config is None else [Named(f"this run: {told(config)}", config.method, config.options)]
    found, given = discount_of(config), config or CreditConfig()
    for discount in dict.fromkeys((found, BETA)):
        for name, method, more in COMPARED:
            options = {**given.model_copy(update={"method": method}).options, **more}
            if method in DISCOUNTS:
                option, letter = DISCOUNTS[method]
                if discount == "auto" and method != "crbc":
                    continue  # no number that another method could take
                options[option] = discount
                name = f"{name}, {letter} {discount}"
            if not any(one.name == name for one in own):
                own.append(Named(name, method, options))
    return own


def asked_for(text: str) -> Named:
    """The estimator that a reader asks for, such as "crbc beta=0.9 depth=1". Raises `ConfigError` for what is none,
    and `CreditError` for a method or an option that there is not."""
    method, *settings = text.split() or [""]
    options = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"{setting}: write an option as name=value, such as crbc beta=0.9 depth=1")
        options[name] = parse_yaml(value, f"{setting}: the value is not YAML")
    credit.check_options(method, options)
    if isinstance(depth := options.get("depth"), int) and depth > DEEPEST:
        raise ConfigError(f"depth={depth}: more than {DEEPEST:,} takes minutes; depth=null is the full closure")
    return Named(text, method, options)


def told(config: CreditConfig) -> str:
    """The method with its options in words."""
    values = {k: "full" if v is None else f"{v:g}" if isinstance(v, float) else v for k, v in config.options.items()}
    return f"{config.method} {', '.join(f'{name} {value}' for name, value in values.items())}".rstrip()


def discount_of(config: CreditConfig | None) -> Any:
    """The discount of a run's own method: a number or "auto"; the paper's where the method has none."""
    if config is None or config.method not in credit.METHODS:
        return BETA
    options = {**credit.METHODS[config.method].options, **config.options}
    return options.get("beta", options.get("gamma", BETA))


def options_of(function: Callable[..., Any], config: CreditConfig | None) -> dict[str, Any]:
    """The options of `closure` or `step_credit` as the run's own method has them; of another method the discount."""
    if config is None or config.method not in CLOSURES:
        return {"beta": discount_of(config)}
    options = {**credit.METHODS[config.method].options, **config.options}
    return {name: options[name] for name in inspect.signature(function).parameters if name in options}


def credits(group: RolloutGroup, estimators: Sequence[Named]) -> list[list[str] | str]:
    """The credit of every step, printed: one text per rollout and estimator, with a number per step.

    Where an estimator cannot be computed from the group, such as one of a module or with a critic, the reason instead.
    """
    process = EmpiricalProcess.from_group(group)
    shown: list[list[str] | str] = []
    for one in estimators:
        try:
            values = credit_of(process, one)
        except credit.CreditError as error:
            shown.append("its module is not run to draw a page" if ":" in one.method else str(error))
        else:
            rollouts = process.steps()[0]
            shown.append([" ".join(signed(v, DIGITS) for v in own.tolist()) for own in rollouts.split(values)[0]])
    return shown


def credit_of(process: EmpiricalProcess, one: Named) -> Floats:
    """What an estimator gives every step, (n,). Raises `CreditError` where it cannot be computed."""
    credit.check_options(one.method, dict(one.options))
    return credit.estimator_of(one.method)(process, **one.options)


def signed(value: float, digits: int) -> str:
    """A number with its sign; none where it rounds to 0."""
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text[1:] if float(text[1:]) == 0 else text


def plain(value: float, digits: int) -> str:
    """A number, without a plus."""
    return signed(value, digits).lstrip("+")
