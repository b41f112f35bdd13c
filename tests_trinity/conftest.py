"""The tests of the adapter for Trinity-RFT, in an environment of their own: scripts/test_beside.sh.

Trinity imports vLLM for the prompts of its engine. No engine is there, so these names are declared, and none is called.
"""

from __future__ import annotations

import sys
from types import ModuleType

NAMES = {
    "vllm": [],
    "vllm.config": ["ModelConfig"],
    "vllm.entrypoints": [],
    "vllm.entrypoints.chat_utils": [
        "ChatTemplateContentFormat",
        "ConversationMessage",
        "parse_chat_messages",
        "parse_chat_messages_async",
    ],
    "vllm.inputs": ["MultiModalDataDict"],
}

for module, names in NAMES.items():
    sys.modules[module] = made = ModuleType(module)
    for name in names:
        setattr(made, name, type(name, (), {}))
