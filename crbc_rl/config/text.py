"""YAML texts: no objects of Python, and no key twice."""

from __future__ import annotations

from collections.abc import Hashable
from copy import deepcopy
from functools import lru_cache
from typing import Any

import yaml

from crbc_rl.errors import ConfigError


def parse_yaml(text: str, complaint: str) -> Any:
    """The value of a YAML text, the caller's own. Raises `ConfigError` that begins with `complaint`."""
    try:
        return deepcopy(_parsed(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        tabs = "; indent with spaces, not tabs" if "'\\t'" in str(error.problem) else ""
        raise ConfigError(f"{complaint}: {place}{error.problem or error.context}{tabs}") from error
    except (yaml.YAMLError, ValueError) as error:  # characters or dates that YAML does not know
        raise ConfigError(f"{complaint}: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ConfigError(f"{complaint}: it is nested too deeply") from error


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Any:
    """A study reads one config for each of a hundred trainings."""
    return _Loader(text).get_single_data()


class _Loader(yaml.SafeLoader):
    """YAML's safe loader. It refuses a key that is written twice, and numbers to the base of 60."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.ScalarNode) and ":" in node.value and node.tag.endswith((":int", ":float")):
            _refuse(node, f"{node.value} would be read as a number to the base of 60; for a text, write it in quotes")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    _refuse(node, f"the key {key.value!r} stands there twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _refuse(node: yaml.Node, problem: str) -> None:
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
