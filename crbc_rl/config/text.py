"""YAML texts of others, within bounds: their length, their depth, and what their aliases stand for."""

from __future__ import annotations

from collections.abc import Hashable
from copy import deepcopy
from functools import lru_cache
from typing import Any

import yaml

from crbc_rl.errors import ConfigError

LONGEST_TEXT = 1 << 20
"""Bytes of a config."""
MOST_VALUES = 20_000
"""Keys and values of a config, with those that its aliases repeat."""
DEEPEST = 50
KINDS = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "seq", "map", "merge")
)


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


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """A study reads one config for each of a hundred trainings."""
    return _Loader(text).get_single_data()


class _Loader(yaml.SafeLoader):
    """YAML's safe loader within bounds, which also refuses a key that is written twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0
        self._sizes: dict[int, tuple[int, int]] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._nodes += 1
        if self._nodes > MOST_VALUES:
            raise yaml.YAMLError(f"it has more than {MOST_VALUES:,} keys and values")
        return super().compose_node(parent, index)

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            size, height = self._measure(node)
            if size > MOST_VALUES or height > DEEPEST:
                raise yaml.YAMLError(f"with its aliases it has more than {MOST_VALUES:,} values, or {DEEPEST} levels")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    _refuse(node, f"the key {key.value!r} stands there twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def _measure(self, node: yaml.Node) -> tuple[int, int]:
        """The number of values below a node, aliases counted where they stand, and its height."""
        if id(node) not in self._sizes:
            if node.tag not in KINDS:
                _refuse(
                    node, f"a {node.tag.rpartition(':')[2]} is no value of a config; for a text, write it in quotes"
                )
            if isinstance(node, yaml.ScalarNode):
                self._sizes[id(node)] = (1, 1)
                if not _is_text(node.value):
                    _refuse(node, "a text with a null character or half a character")
                return 1, 1
            self._sizes[id(node)] = (0, DEEPEST + 1)  # until it is known, for an alias of what it stands in
            pairs = isinstance(node, yaml.MappingNode)
            parts = [part for pair in node.value for part in pair] if pairs else node.value
            sizes = [self._measure(part) for part in parts]
            height = 1 + max((height for _, height in sizes), default=0)
            self._sizes[id(node)] = (1 + sum(size for size, _ in sizes), height)
        return self._sizes[id(node)]


def _is_text(value: str) -> bool:
    return "\0" not in value and not any("\ud800" <= symbol <= "\udfff" for symbol in value)


def _refuse(node: yaml.Node, problem: str) -> None:
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
