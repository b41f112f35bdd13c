"""The test of examples/verl_agent.py, in an environment of its own: scripts/test_verl_agent.sh.

verl-agent imports every domain that it knows. Where a fork's own ones have requirements, their names are declared.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

NAME = "agent_system.environments.env_package.discovery"
made: Any = ModuleType(f"{NAME}.actions")
made.all_plausible_action_mapper = None
sys.modules |= {NAME: ModuleType(NAME), made.__name__: made}
