"""Several vLLM servers with the same weights, each a fake that samples for real: where requests go,
what is done with servers that die, hang, lie or come back with other weights."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch

from gem_ma.engines.api.openai import OpenAI
from gem_ma.engines.base import Policy
from gem_ma.engines.local.transformers import Transformers
from gem_ma.engines.vllm import replicas as replica_module
from gem_ma.engines.vllm.backend import Adapter, Draw, apart
from gem_ma.engines.vllm.engine import VLLM
from gem_ma.kernel.errors import ConfigError, EndpointError, EngineError
from gem_ma.kernel.types import Attempt, Malformed, Message, Reply, Request, Sampling, ToolCall
from gem_ma.training.learner import probes
from gem_ma.training.train import open_learner
from tests.asking import at_once
from tests.fault_server import Answer, status
from tests.vllm_server import FakeVllm

SAMPLING = Sampling(max_tokens=6)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that were away return soon, and a check asks little."""
    monkeypatch.setattr(probes, "DRAWS", 1)
    monkeypatch.setattr(probes, "PROBE_TOKENS", 6)
    monkeypatch.setattr(replica_module, "PAUSE_S", 0.05)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from gem_ma.engines.local.tiny import make_model

    path = tmp_path_factory.mktemp("models") / "untied"
    make_model(path, "kuhn_poker", size="word", seed=1, tied=False, positions=256)
    return path


@pytest.fixture
def servers(model: Path) -> Iterator[list[FakeVllm]]:
    with ExitStack() as stack:
        yield [stack.enter_context(FakeVllm(model)) for _ in range(2)]


def engine_at(servers: list[FakeVllm], model: Path, **options: Any) -> VLLM:
    urls = [server.url for server in servers]
    usual = {"base_url": urls, "policy": "main", "timeout_s": 5.0, "wall_s": 10.0}
    return VLLM(str(model), **{**usual, **options})


def request(number: int = 0, turn: int = 0) -> Request:
    talk = (Message(f"card K {'bet ' * turn}"),)
    where = f"train/0#{number}/player"
    return Request("a", talk, sampling=SAMPLING, seed=number, turn=turn, conversation=where)


def asked(engine: VLLM, *requests: Request) -> list[Reply]:
    return at_once(*((engine, one) for one in requests))


def until(engine: VLLM, condition: Callable[[], object], *then: Request) -> list[Reply]:
    """Plays until that is so, then these requests."""

    async def every() -> list[Reply]:
        for number in itertools.count():
            await engine.sample(request(number))
            if condition():
                break
            await asyncio.sleep(0.02)
        return [await engine.sample(one) for one in then]

    return asyncio.run(asyncio.wait_for(every(), 20))


def plays(server: FakeVllm) -> int:
    return len(server.sampled)


def learner_of(engine: VLLM) -> Any:
    return open_learner(Policy("main", engine, SAMPLING))


def move(learner: Any, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in learner.parameters.values():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.1)


def gap(learner: Any, replies: list[Reply]) -> float:
    """Nats between what was sampled and what the learner's weights say."""
    scored = learner.score([(reply.prompt_ids, reply.token_ids) for reply in replies])
    return max(
        abs(one - other)
        for reply, row in zip(replies, scored, strict=True)
        for one, other in zip(reply.logprobs, row, strict=True)
    )


# -- where requests go ---------------------------------------------------------------------------


@pytest.mark.longest
def test_conversations_stay_and_a_server_that_goes_moves_its_own_alone(
    servers: list[FakeVllm], model: Path
) -> None:
    third = FakeVllm(model)
    with third:
        several = [*servers, third]
        engine = engine_at(several, model)

        async def places() -> list[int]:
            """Of each of 30 conversations the server that answered it."""
            result = []
            for number in range(30):
                before = list(map(plays, several))
                await engine.sample(request(number))
                after = list(map(plays, several))
                result.append([a - b for a, b in zip(after, before, strict=True)].index(1))
            return result

        async def both() -> tuple[list[int], list[int]]:
            return await places(), await places()

        asked(engine, request())  # when it is opened all of them are asked
        first, again = asyncio.run(both())
        assert first == again and min(Counter(first).values()) >= 4 and len(set(first)) == 3
        third.dead = True
        moved = asyncio.run(places())
        assert all(new == old for new, old in zip(moved, first, strict=True) if old != 2)
        assert 2 not in moved


