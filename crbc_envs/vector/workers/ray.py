"""Workers that are Ray actors. They may run on every machine of a Ray cluster."""

from __future__ import annotations

from typing import Any

from crbc_envs.errors import RequirementError, install_extra
from crbc_envs.vector.workers.worker import MemberServer, Request, WorkerLost

try:
    import ray
    from ray.exceptions import GetTimeoutError, RayError, RayTaskError
except ModuleNotFoundError as missing:
    raise RequirementError(f'backend="ray" needs Ray, which is not installed: {install_extra("ray")}') from missing


class RayWorker:
    """A Ray actor that runs members.

    Starts Ray if it is not running. To use an existing cluster, call `ray.init` first. The environment's
    module must be importable on every machine.
    """

    startup_time = 120.0

    def __init__(self) -> None:
        if not ray.is_initialized():
            ray.init()
        # An actor reserves no CPU. A replacement would otherwise wait until Ray has freed the CPU of the lost actor.
        actor: Any = ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy="SPREAD")(MemberServer)
        self.actor = actor.remote()
        self.pending: Any = None

    def send(self, request: Request) -> None:
        try:
            self.pending = self.actor.handle.remote(*request)
        except RayError as error:
            raise WorkerLost(_reason(error)) from error

    def receive(self, timeout: float) -> tuple[int, Any]:
        try:
            answer: tuple[int, Any] = ray.get(self.pending, timeout=timeout)
        except GetTimeoutError as error:
            raise WorkerLost(f"no answer within {timeout:.3g} s") from error
        except RayTaskError as error:
            raise WorkerLost(_reason(error), str(error)) from error
        except RayError as error:
            raise WorkerLost(_reason(error)) from error
        return answer

    def close(self) -> None:
        self.pending = self.actor.close.remote()

    def kill(self, grace: float = 0.0) -> None:
        if grace and self.pending is not None:
            ray.wait([self.pending], timeout=grace)
        ray.kill(self.actor)


def _reason(error: RayError) -> str:
    """The last line of Ray's message, which names the cause."""
    return str(error).strip().rpartition("\n")[-1]
