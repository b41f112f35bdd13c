"""The option `--allow-import` of the commands that read a config."""

from __future__ import annotations


def permit(allow_import: bool) -> None:
    """Permit the import of the modules that a config names, where that is asked for."""
    if allow_import:
        from crbc_rl.config import extensions

        extensions.allow()