@pytest.mark.long
@pytest.mark.parametrize("how", ["dead", "hangs", "refuses"])
def test_a_server_that_fails_costs_no_reply_and_changes_none(
    servers: list[FakeVllm], model: Path, how: str
) -> None:
    engine = engine_at(servers, model, timeout_s=2.0, attempts=2)
    before = asked(engine, *map(request, range(12)))
    if how == "refuses":
        servers[1].refuses.add("/v1/completions")
    else:
        setattr(servers[1], how, True)
    after = asked(engine, *map(request, range(12)))
    assert [reply.token_ids for reply in after] == [reply.token_ids for reply in before]
    assert {attempt.kind for reply in after for attempt in reply.attempts} == {"moved"}


@pytest.mark.long
def test_a_server_that_comes_back_is_sampled_from_again(
    servers: list[FakeVllm], model: Path
) -> None:
    engine = engine_at(servers, model)
    asked(engine, *map(request, range(12)))
    servers[1].dead = True
    asked(engine, *map(request, range(12)))
    servers[1].dead, count = False, plays(servers[1])

    until(engine, lambda: plays(servers[1]) > count)


@pytest.mark.long
def test_where_all_are_gone_the_run_ends_after_its_patience(
    servers: list[FakeVllm], model: Path
) -> None:
    engine = engine_at(servers, model, wall_s=0.5)
    asked(engine, request())
    for server in servers:
        server.dead = True
    with pytest.raises(EndpointError, match=r"none of 2 servers .* cannot be reached: start it"):
        asked(engine, request())


@pytest.mark.long
def test_all_opened_that_are_there_and_none_is_told(servers: list[FakeVllm], model: Path) -> None:
    servers[0].dead = True
    assert asked(engine_at(servers, model), request())[0].token_ids
    servers[1].dead = True
    with pytest.raises(EndpointError, match="none of 2 servers can be sampled from"):
        asked(engine_at(servers, model), request())


@pytest.mark.long
def test_a_request_that_is_wrong_is_refused_once(servers: list[FakeVllm], model: Path) -> None:
    engine = engine_at(servers, model)
    asked(engine, request())
    for server in servers:
        server._completions = lambda body: status(400, "bad request")  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="refused the request"):
        asked(engine, request(5))
    assert sum(server.asked_for("/v1/completions") for server in servers) == 8  # 6 when opened


# -- all weights ---------------------------------------------------------------------------------


@pytest.mark.longest
def test_all_weights_come_to_every_server_under_a_name(
    servers: list[FakeVllm], model: Path
) -> None:
    engine = engine_at(servers, model)
    learner = learner_of(engine)
    names = {server.name for server in servers}
    for seed in (1, 2):
        move(learner, seed)
        numbers = learner.publish()
        assert numbers["parity_gap"] <= 1e-4 and numbers["replica_gap"] <= 1e-4
        assert numbers["replicas"] == 2
        names |= {server.name for server in servers}
    assert len(names) == 3 and not any(server.paused for server in servers)
    replies = asked(engine, *map(request, range(12)))
    assert all(plays(server) for server in servers) and gap(learner, replies) <= 1e-4
    assert {reply.version for reply in replies} == {2}
    assert len(list(engine.folder.iterdir())) == 1  # type: ignore[union-attr]


@pytest.mark.longest
def test_no_reply_of_a_restarted_server_is_used_before_it_has_the_weights_again(
    servers: list[FakeVllm], model: Path
) -> None:
    engine = engine_at(servers, model)
    learner = learner_of(engine)
    move(learner)
    learner.publish()
    right = servers[1].name
    servers[1].restart()
    replies = asked(engine, *map(request, range(24)))
    assert gap(learner, replies) <= 1e-4
    moved = [reply for reply in replies if reply.attempts]
    assert moved and "was it restarted?" in moved[0].attempts[0].detail

    replies = until(engine, lambda: engine.backend.here[1:], *map(request, range(24)))  # type: ignore[attr-defined]
    assert gap(learner, replies) <= 1e-4
    assert servers[1].sampled[-1][0] == right


