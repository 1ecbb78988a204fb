"""Plays whose learned seats are sampled by the servers of another trainer, and what OpenRLHF and
verl are handed; with stubs in place of the two, whose calls and fields are those they document."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gem_ma.trainers
from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.trainers.course import Drawn, Elsewhere, Outside, Start

torch = pytest.importorskip("torch", reason="needs the train extra")
WORDS = ["policies.player.constrain=null", "train.warm_start={}", "train.credit.gamma=.5"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoTokenizer

    from gem_ma import registry
    from gem_ma.engines.local.tiny import make_model

    folder = tmp_path_factory.mktemp("outside") / "model"
    make_model(folder, registry.make("guess_number"))
    return AutoTokenizer.from_pretrained(folder)


class Server:
    """Answers a number, drawn by the place in the play; knows what it gave."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.rng, self.made = tokenizer, random.Random(0), list[Any]()

    def answer(self, prompt: Any, most: int) -> tuple[list[int], list[float]]:
        word = str(self.rng.randrange(1, 11))
        ids = [*self.tokenizer.encode(word, add_special_tokens=False), self.tokenizer.eos_token_id]
        ids = ids[:most]
        values = [-self.rng.random() for _ in ids]
        self.made.append((tuple(prompt), ids, values))
        return ids, values


def outside(*words: str) -> Outside:
    return Outside("guess_number", [*WORDS, *words])


def played(server: Server, count: int = 4, **limits: Any) -> list[tuple[Any, list[Any]]]:
    plays = outside()

    async def draw(prompt: Any, request: Any, room: int) -> Drawn:
        return Drawn(*server.answer(prompt, room))

    async def work() -> list[Any]:
        result = []
        for start in plays.starts(count):
            engine = Elsewhere(server.tokenizer, draw, "player", **limits)
            episode = await plays.play(start, engine)
            result.append((episode, plays.samples(episode)))
        return result

    return asyncio.run(work())


def test_the_model_of_the_config_is_not_looked_for_and_starts_are_those_of_the_course() -> None:
    plays = outside("policies.player.model=transformers/no/such/folder")
    assert plays.agents == ("player",) and plays.others == {}
    starts = plays.starts(5)
    assert len(set(starts)) == 5 and {start.agent for start in starts} == {"player"}
    plan = plays.plan(starts[3])
    assert (plan.task, plan.seed) == (starts[3].task, starts[3].seed)


@pytest.mark.long
def test_every_sampled_id_is_in_a_sample_with_the_return_of_its_turn(tokenizer: Any) -> None:
    server = Server(tokenizer)
    made = played(server)
    ids = [
        token
        for _, samples in made
        for sample in samples
        for token in sample.response_ids[sample.mask]
    ]
    assert ids == [token for _, said, _ in server.made for token in said]
    for episode, (sample,) in made:
        paid = [
            sum(e.value for e in episode.ledger if e.step == turn.step) for turn in episode.turns
        ]
        wanted = [sum(paid[k:][n] * 0.5**n for n in range(len(paid) - k)) for k in range(len(paid))]
        for turn in set(sample.turn[sample.mask].tolist()):
            assert np.allclose(sample.token_advantages[sample.turn == turn], wanted[turn])


@pytest.mark.long
@pytest.mark.parametrize("limits", [{"response": 12}, {"whole": 30}, {"prompt": 3}])
def test_a_row_that_the_trainer_would_cut_ends_the_play(tokenizer: Any, limits: Any) -> None:
    whole = played(Server(tokenizer), 6)
    cut = played(Server(tokenizer), 6, **limits)
    ended = [episode.end.value for episode, _ in cut]
    assert {episode.end.value for episode, _ in whole} == {"terminated"} and "context" in ended
    for _, samples in cut:
        for sample in samples:
            assert len(sample.response_ids) <= limits.get("response", 99)
            assert len(sample.prompt_ids) + len(sample.response_ids) <= limits.get("whole", 99)


