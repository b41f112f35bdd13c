"""Anchor-aware environments behind plain Gymnasium. Importing this package registers their ids.

import gymnasium
env = gymnasium.make("crbc_envs:CRBC-Sokoban-v0")
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register

if TYPE_CHECKING:
    from crbc_envs.anchor_wrapper import AnchorWrapper as AnchorWrapper
    from crbc_envs.chat import ChatEpisode as ChatEpisode
    from crbc_envs.checking.check import AnchorEnvError as AnchorEnvError
    from crbc_envs.checking.check import check_anchor_env as check_anchor_env
    from crbc_envs.checking.splits import measure_splits as measure_splits
    from crbc_envs.core import AnchorEnv as AnchorEnv
    from crbc_envs.errors import BrowserError as BrowserError
    from crbc_envs.errors import DataError as DataError
    from crbc_envs.errors import EnvError as EnvError
    from crbc_envs.errors import RequirementError as RequirementError
    from crbc_envs.group_chat import GroupChat as GroupChat
    from crbc_envs.prompts import Prompt as Prompt
    from crbc_envs.prompts import PromptWindow as PromptWindow
    from crbc_envs.prompts import View as View
    from crbc_envs.storage.rollouts import read_groups as read_groups
    from crbc_envs.storage.rollouts import read_recording as read_recording
    from crbc_envs.storage.rollouts import write_groups as write_groups
    from crbc_envs.tasks import Task as Task
    from crbc_envs.tasks import TaskPanel as TaskPanel
    from crbc_envs.vector.group import GroupVectorEnv as GroupVectorEnv
    from crbc_envs.vector.members import member_info as member_info
    from crbc_envs.vector.workers.worker import WorkerError as WorkerError
    from crbc_envs.wrappers import DiscreteActions as DiscreteActions
    from crbc_envs.wrappers import VectorDiscreteActions as VectorDiscreteActions

_NAMES = {
    "crbc_envs.anchor_wrapper": "AnchorWrapper",
    "crbc_envs.chat": "ChatEpisode",
    "crbc_envs.checking.check": "AnchorEnvError check_anchor_env",
    "crbc_envs.checking.splits": "measure_splits",
    "crbc_envs.core": "AnchorEnv",
    "crbc_envs.errors": "BrowserError DataError EnvError RequirementError",
    "crbc_envs.group_chat": "GroupChat",
    "crbc_envs.prompts": "Prompt PromptWindow View",
    "crbc_envs.storage.rollouts": "read_groups read_recording write_groups",
    "crbc_envs.tasks": "Task TaskPanel",
    "crbc_envs.vector.group": "GroupVectorEnv",
    "crbc_envs.vector.members": "member_info",
    "crbc_envs.vector.workers.worker": "WorkerError",
    "crbc_envs.wrappers": "DiscreteActions VectorDiscreteActions",
}
_LAZY = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    """Names are imported when first used: `import crbc_envs` itself stays cheap."""
    if name not in _LAZY:
        raise AttributeError(f"module 'crbc_envs' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__


def _one_group(env_id: str, num_envs: int, **kwargs: Any) -> Any:
    from crbc_envs.vector.group import GroupVectorEnv

    return GroupVectorEnv(env_id, num_groups=1, group_size=num_envs, **kwargs)


def _register(env_id: str, entry_point: str) -> None:
    """Register an environment whose `gymnasium.make_vec` gives one group: num_envs copies of one task."""
    register(id=env_id, entry_point=entry_point, vector_entry_point=partial(_one_group, env_id))


_register("CRBC-Sokoban-v0", "crbc_envs.sokoban.env:SokobanEnv")
_register("CRBC-ALFWorld-v0", "crbc_envs.alfworld.env:AlfworldEnv")
_register("CRBC-WebShop-v0", "crbc_envs.webshop.env:WebShopEnv")
_register("CRBC-WebShopSite-v0", "crbc_envs.webshop.site.env:WebShopSiteEnv")
_register("CRBC-FrozenLake-v0", "crbc_envs.frozenlake.env:FrozenLake")
_register("CRBC-BabyAI-v0", "crbc_envs.babyai.env:BabyAI")
