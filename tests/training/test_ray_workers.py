"""Workers of Ray that do not come: the run says so in one line, and never waits for ever. Ray is a
stand-in here; the real one is in `tests/on_ray`."""

from __future__ import annotations

import asyncio
import socketserver
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.training.processes import ray_workers
from gem_ma.training.processes.chunks import Gone
from gem_ma.training.processes.ray_workers import RayWorker, edition, ray_pool
from tests.virtual_clock import run as run_virtually


class RayError(Exception): ...


class RayActorError(RayError):
    actor_init_failed = False


class Unavailable(RayActorError): ...


class InitFailed(RayActorError):
    actor_init_failed = True


FAILURES = SimpleNamespace(
    RayError=RayError,
    RayActorError=RayActorError,
    ActorUnavailableError=Unavailable,
    WorkerCrashedError=RayActorError,
    OutOfMemoryError=RayActorError,
    RayTaskError=RayError,
)
RAY = SimpleNamespace(exceptions=FAILURES)
Answer = Callable[[], Awaitable[dict[str, str]]]


def worker(answer: Answer, met: set[RayWorker]) -> RayWorker:
    made: list[int] = []

    def make() -> Any:
        made.append(1)
        call = SimpleNamespace(remote=answer)
        return SimpleNamespace(here=call, play=SimpleNamespace(remote=lambda *job: answer()))

    one = RayWorker(RAY, make, met)
    one.made = made  # type: ignore[attr-defined]
    return one


async def never() -> dict[str, str]:
    await asyncio.Event().wait()
    return edition()


async def at_once() -> dict[str, str]:
    return edition()


def failing(error: Exception) -> Answer:
    async def answer() -> dict[str, str]:
        await asyncio.sleep(1.0)
        raise error

    return answer


def test_a_worker_that_never_starts_ends_the_run_only_where_no_other_did() -> None:
    with pytest.raises(EngineError, match="no Ray worker started within 300 s"):
        run_virtually(worker(never, set()).ready())
    met: set[RayWorker] = set()
    there = worker(at_once, met)
    run_virtually(there.ready())

    async def waits() -> None:
        async with asyncio.timeout(10 * ray_workers.START_S):
            await worker(never, met).ready()

    with pytest.raises(TimeoutError):
        run_virtually(waits())
    # the last one that was there is lost as well: nobody is left to wait for
    there.actor.play.remote = lambda *job: failing(RayActorError("node died"))()
    there.make = lambda: SimpleNamespace(here=SimpleNamespace(remote=never))
    with pytest.raises(Gone, match="node died"):
        run_virtually(there.do(("", ())))
    with pytest.raises(EngineError, match="no Ray worker started within 300 s"):
        run_virtually(there.ready())


@pytest.mark.parametrize(
    ("error", "made", "seconds"),
    [
        (RayError("the environment of the worker\nwas not made"), 1, 1),
        (InitFailed("died\n  File x\n    import gem_ma\nModuleNotFoundError: no gem_ma"), 1, 1),
        (RayActorError("it was killed"), 3, 3),
    ],
    ids=["environment", "constructor", "killed"],
)
def test_a_worker_that_cannot_start_is_told_at_once(
    error: Exception, made: int, seconds: int
) -> None:
    one = worker(failing(error), set())

    async def starts() -> float:
        began = asyncio.get_running_loop().time()
        last = str(error).splitlines()[-1]
        with pytest.raises(EngineError, match=f"^a Ray worker cannot start: .*{last}$"):
            await one.ready()
        return asyncio.get_running_loop().time() - began

    assert run_virtually(starts())[0] == pytest.approx(seconds)
    assert len(one.made) == made  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["gem_ma", "python", "code"])
def test_a_worker_of_another_edition_is_refused(name: str) -> None:
    async def other() -> dict[str, str]:
        return {**edition(), "host": "far", name: "3.1.4"}

    said = (
        rf"the worker on far has .*{name}.* \(3.1(.4)? there, .* install the same on every machine"
    )
    with pytest.raises(ConfigError, match=said):
        run_virtually(worker(other, set()).ready())


@pytest.mark.parametrize(("workers", "free"), [(None, 0), (3, 2)])
def test_a_cluster_without_free_cores_is_told(
    workers: int | None, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[bool] = []

    def nothing(**options: Any) -> None: ...

    fake = SimpleNamespace(
        init=nothing,
        available_resources=lambda: {"CPU": float(free)} if free else {},
        cluster_resources=lambda: {"CPU": 2.0},
        shutdown=lambda: left.append(True),
    )
    monkeypatch.setitem(sys.modules, "ray", fake)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"no room for \w+ workers; each takes a core"):
        ray_pool("auto", "{}", "", workers)
    assert left == [True]


class Answers(socketserver.BaseRequestHandler):
    """A server that is no Ray: it says one thing, or nothing."""

    said = b""

    def handle(self) -> None:
        self.request.recv(100)
        self.request.sendall(self.said)
        if not self.said:
            time.sleep(0.5)


@pytest.mark.parametrize("kind", ["", "ray://"])
@pytest.mark.parametrize("said", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_nobody_waits_for_a_cluster_that_is_not_there(
    kind: str, said: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(ray_workers, "KNOCK_S", 0.2)
    handler = type("Handler", (Answers,), {"said": said})
    with socketserver.TCPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.handle_request)
        if said is None:
            server.server_close()
        else:
            thread.start()
        address = f"{kind}127.0.0.1:{server.server_address[1]}"
        with pytest.raises(ConfigError, match="no Ray cluster answers there") as caught:
            ray_pool(address, "{}", "", 1)
        assert len(str(caught.value).splitlines()) == 1
        if said is not None:
            thread.join()


def test_an_answer_that_comes_in_pieces_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Answers):
        def handle(self) -> None:
            self.request.recv(100)
            for byte in ray_workers.PREFACE[-9:]:  # the empty frame of settings
                self.request.sendall(bytes([byte]))
                time.sleep(0.01)

    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with socketserver.TCPServer(("127.0.0.1", 0), Slow) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        ray_workers.knock(f"127.0.0.1:{server.server_address[1]}")
        thread.join()


def test_a_cluster_that_encrypts_is_not_asked_in_the_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with socketserver.TCPServer(("127.0.0.1", 0), Answers) as silent:
        _, port = silent.server_address
        ray_workers.knock(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("address", "error", "line"),
    [
        ("127.0.0.1:99999", None, "no Ray cluster answers there .*largest is 65535"),
        ("auto", ConnectionError("no instance"), "no Ray cluster answers there .no instance"),
        ("auto", SystemExit(15), "no Ray cluster answers there"),
        ("auto", RuntimeError("Version mismatch:\n Ray: 1\n Ray: 2"), "mismatch: Ray: 1 Ray: 2$"),
        ("here", ValueError("Invalid address"), "--ray here: Invalid address"),
    ],
)
def test_what_ray_refuses_is_told_in_one_line(
    address: str, error: BaseException | None, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**options: Any) -> None:
        assert error is not None
        raise error

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=line):
        ray_pool(address, "{}", "", 1)