def test_a_server_without_log_probabilities_fails_the_play(tokenizer: Any) -> None:
    async def draw(prompt: Any, request: Any, room: int) -> Drawn:
        return Drawn([5, tokenizer.eos_token_id], [])

    plays = outside()
    engine = Elsewhere(tokenizer, draw, "player")
    episode = asyncio.run(plays.play(plays.starts(1)[0], engine))
    assert "log-probabilities" in str(episode.error) and plays.samples(episode) == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["policies.player.constrain=legal"], "policies.player.constrain"),
        (["train.policies=[]"], "train.policies"),
        (["train.estimator.name=gae"], "critic"),
        (["train.overlap=true"], "train.overlap"),
        (["train.warm_start={player: {cast: {player: {behaviour: number_guesser}}}}"], "warm_start"),
    ],
)  # fmt: skip
def test_what_no_trainer_does_is_refused(words: list[str], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        outside(*words)


# -- OpenRLHF -------------------------------------------------------------------------------------


def stubbed(monkeypatch: pytest.MonkeyPatch, name: str, stubs: dict[str, dict[str, Any]]) -> Any:
    """The module, on stubs; as if it had never been imported afterwards."""
    for stub, members in stubs.items():
        parts = stub.split(".")
        for end in range(1, len(parts) + 1):
            path = ".".join(parts[:end])
            if path not in sys.modules or path == stub:
                monkeypatch.setitem(sys.modules, path, ModuleType(path))
        vars(sys.modules[stub]).update(members)
    monkeypatch.setattr(gem_ma.trainers, name, None, raising=False)
    full = f"gem_ma.trainers.{name}"
    monkeypatch.setitem(sys.modules, full, ModuleType(full))
    del sys.modules[full]
    return import_module(full)


@pytest.fixture
def openrlhf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if find_spec("openrlhf") is not None:  # an environment that has it: the real one
        yield import_module("gem_ma.trainers.openrlhf")
        return
    base = {"openrlhf.utils.agent": {"AgentExecutorBase": type("AgentExecutorBase", (), {})}}
    yield stubbed(monkeypatch, "openrlhf", base)


class Vllm:
    """OpenRLHF's engine: token ids in, a vLLM output back."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def generate(self, ids: list[int], how: Any) -> Any:
        said, values = self.server.answer(ids, how.max_tokens)
        logprobs = [
            {token: SimpleNamespace(logprob=value)}
            for token, value in zip(said, values, strict=True)
        ]
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=said, logprobs=logprobs)])


def how(**more: Any) -> Any:
    return SimpleNamespace(
        **{"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": 1, "max_tokens": 8, **more}
    )


def test_openrlhf_gets_the_row_as_sampled(openrlhf: Any, tokenizer: Any) -> None:
    executor = openrlhf.executor("guess_number", WORDS, returns="episode")()
    server = Server(tokenizer)
    for row in openrlhf.prompts("guess_number", 3, WORDS):
        server.made = []
        made = asyncio.run(executor.execute(row["prompt"], "", how(), 512, tokenizer, Vllm(server)))
        ids, values = made["observation_tokens"], made["rollout_log_probs"]
        assert len(ids) == len(values)
        ranges = [(ids[first:last], values[first:last]) for first, last in made["action_ranges"]]
        assert ranges == [(said, logprobs) for _, said, logprobs in server.made]
        assert tuple(ids[: made["action_ranges"][0][0]]) == server.made[0][0]
        assert made["reward"] == made["scores"] and not made["truncated"]
        assert made["extra_logs"] == {"failed": 0.0, "rows": 1.0}


def test_what_openrlhf_would_silently_lose_is_refused(openrlhf: Any, tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="OpenRLHF learns from one reward an episode"):
        openrlhf.executor("guess_number", WORDS)
    executor = openrlhf.executor("guess_number", WORDS, returns="episode")()
    prompt = str(outside().starts(1)[0])

    def execute(prompt: str, sampling: Any) -> Any:
        server = Vllm(Server(tokenizer))
        return asyncio.run(executor.execute(prompt, "", sampling, 512, tokenizer, server))

    for change, line in (
        ({"temperature": 0.7}, "temperature=0.7: the config samples at 1"),
        ({"top_p": 0.9}, "top_p=0.9"),
        ({"top_k": 5}, "top_k=5"),
        ({"logprobs": None}, "no log-probabilities"),
    ):
        with pytest.raises(ConfigError, match=line):
            execute(prompt, how(**change))
    with pytest.raises(DataError, match="does not learn"):
        execute(prompt.replace("player", "nobody"), how())
    with pytest.raises(DataError, match="a prompt names"):
        execute("What is 2 + 2?", how())
    samples = [SimpleNamespace(agent="player", episode=("train/0", 1, 0))] * 2
    with pytest.raises(DataError, match="2 rows, and OpenRLHF takes one"):
        openrlhf.row_of(samples, "player")


def test_a_failed_play_is_a_row_without_trained_tokens(openrlhf: Any, tokenizer: Any) -> None:
    class Broken:
        async def generate(self, ids: Any, how: Any) -> Any:
            raise EngineError("no GPU")

    executor = openrlhf.executor("guess_number", WORDS, returns="episode")()
    made = asyncio.run(
        executor.execute(str(outside().starts(1)[0]), "", how(), 512, tokenizer, Broken())
    )
    assert made["action_ranges"] == [] and made["extra_logs"]["failed"] == 1.0
    assert len(made["observation_tokens"]) == len(made["rollout_log_probs"])


# -- verl -----------------------------------------------------------------------------------------


class Output(SimpleNamespace):
    """Stands for verl's AgentLoopOutput: fields, and `as_dict` with one reward on the last token."""

    def as_dict(self) -> dict[str, Any]:
        width = len(self.response_ids)
        scores = torch.zeros(width)
        scores[-1] = self.reward_score
        return {"responses": torch.tensor(self.response_ids), "rm_scores": scores,
                "response_mask": torch.tensor(self.response_mask)}  # fmt: skip


@pytest.fixture
def verl(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    loop = {
        "AgentLoopBase": type("AgentLoopBase", (), {}),
        "AgentLoopMetrics": SimpleNamespace,
        "AgentLoopOutput": Output,
        "register": lambda name: lambda kind: kind,
    }
    core = {"register_adv_est": lambda name: lambda function: function}
    yield stubbed(
        monkeypatch,
        "verl",
        {"verl.experimental.agent_loop.agent_loop": loop, "verl.trainer.ppo.core_algos": core},
    )


class Config(dict[str, Any]):
    """Stands for a DictConfig."""

    __getattr__ = dict.__getitem__


def verl_outputs(verl: Any, server: Server, source: str, row: Any, **more: Any) -> list[Any]:
    """What a worker of verl gets out of one row of the data set."""

    class Manager:
        async def generate(self, request_id: str, *, prompt_ids: Any, sampling_params: Any) -> Any:
            said, values = server.answer(prompt_ids, sampling_params["max_tokens"])
            return SimpleNamespace(token_ids=said, log_probs=values)

    loop = verl.GemLoop()
    loop.server_manager, loop.tokenizer = Manager(), server.tokenizer
    estimator = more.get("estimator", "gem_ma_rebn")
    rollout = {"prompt_length": 64, "response_length": 64, **more.get("sampling", {})}
    loop.config = Config(
        algorithm=Config(adv_estimator=estimator),
        trainer=Config(more.get("trainer", {})),
        actor_rollout_ref=Config(rollout=Config(rollout)),
    )
    loop.rollout_config = loop.config.actor_rollout_ref.rollout
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
    made: list[Any] = asyncio.run(loop.run(sampling, extra_info=row["extra_info"], uid="u"))
    return made


@pytest.fixture
def source(tmp_path: Path) -> str:
    config = tmp_path / "two.yaml"
    config.write_text(
        "scenario: {id: dilemma, rounds: 3}\n"
        "agents: {player_0: {policy: main}, player_1: {policy: main}}\n"
        "policies: {main: {model: transformers/nowhere, constrain: null}}\n"
        "train: {policies: [main], credit: {gamma: 0.5}}\n"
    )
    return str(config)


def test_verl_gets_a_row_a_seat_whose_rewards_sum_to_the_return_of_each_turn(
    verl: Any, tokenizer: Any, source: str
) -> None:
    server = Server(tokenizer)
    for row in verl.rows(source, 3):
        server.made = []
        outputs = verl_outputs(verl, server, source, row)
        assert [each.extra_fields["agent"] for each in outputs] == ["player_0", "player_1"]
        sampled = sorted(ids for _, ids, _ in server.made)
        told = []
        for each in outputs:
            fields = each.as_dict()
            mask, rewards = fields["response_mask"].bool(), fields["rm_scores"]
            assert len(rewards) == len(mask) and each.num_turns == 3
            gains = verl.gains(rewards[None], mask[None])[0]
            values = [float(value) for value in gains[mask]]
            # three turns of equal length: G_k = r_k + G_(k+1) / 2
            per_turn = [set(np.round(part, 5).tolist()) for part in np.array_split(values, 3)]
            assert all(len(part) == 1 for part in per_turn)
            runs = np.flatnonzero(np.diff([0, *mask.int().tolist(), 0])).reshape(-1, 2)
            told += [each.response_ids[first:last] for first, last in runs]
        assert sorted(told) == sampled


def test_the_estimators_are_those_of_the_library(verl: Any) -> None:
    from gem_ma.credit.estimators.returns import rebn

    rewards = torch.tensor([[0.0, 1.0, 0.0, 0.0, 2.0, 0.0], [0.0, -1.0, 0.0, 0.0, 0.0, 0.0]])
    mask = torch.tensor([[1, 1, 0, 1, 1, 0], [1, 1, 0, 0, 0, 0]])
    advantages, returns = verl.rebn(
        token_level_rewards=rewards, response_mask=mask, index=["a", "b"]
    )
    assert returns.tolist() == [[3.0, 3.0, 0.0, 2.0, 2.0, 0.0], [-1.0, -1.0, 0.0, 0.0, 0.0, 0.0]]
    wanted = rebn([3.0, 2.0, -1.0])
    assert np.allclose(advantages[mask.bool()].tolist(), wanted[[0, 0, 1, 1, 2, 2]])
    assert float(advantages[~mask.bool()].abs().max()) == 0
    assert verl.reinforce(token_level_rewards=rewards, response_mask=mask)[0].equal(returns)
    alike = torch.tensor([[1.0], [1.0]])
    assert verl.rebn(alike, torch.ones(2, 1))[0].abs().max() == 0
    assert verl.rebn(alike, torch.zeros(2, 1))[0].abs().max() == 0


def test_what_verl_would_silently_lose_is_refused(verl: Any, tokenizer: Any, source: str) -> None:
    row = verl.rows(source, 1)[0]
    for more, line in (
        ({"estimator": "grpo"}, "algorithm.adv_estimator=grpo reads one reward a play"),
        ({"sampling": {"temperature": 0.7}}, "rollout.temperature=0.7: the config samples at 1"),
        ({"sampling": {"top_p": 0.9}}, "rollout.top_p=0.9"),
        ({"sampling": {"top_k": 50}}, "rollout.top_k=50"),
        ({"sampling": {"calculate_log_probs": False}}, "rollout.calculate_log_probs=False"),
        ({"trainer": {"use_v1": False}}, "trainer.use_v1=False"),
    ):
        with pytest.raises(ConfigError, match=line):
            verl_outputs(verl, Server(tokenizer), source, row, **more)


def test_a_play_that_fails_in_verl_is_no_output(verl: Any, tokenizer: Any, source: str) -> None:
    class Broken(Server):
        def answer(self, prompt: Any, most: int) -> Any:
            raise EngineError("no GPU")

    assert verl_outputs(verl, Broken(tokenizer), source, verl.rows(source, 1)[0]) == []


def test_a_prompt_of_another_trainer_is_read_again() -> None:
    start = outside().starts(1)[0]
    assert Start.of(str(start)) == start
