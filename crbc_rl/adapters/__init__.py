"""Other people's trainers: our environments and step credit in each one's own idiom. See docs/trainers.md.

An adapter imports with the core package alone, without the learner and what it needs.
"""

from __future__ import annotations

import re
from typing import Any

from crbc_envs.errors import RequirementError, install_extra, version
from crbc_rl.errors import ConfigError


def require(package: str, least: str, below: str, extra: str) -> None:
    """Raise `RequirementError` unless an installed version of `package` lies in the tested range [least, below)."""
    installed = version(package)
    if installed is None:
        raise RequirementError(f"this adapter needs {package}, which is not installed: {install_extra(extra)}")
    if not _numbers(least) <= _numbers(installed) < _numbers(below):
        raise RequirementError(
            f"this adapter was tested with {package} from {least} to below {below}, and {installed} is installed: "
            f"{install_extra(extra)}"
        )


def refuse_frames(env: Any, trainer: str) -> None:
    """Raise `ConfigError` for an environment that shows frames: its prompts would have no observation."""
    if len(env.observation_space.shape or ()) > 2:
        raise ConfigError(f"{trainer} takes no frames here: give the environment observation='text'")


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: (1, 16, 0) of "1.16.0rc1"."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()
