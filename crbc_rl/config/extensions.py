"""Extensions: modules outside this package, which a config names as "module:attribute" and nobody runs unasked.

A config or a run folder may come from anybody, and to import a module is to run it. So a named module is only located
when a config is read; it is imported when it is used, and only with permission (`allow`).
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import reduce
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict

from crbc_envs.errors import DataError, RequirementError, install
from crbc_rl.errors import ConfigError, nearest

VARIABLE = "CRBC_ALLOW_IMPORT"
OURS = "crbc_envs"
"""The module that Gymnasium users write before our ids: "crbc_envs:CRBC-Sokoban-v0". It needs no permission."""


class Module(BaseModel):
    """Where a named module is. `sha256` is the digest of its file; of a package, of all its Python files."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    file: str
    sha256: str


def is_extension(name: str) -> bool:
    """Whether a name is "module:attribute", of a module other than ours."""
    module, colon, _ = name.partition(":")
    return bool(colon) and module != OURS


def allow() -> None:
    """Permit the import of named modules, in this process and in those that it starts."""
    os.environ[VARIABLE] = "1"


def allowed() -> bool:
    return os.environ.get(VARIABLE) == "1"


def locate(module: str, folders: Iterable[Path], key: str) -> Module:
    """Find a module in `folders`, then among what is installed, without running anything.

    Raises `ConfigError` naming `key` where there is none.
    """
    folders = [folder.resolve() for folder in folders]
    file = _find(module, folders)
    if file is None:
        places = " or ".join(dict.fromkeys(map(str, folders)))
        known = [path.stem for folder in folders for path in folder.glob("*.py")]
        hint = nearest(module, known) if known else ""
        raise ConfigError(f"{key}: no module {module!r} in {places}, and none is installed{hint}")
    return Module(file=str(file), sha256=_digest(file))


def load(name: str, modules: Mapping[str, Module], key: str) -> Any:
    """The object "module:attribute" (the attribute may be dotted), which the config's `key` names.

    Raises `ConfigError` without permission, and where the file, a package that it imports or the attribute is missing.
    """
    module, _, attribute = name.partition(":")
    imported = import_extension(module, modules, key)
    try:
        return reduce(getattr, attribute.split("."), imported)
    except AttributeError as error:
        known = [other for other in vars(imported) if not other.startswith("_")]
        raise ConfigError(f"{key}: {imported.__file__} has no {attribute!r}{nearest(attribute, known)}") from error


def called_with(found: Any, where: str, *arguments: str) -> Any:
    """What was `found` for a key. Raises `ConfigError` where it cannot be called with so many `arguments`."""
    try:
        inspect.signature(found).bind(*arguments)
    except (TypeError, ValueError) as error:
        wanted = f"a function of ({', '.join(arguments)})"
        raise ConfigError(f"{where} is no such function ({error}): name {wanted}") from error
    return found


def registered_id(env_id: str, modules: Mapping[str, Module], key: str) -> str:
    """An environment's id, registered: the module of "module:Id" is imported. See `load`."""
    if not is_extension(env_id):
        return env_id
    module, _, name = env_id.partition(":")
    import_extension(module, modules, key)
    return name


def unknown_id(name: str) -> str:
    """The message about an id that is not registered, with the nearest one that is."""
    import gymnasium  # here, because a config can be read without it

    module, _, bare = name.rpartition(":")
    near = get_close_matches(bare, gymnasium.registry, n=1, cutoff=0.75)
    known = near or [env_id for env_id in gymnasium.registry if env_id.startswith("CRBC-")]
    where = f"; {module} registers none of that name" if module else ""
    return f"no environment {name!r}{where}{nearest(bare, known, cutoff=0.75)}"


def typed_id(env_id: str) -> str:
    """The id that Gymnasium knows. Raises `ConfigError` where nothing is registered under it."""
    if is_extension(env_id):
        allow()  # whoever types the name of a module has permitted its import
    import gymnasium

    name: str = registered_id(env_id, {}, "the environment").rpartition(":")[2]
    if name not in gymnasium.registry:
        raise ConfigError(unknown_id(env_id))
    return name


@contextmanager
def environment_errors(what: str, name: str) -> Iterator[None]:
    """Turns what an environment refuses into a `ConfigError` in one line that begins with `what`."""
    import gymnasium

    try:
        yield
    except (ConfigError, DataError, RequirementError):
        raise
    except (TypeError, ValueError, ImportError, gymnasium.error.Error) as error:
        reason = str(error).partition("\n")[0].partition(" was raised from the environment creator")[0]
        raise ConfigError(f"{what}: {reason.removeprefix(f'{name}: ')}") from error


def import_extension(module: str, modules: Mapping[str, Module], key: str) -> ModuleType:
    """Import a named module from its place in `modules`, or where it is found now. See `load`."""
    known = modules.get(module) or locate(module, [Path.cwd()], key)
    file = Path(known.file)
    if not file.is_file():
        here = _find(module, [Path.cwd()])
        if here is None:
            raise ConfigError(
                f"{key}: {file} is missing, the file of the module {module!r}: put it back, or run the command in the "
                "folder that has it now"
            )
        file = here
    if not allowed():
        raise ConfigError(
            f"{key} names the module {module!r}, so {file} would run: allow it with --allow-import, or {VARIABLE}=1"
        )
    if module not in sys.modules and _digest(file) != known.sha256:
        warnings.warn(f"{file} has changed since {key} was read", stacklevel=2)
    root = str(file.parents[module.count(".") + (file.name == "__init__.py")])
    if root not in sys.path:
        sys.path.insert(0, root)
    try:
        imported = import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{key}: {file} needs the module {error.name!r}, which is not installed: {install(error.name or module)}"
        ) from error
    except SyntaxError as error:
        raise ConfigError(f"{key}: {error.filename}, line {error.lineno}: {error.msg}") from error
    except SystemExit as error:
        raise ConfigError(f"{key}: {file} ended the program (exit) while it was imported") from error
    if imported.__file__ is None or Path(imported.__file__).resolve() != file.resolve():
        raise ConfigError(f"{key}: {module!r} is {imported.__file__} already, not {file}: rename one of the two")
    return imported


def _find(module: str, folders: list[Path]) -> Path | None:
    """The file of a module, in `folders` or installed. A folder is searched as it is now, without Python's caches."""
    first, *rest = module.split(".")
    if not all(part.isidentifier() for part in (first, *rest)):
        return None
    for folder in folders:
        PathFinder.invalidate_caches()
        spec = _inside(PathFinder.find_spec(first, [str(folder)]), first, rest)
        if spec is not None:
            return spec
    try:
        return _inside(find_spec(first), first, rest)
    except ValueError:  # a module without a spec, such as __main__
        return None


def _inside(spec: ModuleSpec | None, name: str, rest: list[str]) -> Path | None:
    for part in rest:
        places = spec.submodule_search_locations if spec else None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(places)) if places else None
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    return Path(spec.origin).resolve()


def _digest(file: Path) -> str:
    files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    digest = hashlib.sha256()
    for path in files:
        source = path.read_bytes()
        digest.update(f"{path.relative_to(file.parent)} {len(source)}\n".encode() + source)
    return digest.hexdigest()
