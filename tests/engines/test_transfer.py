"""`route: nccl` without NCCL: the servers are fakes that sample for real, and vLLM's trainer side is
a stand-in that asks for what vLLM 0.32's does, in its order. What breaks in the middle leaves no
server paused, and nothing is sampled from weights that did not come whole."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.engines.vllm import transfer
from gem_ma.engines.vllm.engine import VLLM
from gem_ma.kernel.errors import ConfigError, EngineError
from tests.engines import test_replicas
from tests.engines.test_replicas import asked, gap, learner_of, move, request, until
from tests.vllm_server import FakeVllm, Wire

quick, model = test_replicas.quick, test_replicas.model
ROUND = [
    "/start_weight_update",
    "/update_weights",
    "/finish_weight_update",
    "/reset_prefix_cache",
    "/update_weight_version",
]
FIRST = ["/pause", "/get_world_size", "/init_weight_transfer_engine", *ROUND, "/resume"]
LATER = ["/pause", *ROUND, "/resume"]


class Meta(NamedTuple):
    name: str
    dtype: Any
    shape: tuple[int, ...]


@dataclass
class Opening:
    master_address: str
    master_port: int
    world_size: int
    rank: int


class Trainer:
    """Asks the servers for what vLLM's does, with a `Wire` for NCCL."""

    wire: Wire

    def __init__(self, client: Any, source: Any, group: threading.Barrier) -> None:
        self.client, self.source, self.group = client, source, group

    @classmethod
    def trainer_init(cls, opening: Opening, *, client: Any, source: Any) -> Trainer:
        assert opening.rank == 0 and opening.master_address == "127.0.0.1"
        group = cls.wire.begin(opening.world_size)
        with ThreadPoolExecutor(1) as pool:  # as there: the servers wait for the trainer
            joined = pool.submit(
                client.init_weight_transfer_engine,
                {"rank_offset": 1, "world_size": opening.world_size},
            )
            joined.result()
        return cls(client, source, group)

    def send_weights(self) -> None:
        names = [meta.name for meta in self.source.metadata()]
        assert names == [name for name, _ in self.source]
        self.client.start_weight_update()
        pool = ThreadPoolExecutor(1)
        try:
            update = pool.submit(self.client.update_weights, {"names": names})
            self.wire.send(self.group, {name: weight.clone() for name, weight in self.source})
            update.result()
        finally:
            pool.shutdown(wait=False)
        self.client.finish_weight_update()

    def shutdown(self) -> None:
        self.group.abort()  # of this group alone


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    made = Wire()
    monkeypatch.setattr(Trainer, "wire", made, raising=False)
    names = ("vllm", "vllm.distributed", "vllm.distributed.weight_transfer")
    parts = {name: ModuleType(name) for name in (*names, f"{names[-1]}.nccl_engine")}
    parts[names[-1]].ParamMeta = Meta  # type: ignore[attr-defined]
    parts[names[-1]].WeightTransferTrainerFactory = Trainer  # type: ignore[attr-defined]
    parts[f"{names[-1]}.nccl_engine"].NCCLTrainerInitInfo = Opening  # type: ignore[attr-defined]
    for name, part in parts.items():
        monkeypatch.setitem(sys.modules, name, part)
    monkeypatch.setattr(transfer, "check_device", lambda where, device: None)
    yield made
    made.group.abort()  # what still waits in it


@pytest.fixture
def servers(model: Path, wire: Wire) -> Iterator[list[FakeVllm]]:
    with ExitStack() as stack:
        some = [stack.enter_context(FakeVllm(model)) for _ in range(2)]
        for server in some:
            server.wire = wire
        yield some


def engine_at(servers: list[FakeVllm], model: Path, **options: Any) -> VLLM:
    # nothing here hangs, so no busy machine is taken for one that does
    usual = {"route": "nccl", "timeout_s": 60.0, "wall_s": 60.0}
    return test_replicas.engine_at(servers, model, **{**usual, **options})


