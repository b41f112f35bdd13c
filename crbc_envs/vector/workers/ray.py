"""Workers that are Ray actors, on as many machines as the cluster has."""

from __future__ import annotations

from typing import Any

from crbc_envs.vector.workers.worker import Host, Request, WorkerLost

try:
    import ray
    from ray.exceptions import GetTimeoutError, RayError, RayTaskError
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError('backend="ray" needs Ray: pip install "crbc[ray]"', name=missing.name) from missing


class RayWorker:
    """An actor that plays members. Ray is started if nobody did; who has a cluster calls `ray.init` first.

    The environment's module must be importable on every machine.
    """

    starting = 120.0

    def __init__(self) -> None:
        if not ray.is_initialized():
            ray.init()
        # An actor asks for no processor of its own, so that a replacement never waits for one to be returned.
        actor: Any = ray.remote(num_cpus=0, max_restarts=0, scheduling_strategy="SPREAD")(Host)
        self.actor = actor.remote()
        self.answers: Any = None

    def send(self, request: Request) -> None:
        try:
            self.answers = self.actor.answer.remote(*request)
        except RayError as error:
            raise WorkerLost(_reason(error)) from error

    def receive(self, timeout: float) -> tuple[int, Any]:
        try:
            answer: tuple[int, Any] = ray.get(self.answers, timeout=timeout)
        except GetTimeoutError as error:
            raise WorkerLost(f"no answer within {timeout:.3g} s") from error
        except RayTaskError as error:
            raise WorkerLost(_reason(error), str(error)) from error
        except RayError as error:
            raise WorkerLost(_reason(error)) from error
        return answer

    def close(self) -> None:
        self.answers = self.actor.close.remote()

    def kill(self, patience: float = 0.0) -> None:
        if patience and self.answers is not None:
            ray.wait([self.answers], timeout=patience)
        ray.kill(self.actor)


def _reason(error: RayError) -> str:
    return str(error).strip().rpartition("\n")[-1]