@pytest.mark.longest
def test_a_single_server_is_looked_after_as_well(servers: list[FakeVllm], model: Path) -> None:
    engine = engine_at(servers[:1], model, base_url=servers[0].url)
    learner = learner_of(engine)
    move(learner)
    learner.publish()
    servers[0].restart()
    replies = asked(engine, *map(request, range(6)))
    assert gap(learner, replies) <= 1e-4


@pytest.mark.longest
@pytest.mark.parametrize("wrong", [0, 1])
def test_a_server_that_keeps_its_old_weights_is_set_aside_whichever_it_is(
    servers: list[FakeVllm], model: Path, wrong: int, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_at(servers, model)
    learner = learner_of(engine)
    servers[wrong].forgets = True
    move(learner)
    numbers = learner.publish()
    assert numbers["replicas"] == 1 and numbers["parity_gap"] <= 1e-4
    assert "set aside" in caplog.text
    assert gap(learner, asked(engine, *map(request, range(12)))) <= 1e-4


@pytest.mark.longest
def test_where_all_keep_their_old_weights_nothing_is_published(
    servers: list[FakeVllm], model: Path
) -> None:
    engine = engine_at(servers, model)
    learner = learner_of(engine)
    for server in servers:
        server.forgets = True
    move(learner)
    with pytest.raises(EngineError, match=r"sampler and learner differ .*published by full"):
        learner.publish()
    with pytest.raises(EngineError, match="not published"):
        asked(engine, request())


@pytest.mark.longest
def test_a_server_that_was_away_at_a_publish_gets_those_weights_when_it_comes(
    servers: list[FakeVllm], model: Path
) -> None:
    engine = engine_at(servers, model)
    learner = learner_of(engine)
    servers[1].dead = True
    for seed in (1, 2):
        move(learner, seed)
        assert learner.publish()["replicas"] == 1
    servers[1].restart()
    servers[1].dead = False

    replies = until(engine, lambda: engine.backend.here[1:], *map(request, range(24)))  # type: ignore[attr-defined]
    assert gap(learner, replies) <= 1e-4 and learner.check()["replicas"] == 2


@pytest.mark.longest
def test_a_checkpoint_puts_all_weights_back(servers: list[FakeVllm], model: Path) -> None:
    engine = engine_at(servers, model)
    learner = learner_of(engine)
    move(learner)
    learner.publish()
    files, before = learner.state(), asked(engine, request())
    for server in servers:
        server.restart()
    other = engine_at(servers, model)
    learner_of(other).load(files)
    assert asked(other, request())[0].token_ids == before[0].token_ids and other.version == 1


@pytest.mark.longest
@pytest.mark.parametrize("one", [True, False])
def test_a_server_that_keeps_a_tied_head_is_found_out_before_anything_is_learned(
    kuhn_model: Path, one: bool
) -> None:
    """Whether a build does is tried. Weights, names and what is sampled are as before then."""
    with ExitStack() as stack:
        servers = [stack.enter_context(FakeVllm(kuhn_model)) for _ in range(2 - one)]
        engine = engine_at(servers, kuhn_model)
        learner = learner_of(engine)
        assert engine.version == 0 and servers[0].asked_for("/collective_rpc") == 3
        before = asked(engine, *map(request, range(6)))
        assert gap(learner, before) <= 1e-4
        move(learner)
        assert learner.publish()["parity_gap"] <= 1e-4
        assert gap(learner, asked(engine, *map(request, range(6)))) <= 1e-4

        for server in servers:
            server.restart()
            server.keeps_head = True
        refused = engine_at(servers, kuhn_model)
        with pytest.raises(ConfigError, match=r"keeps the old output head .* add lora: "):
            learner_of(refused)
        assert not any(server.paused for server in servers)
        with pytest.raises(ConfigError, match="a learner in parts cannot try"):
            refused.divided(SAMPLING, None)
        theirs = [server.engine.weights() for server in servers]  # all that they had, again
        own = Transformers(str(kuhn_model), policy="own").weights()
        assert all(torch.equal(one[name], own[name]) for one in theirs for name in own)


@pytest.mark.longest
def test_what_stands_in_the_way_of_all_weights_is_told_in_one_line(
    servers: list[FakeVllm], model: Path
) -> None:
    engine = engine_at(servers, model)
    learner_of(engine)
    # another policy at the same servers would be changed in silence
    with pytest.raises(ConfigError, match=r"'main' publishes all its weights to .*give each"):
        asked(engine_at(servers, model, policy="other"), request())
    servers[0].name = "gem-ma.of-another-process.1"
    with pytest.raises(ConfigError, match="another training publishes its weights"):
        asked(engine, *map(request, range(12)))
    servers[0].dev = False
    with pytest.raises(ConfigError, match="takes no weights; start it with VLLM_SERVER_DEV_MODE=1"):
        learner_of(engine_at(servers, model))


def test_addresses_that_do_not_do_are_told(model: Path) -> None:
    url = "http://127.0.0.1:1/v1"
    for wrong, said in (
        ([], "different addresses, at least one"),
        ([url, url], "different addresses"),
        ([url, url + "/"], "different addresses"),
        ([url, url.replace("http", "HTTP")], "different addresses"),
        ([url, "http://localhost:1/v1"], "different addresses"),
        (["https://a.example/v1", "https://A.example:443/v1"], "different addresses"),
        ([url, [url]], "base_url is one address here"),
        ([url, None], "base_url is an address such as"),
        ([url, 5], "base_url is an address such as"),
    ):
        with pytest.raises(ConfigError, match=said):
            VLLM(str(model), policy="main", base_url=wrong)
    with pytest.raises(ConfigError, match="base_url is one address here"):
        OpenAI("gpt", policy="main", base_url=[url])


def test_addresses_of_the_sixth_version_are_addresses(model: Path) -> None:
    engine = VLLM(str(model), policy="main", base_url=["http://[::1]:1/v1", "http://[::1]:2/v1/"])
    assert engine.base_url == "http://[::1]:1/v1, http://[::1]:2/v1"


@pytest.mark.long
def test_an_id_that_the_model_has_not_fails_that_request_alone(
    servers: list[FakeVllm], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server with another model behind the name: learning would look for a row of the head."""
    engine = engine_at(servers, model)
    asked(engine, request())
    honest = FakeVllm._completions

    def other(self: FakeVllm, body: dict[str, Any]) -> Any:
        made = honest(self, body)
        made["choices"][0]["token_ids"][-1] = engine.vocabulary.size
        return made

    with monkeypatch.context() as patched:
        patched.setattr(FakeVllm, "_completions", other)
        with pytest.raises(EngineError, match=r"sampled id \d+, and the model has \d+"):
            asked(engine, request(1))
    assert asked(engine, request(1))[0].token_ids


# -- what happens in the midst of it ------------------------------------------------------------


@pytest.mark.longest
def test_servers_with_other_weights_are_refused_where_nobody_learns(
    servers: list[FakeVllm], model: Path, tmp_path: Path
) -> None:
    from gem_ma.engines.local.tiny import make_model

    make_model(tmp_path / "m", "kuhn_poker", size="word", seed=2, tied=False, positions=256)
    with FakeVllm(tmp_path / "m") as other:
        with pytest.raises(ConfigError, match=r"nats off the other servers .* the same model"):
            asked(engine_at([*servers, other], model), request())
        # one that comes later is held to the others as well
        other.dead = True
        engine = engine_at([*servers, other], model)
        asked(engine, request())
        other.dead = False
        until(engine, lambda: "nats off" in str(engine.backend.replicas[2].error))  # type: ignore[attr-defined]
        assert not plays(other) or other.sampled[-1][1] not in {
            reply.prompt_ids for reply in asked(engine, *map(request, range(12)))
        }


@pytest.mark.long
def test_one_server_under_two_addresses_is_refused_before_it_is_published_to(
    servers: list[FakeVllm], model: Path
) -> None:
    url = servers[0].url
    twice = [
        url,
        url.replace("127.0.0.1", "[::ffff:127.0.0.1]"),
        servers[1].url,
    ]  # as behind a tunnel
    engine = engine_at(servers, model, base_url=twice, allow_http=True)
    with pytest.raises(ConfigError, match=r"base_url: .* are one server; name each server once"):
        learner_of(engine).publish()
    assert not any("rpc" in path for path in servers[0].paths)


@pytest.mark.longest
@pytest.mark.parametrize("where", ["_pause", "_collective_rpc"])
def test_a_server_that_hangs_in_a_publish_is_set_aside_and_comes_back(
    servers: list[FakeVllm], model: Path, where: str
) -> None:
    engine = engine_at(servers, model, timeout_s=4.0, attempts=1, wall_s=30.0)
    learner = learner_of(engine)
    learner.publish()
    setattr(servers[1], where, lambda body: Answer(then="hang", promised=-1))
    move(learner)
    assert learner.publish()["replicas"] == 1
    assert gap(learner, asked(engine, *map(request, range(6)))) <= 1e-4
    delattr(servers[1], where)
    replies = until(engine, lambda: engine.backend.here[1:], *map(request, range(12)))  # type: ignore[attr-defined]
    assert gap(learner, replies) <= 1e-4 and not servers[1].paused


@pytest.mark.longest
@pytest.mark.parametrize("after", ["_collective_rpc", "_update_weight_version", "_resume"])
def test_a_server_that_restarts_in_a_publish_costs_no_reply(
    servers: list[FakeVllm], model: Path, after: str
) -> None:
    engine = engine_at(servers, model)
    learner = learner_of(engine)
    learner.publish()
    honest = getattr(servers[1], after)

    def restarts(body: dict[str, Any]) -> Any:
        made = honest(body)
        delattr(servers[1], after)
        servers[1].restart()
        return made

    setattr(servers[1], after, restarts)
    move(learner)
    learner.publish()
    assert gap(learner, asked(engine, *map(request, range(12)))) <= 1e-4
    replies = until(engine, lambda: engine.backend.here[1:], *map(request, range(12)))  # type: ignore[attr-defined]
    assert gap(learner, replies) <= 1e-4


# -- adapters ------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_restarted_server_is_given_its_adapters_before_it_is_sampled_from(
    servers: list[FakeVllm], model: Path
) -> None:
    engine = engine_at(servers, model)
    engine._now = Adapter("main.v1", "folder")
    asyncio.run(engine.backend.open())
    asyncio.run(engine.backend.load(engine._now))
    servers[1].restart()
    replies = asked(engine, *map(request, range(12)))
    assert any(reply.attempts for reply in replies)

    until(engine, lambda: servers[1].adapters)


# -- the parts -----------------------------------------------------------------------------------


def test_another_process_is_told_what_servers_hold_and_answer(
    servers: list[FakeVllm], model: Path
) -> None:
    one, other = engine_at(servers, model), engine_at(servers, model)
    adapter = Adapter("main.v1", "folder")
    calls = (ToolCall("1", "f", {"a": [1, None]}), Malformed("f(", "no_json"))
    replies = (Reply("x", calls, (1,), (2,), (-1 / 3,), attempts=(Attempt("moved"),)),)
    draws = (Draw((1, 2), Sampling(stop=("a",)), 3, 8, adapter, "c"), Draw((0,), Sampling(), 0, 1))
    one._now, one.version = adapter, 4
    one.backend._now = replica_module.Weights((adapter,), "f", "n", draws, replies)
    other.carry(one.carried())
    assert (other._now, other.version) == (adapter, 4)
    assert other.backend._now == one.backend._now
    assert other.backend.owner.gave(one.backend.owner.next_name())


def test_servers_are_apart_by_what_they_say_of_the_same_tokens() -> None:
    def reply(*logprobs: float, ids: tuple[int, ...] = (1, 2, 3, 4)) -> Reply:
        return Reply(token_ids=ids, logprobs=logprobs)

    same = reply(-1.0, -1.0, -1.0, -1.0)
    assert apart([same], [same]) == 0
    assert apart([same, same], [same, reply(-1.0, -1.4, -1.0, -1.0)]) == pytest.approx(0.1)
    # after another token nothing is the same question
    assert apart([same], [reply(-1.0, -1.0, -9.0, -9.0, ids=(1, 2, 5, 4))]) == 0
    assert apart([same], [reply(-1.0, -1.0, -1.0, -1.0, ids=(7, 2, 3, 4))]) == float("inf")