def since(server: FakeVllm, count: int) -> list[str]:
    """What it was asked for since then, samples, names and models aside."""
    paths = [path.partition("?")[0] for path in server.paths[count:]]
    return [path for path in paths if not path.startswith("/v1") and path != "/weight_info"]


@pytest.mark.longest
def test_all_servers_take_part_in_one_transfer_and_hold_the_weights(
    servers: list[FakeVllm], model: Path
) -> None:
    engine = engine_at(servers, model)
    learner = learner_of(engine)
    for seed, expected in ((1, LATER), (2, LATER)):
        counts = [len(server.paths) for server in servers]
        move(learner, seed)
        numbers = learner.publish()
        assert numbers["replicas"] == 2 and numbers["parity_gap"] <= 1e-4
        for server, count in zip(servers, counts, strict=True):
            assert since(server, count) == expected and not server.paused
    # the first transfer was before anything was learned: who takes none is found out at once
    # (and the look whether two addresses are one server before it)
    assert all(since(server, 0)[2 : 2 + len(FIRST)] == FIRST for server in servers)
    assert [server.rank for server in servers] == [1, 2]
    assert len({server.name for server in servers}) == 1
    replies = asked(engine, *map(request, range(12)))
    assert gap(learner, replies) <= 1e-4 and {reply.version for reply in replies} == {2}


@pytest.mark.longest
@pytest.mark.parametrize("path", ["/pause", "/update_weights", ROUND[-1]])
def test_one_that_fails_in_the_middle_is_set_aside_and_comes_back_with_the_next_publish(
    servers: list[FakeVllm], model: Path, path: str
) -> None:
    engine = engine_at(servers, model)
    learner = learner_of(engine)
    old = servers[1].name
    servers[1].refuses.add(path)
    move(learner, 1)
    assert learner.publish()["replicas"] == 1
    assert not any(server.paused for server in servers)
    assert servers[1].name == old != servers[0].name
    assert gap(learner, asked(engine, *map(request, range(12)))) <= 1e-4

    servers[1].refuses.clear()
    move(learner, 2)
    assert learner.publish()["replicas"] == 2
    assert gap(learner, asked(engine, *map(request, range(12)))) <= 1e-4
    assert not any(server.paused for server in servers)


@pytest.mark.long
@pytest.mark.parametrize("path", ["/pause", *ROUND])
def test_a_single_one_that_fails_ends_the_publish_in_one_line_and_goes_on(
    servers: list[FakeVllm], model: Path, path: str
) -> None:
    engine = engine_at(servers[:1], model)
    learner = learner_of(engine)
    servers[0].refuses.add(path)
    move(learner)
    with pytest.raises(EngineError, match=rf"127.0.0.1:\d+: {path} failed: scripted"):
        learner.publish()
    assert not servers[0].paused
    with pytest.raises(EngineError, match="not published"):
        asked(engine, request())
    servers[0].refuses.clear()
    assert learner.publish()["parity_gap"] <= 1e-4
    assert gap(learner, asked(engine, request())) <= 1e-4


