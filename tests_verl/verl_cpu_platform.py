"""A platform "cpu" for verl 0.9.1, for tests. It has to be there before the rest of verl is imported, so it is a module
of its own: `VERL_USE_EXTERNAL_MODULES=verl_cpu_platform,verl_cpu,...`. See `verl_cpu`."""

from __future__ import annotations

import types
from typing import Any

import torch
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.plugin.platform.platform_manager import PlatformRegistry


class Device(types.ModuleType):
    """torch.cpu with what verl asks of torch.cuda: figures of memory are 0, and caches are never there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name, lambda *a, **k: 0)

    def get_device_name(self, *_: Any) -> str:
        return "CPU"

    def is_available(self) -> bool:
        return False

    def set_device(self, *_: Any) -> None:
        pass

    def mem_get_info(self, *_: Any) -> tuple[int, int]:
        return 0, 1

    def current_device(self) -> str:
        return "cpu"


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformCUDA):
    device_name = "cpu"
    vendor_name = "none"
    device_module = Device("cpu")

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return True

    def current_device(self) -> str:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: Any) -> None:
        pass

    def synchronize(self, device_index: Any = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: Any) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None
