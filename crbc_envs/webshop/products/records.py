"""Records of JSON files that others wrote: every field is taken with its type, or refused with its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crbc_envs.storage.files import shown


class Record:
    """One object of a JSON file. `name` is what messages call the fields' file, such as "items_human_ins ".

    All methods raise a `ValueError` that begins with the field. So does the constructor, for what is no object.
    """

    __slots__ = ("_name", "_values")

    def __init__(self, value: Any, name: str = "") -> None:
        if not isinstance(value, Mapping):
            raise ValueError(f"{name or 'it '}is no object: {shown(value)}")
        self._values, self._name = value, name

    def __contains__(self, field: str) -> bool:
        return field in self._values

    def raw(self, field: str) -> Any:
        """The value, of any type. Without a value it is missing, which is an error."""
        try:
            return self._values[field]
        except KeyError:
            raise ValueError(f"{self._name}{field}: it is missing") from None

    def text(self, field: str) -> str:
        value = self.raw(field)
        if not isinstance(value, str):
            raise ValueError(f"{self._name}{field}: {shown(value)} is no text")
        return value

    def optional_text(self, field: str) -> str | None:
        """A text, or None for null."""
        return None if self._values.get(field) is None else self.text(field)

    def texts(self, field: str) -> tuple[str, ...]:
        """A list of texts. A text is none, although Python would give its letters."""
        values = as_list(self.raw(field), f"{self._name}{field}")
        for value in values:
            if not isinstance(value, str):
                raise ValueError(f"{self._name}{field}: {shown(value)} is no text")
        return tuple(values)


def as_list(value: Any, field: str) -> Sequence[Any]:
    """The value, which must be a list or a tuple. Raises `ValueError`."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"{field}: {shown(value)} is no list")
    return value