@pytest.mark.long
def test_a_server_that_refuses_ends_a_transfer_that_waits_for_it_for_ever(
    servers: list[FakeVllm], model: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL wakes nobody: the trainer's side is left behind in a thread."""
    engine = engine_at(servers[:1], model)
    learner = learner_of(engine)
    left, end = threading.Event(), threading.Event()

    def waits(group: Any, weights: Any) -> None:
        left.set()
        end.wait()

    monkeypatch.setattr(wire, "send", waits)
    servers[0].refuses.add("/update_weights")
    move(learner)
    try:
        with pytest.raises(EngineError, match="/update_weights failed"):
            learner.publish()
        assert left.is_set() and not servers[0].paused
    finally:
        end.set()


@pytest.mark.long
def test_a_transfer_that_never_ends_is_given_up(
    servers: list[FakeVllm], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_at(servers[:1], model)
    learner = learner_of(engine)
    end = threading.Event()
    monkeypatch.setattr(Trainer, "send_weights", lambda self: end.wait())
    monkeypatch.setattr(transfer, "PATIENCE_S", 0.05)
    move(learner)
    try:
        with pytest.raises(EngineError, match=r"transfer of weights did not end in 0.05 s"):
            learner.publish()
        assert not servers[0].paused
    finally:
        end.set()


@pytest.mark.long
def test_what_vllm_raises_is_one_line(
    servers: list[FakeVllm], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_at(servers, model)
    learner = learner_of(engine)

    def broken(self: Trainer) -> None:
        raise RuntimeError("NCCL error: unhandled cuda error\nand more")

    monkeypatch.setattr(Trainer, "send_weights", broken)
    move(learner)
    with pytest.raises(EngineError, match=r"transfer of weights failed: .*unhandled cuda error$"):
        learner.publish()
    assert not any(server.paused for server in servers)


@pytest.mark.longest
def test_a_restarted_server_waits_for_the_next_publish(
    servers: list[FakeVllm], model: Path
) -> None:
    engine = engine_at(servers, model)
    learner = learner_of(engine)
    move(learner, 1)
    learner.publish()
    servers[1].restart()
    replies = until(engine, lambda: len(engine.backend.here) == 1, *map(request, range(12)))  # type: ignore[attr-defined]
    assert gap(learner, replies) <= 1e-4
    counts = [len(server.paths) for server in servers]
    move(learner, 2)
    assert learner.publish()["replicas"] == 2
    # a group of its own again, for both, once
    assert all(
        "/init_weight_transfer_engine" in since(*pair) for pair in zip(servers, counts, strict=True)
    )
    counts = [len(server.paths) for server in servers]
    learner.publish()
    assert all(since(*pair) == LATER for pair in zip(servers, counts, strict=True))
    assert gap(learner, asked(engine, *map(request, range(12)))) <= 1e-4


@pytest.mark.long
def test_what_it_needs_is_told_in_one_line(
    servers: list[FakeVllm], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"route nccl publishes all weights; leave lora out"):
        engine_at(servers, model, lora={"rank": 2})
    with pytest.raises(ConfigError, match=r"route: nccl sends weights to a server; set base_url"):
        VLLM(str(model), policy="main", route="nccl")
    with pytest.raises(ConfigError, match=r"a learner in parts .* route: full"):
        engine_at(servers, model).divided(test_replicas.SAMPLING, None)
    servers[0].dev = False
    with pytest.raises(ConfigError, match=r"takes no weights"):
        learner_of(engine_at(servers[:1], model))
    monkeypatch.setitem(sys.modules, "vllm.distributed.weight_transfer", None)
    with pytest.raises(ConfigError, match=r"this environment needs vLLM 0.32 or newer .*pip"):
        learner_of(engine_at(servers, model))
    monkeypatch.undo()
    for device, problem in (("cpu", "device is cpu"), ("cuda", "there is none")):
        with pytest.raises(ConfigError, match=rf"from a CUDA device, and {problem}; set device"):
            learner_of(engine_at(servers, model, device=device))


@pytest.mark.longest
def test_a_server_that_restarts_behind_a_transfer_costs_no_reply(
    servers: list[FakeVllm], model: Path
) -> None:
    engine = engine_at(servers, model)
    learner = learner_of(engine)
    learner.publish()
    honest = servers[1]._resume

    def restarts(body: dict[str, Any]) -> Any:
        made = honest(body)
        servers[1].restart()
        return made

    servers[1]._resume = restarts  # type: ignore[method-assign]
    move(learner)
    assert learner.publish()["replicas"] == 1
    assert gap(learner, asked(engine, *map(request, range(12)))) <= 1e-4
