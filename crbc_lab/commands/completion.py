"""`crbc completion bash|zsh`: a script by which a shell completes commands, options, their values and names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import gymnasium

import crbc_envs  # noqa: F401  registers the ids
from crbc_lab.commands.parse import Group
from crbc_rl.names import RUNS, names, studies

_SCRIPT = """_crbc() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" options='' words='' files=''
  case "${{COMP_WORDS[*]:1:COMP_CWORD-1}} " in
{cases}
  esac
  case "$cur" in
    -*) COMPREPLY=( $(compgen -W "$options" -- "$cur") ) ;;
    *) COMPREPLY=( $(compgen -W "$words" -- "$cur") $([ "$files" ] && compgen -f -- "$cur") ) ;;
  esac
}}
complete -o filenames -F _crbc crbc"""
_ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"


def script(shell: Literal["bash", "zsh"], commands: Mapping[str, Callable[..., None] | Group]) -> str:
    """The script. What comes with crbc is in it by name; runs are looked up when Tab is pressed."""
    cases = "\n".join(_cases(commands))
    return (_ZSH if shell == "zsh" else "") + _SCRIPT.format(cases=cases)


def _cases(commands: Mapping[str, Callable[..., None] | Group], before: str = "", more: str = "") -> Iterator[str]:
    """Branches by the words before the one that is completed, the longest first."""
    for name, command in commands.items():
        place = f"{before}{name} "
        if isinstance(command, Group):
            yield from _cases(command.commands, place, " ".join(studies()) if command.otherwise else "")
            continue
        options = _options(command)
        for option, choices in options.items():
            if choices is not None:  # it has a value
                yield f'    "{place}"*"{option} ") words="{" ".join(choices)}" files={"" if choices else 1} ;;'
        known = f'options="--help {" ".join(options)}" words="{_names(command)}"'
        yield f'    "{place}"*) {known} files=1 ;;'
    yield f'    "{before or " "}") options=--help words="{" ".join(commands)} {more}" ;;'


def _options(command: Callable[..., None]) -> dict[str, tuple[str, ...] | None]:
    """The options, and what they may be: None for a flag, nothing where it is free."""
    hints, options = get_type_hints(command, include_extras=True), {}
    for name, parameter in inspect.signature(command).parameters.items():
        if parameter.kind is not parameter.POSITIONAL_ONLY:
            named = [one.name for one in get_args(hints[name])[1:] if getattr(one, "name", None)]
            option = f"--{(named or [name])[0].replace('_', '-')}"
            options[option] = None if hints[name] is bool else _choices(hints[name])
    return options


def _choices(kind: Any) -> tuple[str, ...]:
    if get_origin(kind) is Literal:
        return tuple(map(str, get_args(kind)))
    return tuple(choice for part in get_args(kind) for choice in _choices(part))


def _names(command: Callable[..., None]) -> str:
    """What may be meant by the arguments that are no options."""
    hints, words = get_type_hints(command, include_extras=True), list[str]()
    for name, parameter in inspect.signature(command).parameters.items():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            words += _choices(hints[name])
            words += studies() if name == "study" else []
            words += [env for env in gymnasium.registry if env.startswith("CRBC-")] if name == "env" else []
            if name == "config" or command.__name__ in ("evaluate", "play", "model"):
                words += names()
            if name in ("config", "run") or command.__name__ in ("play", "model"):
                words.append(f"$(cd {RUNS} 2>/dev/null && ls)")
    return " ".join(words)
