"""Anchor-aware environments behind plain Gymnasium. Importing this package registers their ids.

import gymnasium, crbc_envs
env = gymnasium.make("CRBC-Sokoban-v0")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register

if TYPE_CHECKING:
    from crbc_envs.checking.check import check_anchor_env as check_anchor_env
    from crbc_envs.core import AnchorEnv as AnchorEnv
    from crbc_envs.vector.group import GroupVectorEnv as GroupVectorEnv
    from crbc_envs.wrappers import DiscreteActions as DiscreteActions

__all__ = ["AnchorEnv", "DiscreteActions", "GroupVectorEnv", "check_anchor_env"]

_LAZY = {
    "AnchorEnv": "crbc_envs.core",
    "DiscreteActions": "crbc_envs.wrappers",
    "GroupVectorEnv": "crbc_envs.vector.group",
    "check_anchor_env": "crbc_envs.checking.check",
}


def __getattr__(name: str) -> Any:
    """Names are imported when first used: `import crbc_envs` itself stays cheap."""
    if name not in _LAZY:
        raise AttributeError(f"module 'crbc_envs' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


# make_vec gives one group: num_envs copies of one task.
register(
    id="CRBC-Sokoban-v0",
    entry_point="crbc_envs.sokoban.env:SokobanEnv",
    vector_entry_point="crbc_envs.vector.group:sokoban_group",
)
register(
    id="CRBC-ALFWorld-v0",
    entry_point="crbc_envs.alfworld.env:AlfworldEnv",
    vector_entry_point="crbc_envs.vector.group:alfworld_group",
)
register(
    id="CRBC-WebShop-v0",
    entry_point="crbc_envs.webshop.env:WebShopEnv",
    vector_entry_point="crbc_envs.vector.group:webshop_group",
)
register(
    id="CRBC-WebShopSite-v0",
    entry_point="crbc_envs.webshop.site.env:WebShopSiteEnv",
    vector_entry_point="crbc_envs.vector.group:webshop_site_group",
)
