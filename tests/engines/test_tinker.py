"""The tinker engine and its learner against a fake of the API's two clients: sampling, the loss, the
server's scale, faults, refusals, resume."""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import gem_ma.engines.tinker.client as client
from gem_ma import credit
from gem_ma.cli.main import main
from gem_ma.config.learning import LossSettings
from gem_ma.driver.rollout import Plan
from gem_ma.engines.base import Policy
from gem_ma.engines.endpoint.endpoint import Budget
from gem_ma.engines.tinker.engine import Tinker
from gem_ma.kernel.episode import Seat
from gem_ma.kernel.errors import BudgetError, ConfigError, DataError, EngineError
from gem_ma.kernel.types import Message, Request, Sampling
from gem_ma.registry import load
from gem_ma.training.learner import tinker_learner
from gem_ma.training.learner.losses import Sampled, pull
from gem_ma.training.learner.rows import Tokens, minibatches, rows
from gem_ma.training.learner.server_checks import HABITS, WAYS
from tests import tinker_fake
from tests.plays import played_all
from tests.tinker_fake import BASE, FAULTS, Server

HOW = Sampling(max_tokens=6)
KEY = "tml-0123456789abcdefghij"
PLAIN = {"eps": 1e6, "betas": [0.0, 0.0], "grad_clip": 1e9}  # gradient descent at lr / eps


@pytest.fixture
def served(monkeypatch):
    """Puts a fake server in the place of the package, and gives it."""
    monkeypatch.setattr(client.Clients, "_reach", lambda self: None)
    # not the module `time` itself: threads of other tests that wait in it would spin
    for module in (client, tinker_learner):
        monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda seconds: None))
    monkeypatch.setattr(client.Clients, "_pause", staticmethod(no_pause))
    monkeypatch.delenv("TINKER_API_KEY", raising=False)

    def serve(way: str = "sum", **options) -> Server:
        server = Server(way, **options)
        monkeypatch.setattr(client, "sdk", server.sdk)
        HABITS.clear()
        return server

    return serve


async def no_pause(seconds: float) -> None: ...


def opened(policy: str = "speaker", **options) -> Tinker:
    options = {"base_url": "http://127.0.0.1:9", "lora": {"rank": 4}, **options}
    return Tinker(BASE, policy=policy, **options)


def ask(engine: Tinker, seed: int = 3, **options):
    request = Request("a", (Message("red circle"),), seed=seed, conversation="c")
    sampling = Sampling(**{"max_tokens": 6, **options})
    return asyncio.run(engine.sample(Request(**{**vars_of(request), "sampling": sampling})))


def vars_of(request: Request) -> dict:
    return {name: getattr(request, name) for name in request.__dataclass_fields__}


def episodes(engines: dict[str, Tinker], count: int = 8):
    scenario = load("scenarios", "referential")()
    cast = {agent: Seat(behaviour="direct", policy=agent) for agent in scenario.agents}
    policies = {name: Policy(name, engine, HOW) for name, engine in engines.items()}
    plans = [Plan(scenario, cast, "train/0", n) for n in range(count)]

    return sorted(played_all(plans, policies, concurrency=count), key=lambda episode: episode.id)


def lesson(engine: Tinker, other: Tinker, count: int = 8):
    played = episodes({"speaker": engine, "listener": other}, count)
    table = credit.turns(played, "speaker")
    return table, np.linspace(-1, 1.5, len(table.turns))


def learn(learner, table, advantages, lr=0.05, seed=0, **loss):
    settings = LossSettings(**{"minibatches": 2, **loss})
    rng = random.Random(seed)
    return learner.update(table, advantages, lr=lr, settings=settings, rng=rng)


def weights(server: Server, learner) -> dict:
    return learner.trainer.table.rows


def same(first: dict, other: dict) -> float:
    """The largest difference of rows that both have; a row that one lacks was never touched."""
    return max(float(np.abs(first[key] - other[key]).max()) for key in first.keys() & other.keys())


def test_a_reply_holds_what_was_sampled_and_a_seed_repeats_it(served) -> None:
    server = served(context=40)
    engine = opened()
    reply = ask(engine)
    assert reply == ask(engine) and reply != ask(engine, seed=4)
    assert len(reply.token_ids) == len(reply.logprobs) <= 6 and reply.finish in ("stop", "length")
    table = server.saved.get("") or next(iter([engine._sampler.table]))
    prefix = reply.prompt_ids
    for token, logprob in zip(reply.token_ids, reply.logprobs, strict=True):
        assert table.logprobs(prefix)[token] == pytest.approx(logprob)
        prefix = (*prefix, token)
    room = 40 - len(reply.prompt_ids)
    assert len(ask(engine, max_tokens=500).token_ids) <= room
    assert set(ask(engine, temperature=0.0).logprobs) == {0.0}
    assert ask(opened(context=3)).finish == "context_overflow"


@pytest.mark.long
@pytest.mark.parametrize("way, clips", [*((way, True) for way in WAYS), ("row_tokens", False)])
def test_the_scale_of_a_server_is_measured_and_all_learn_alike(served, way, clips) -> None:
    server = served(way, clips=clips)
    learner = opened().learner(HOW)
    assert (learner.scale.way, learner.scale.clips) == (way, clips)
    table, advantages = lesson(learner.engine, opened("listener", lora=None))
    learn(learner, table, advantages, lr=4e6, **PLAIN)
    reference = served("sum")
    other = opened().learner(HOW)
    learn(other, table, advantages, lr=4e6, **PLAIN)
    assert same(weights(server, learner), weights(reference, other)) < 1e-5


def test_a_server_that_divides_by_something_else_is_refused(served, monkeypatch) -> None:
    monkeypatch.setattr("tests.tinker_fake.divisor", lambda way, length, lengths: length**2.0)
    served("sum")
    with pytest.raises(ConfigError, match=r"moves 0\.25 times as far in a row twice as long"):
        opened().learner(HOW)


@pytest.mark.long
@pytest.mark.parametrize(
    "loss",
    [
        {"epochs": 3},
        {"surrogate": "cispo", "epochs": 2},
        {"clip_high": 0.4, "epochs": 2},
        {"ratio": "turn_sum", "epochs": 2},
        {"ratio": "episode_mean", "tis": 2.0},
        {"aggregation": "token_mean", "tis": 1.5},
        {"target_kl": 1e-9, "epochs": 3},
    ],
)
def test_an_update_is_that_of_a_slow_loop(served, loss) -> None:
    server = served("row_tokens_and_rows")
    learner = opened().learner(HOW)
    table, advantages = lesson(learner.engine, opened("listener", lora=None))
    lr, settings = 6.0, LossSettings(**{"minibatches": 2, **PLAIN, **loss})
    # slowly, on a table of our own
    made = rows(table, advantages, "speaker").rows
    mine = type(learner.trainer.table)(server.size)
    mine.rows = {key: row.copy() for key, row in learner.trainer.table.rows.items()}

    def places(row):
        return [(tuple(row.ids[:n].tolist()), int(row.ids[n])) for n in np.flatnonzero(row.mask)]

    def scores(picked):
        return np.array([mine.logprobs(p)[t] for row in picked for p, t in places(row)])

    every = Tokens.of(made)
    names = [f"{e.id}/{t.agent}" for e, t in zip(table.episodes, table.turns, strict=True)]
    part = np.unique(names, return_inverse=True)[1][every.turn]
    tokens = Sampled(every.advantage, every.logprob, every.turn, part)
    cuts = np.split(np.arange(len(part)), np.cumsum([int(r.mask.sum()) for r in made])[:-1])
    old, steps = scores(made), 0
    for chosen in minibatches(made, settings, random.Random(0)):
        picked, index = [made[n] for n in chosen], np.concatenate([cuts[n] for n in chosen])
        new = scores(picked)
        drift = new - old[index]
        if settings.target_kl and (np.expm1(drift) - drift).mean() > settings.target_kl:
            break
        slope = pull(new, old[index], tokens.take(index), settings, HOW.max_tokens).slope
        moves = [each for row in picked for each in places(row)]
        gradient: dict = {}
        for (prefix, target), value in zip(moves, slope, strict=True):
            change = (np.eye(server.size)[target] - np.exp(mine.logprobs(prefix))) * value
            gradient[prefix] = gradient.get(prefix, 0) + change
        for prefix, change in gradient.items():
            mine.rows[prefix] = mine.rows[prefix] - lr * change
        steps += 1
    told = learn(learner, table, advantages, lr=lr * 1e6, **PLAIN, **loss)
    assert told["optimizer_steps"] == steps
    # the root of the second moment is not quite nothing beside eps, and a float32 is sent
    assert same(mine.rows, learner.trainer.table.rows) < 2e-4
    assert told["logprob_gap"] < 1e-6 and told["fresh_gap"] < 1e-6


CALLS = ("forward", "forward_backward", "optim_step", "save_state", "publish", "sample")


@pytest.fixture(scope="module")
def undisturbed():
    """Weights and measures of a run without faults, made once for all runs that have some."""
    known = []

    def of(run):
        if not known:
            known.extend(run([])[:2])
            assert [measures.pop("repeated") for measures in known[1]] == [0.0, 0.0]
        return known

    return of


@pytest.mark.long
@pytest.mark.parametrize(
    "fault, after", [*((fault, True) for fault in FAULTS), ("429", False), ("dropped", False)]
)
def test_no_fault_loses_or_repeats_anything(served, undisturbed, fault, after) -> None:
    def run(faults) -> tuple[dict, list, dict]:
        server = served("rows")
        learner, other = opened().learner(HOW), opened("listener", lora=None)
        server.faults += faults
        told = []
        for _ in range(2):
            table, advantages = lesson(learner.engine, other)
            told.append(learn(learner, table, advantages, epochs=2) | learner.publish())
        assert not server.faults
        return learner.trainer.table.rows, told, server

    calm, quiet = undisturbed(run)
    rough, told, _ = run([(call, fault, after) for call in CALLS])
    assert calm.keys() == rough.keys()
    assert same(calm, rough) == 0.0
    lost = [measures.pop("repeated") for measures in told]
    assert sum(lost) == 2.0
    assert told == quiet


def spoilt(**fields):
    """An answer with one sequence of other fields."""
    return lambda answer: SimpleNamespace(
        sequences=[SimpleNamespace(**{**vars(answer.sequences[0]), **fields})]
    )


SPOILT = {
    "no sequence": (lambda answer: SimpleNamespace(sequences=[]), "no sequence"),
    "nothing": (lambda answer: None, "no sequence"),
    "no ids": (spoilt(tokens=None), "0 ids came with"),
    "text for ids": (spoilt(tokens="abc", logprobs=[-1.0]), "0 ids came with 1"),
    "an id below 0": (spoilt(tokens=[-1], logprobs=[-1.0]), "an id came that is not a number"),
    "a huge id": (spoilt(tokens=[1 << 70], logprobs=[-1.0]), "an id came"),
    "half an id": (spoilt(tokens=[1.5], logprobs=[-1.0]), "an id came"),
    "no log-probabilities": (spoilt(tokens=[1], logprobs=None), "1 ids came with 0"),
    "too few": (spoilt(tokens=[1, 2], logprobs=[-1.0]), "2 ids came with 1"),
    "above 0": (spoilt(tokens=[1], logprobs=[0.7]), "a log-probability came that is not a number"),
    "no number": (spoilt(tokens=[1], logprobs=[float("nan")]), "a log-probability came"),
    "endless": (spoilt(tokens=[1], logprobs=[-float("inf")]), "a log-probability came"),
    "another end": (spoilt(stop_reason="weather"), "'weather', which is not one of stop, length"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_an_answer_that_is_none_is_asked_again_and_then_fails_that_request_in_a_line(
    served, case
) -> None:
    server = served()
    spoil, line = SPOILT[case]
    engine = opened(attempts=3)
    server.spoilt["sample"] = spoil
    with pytest.raises(EngineError, match=line) as error:
        ask(engine)
    assert error.value.retryable and "\n" not in str(error.value)
    assert server.calls.count("sample") == 3
    server.spoilt.clear()
    assert ask(engine).token_ids


@pytest.mark.parametrize(
    "outputs",
    [None, [{}], [{"logprobs": ["x"]}], [{"logprobs": [[1.0]]}]],
)
def test_scores_of_another_shape_end_the_update_in_a_line(served, outputs) -> None:
    server = served()
    learner = opened().learner(HOW)
    table, advantages = lesson(learner.engine, opened("listener", lora=None))
    server.spoilt["forward"] = lambda answer: SimpleNamespace(loss_fn_outputs=outputs)
    with pytest.raises(EngineError, match=r"(scored other tokens|gave no log-prob)") as error:
        learn(learner, table, advantages)
    assert "\n" not in str(error.value)


@pytest.mark.long
def test_numbers_that_are_none_and_a_path_that_is_missing_are_no_answers(served) -> None:
    server = served()
    learner = opened(attempts=2).learner(HOW)
    table, advantages = lesson(learner.engine, opened("listener", lora=None))
    told = {"grad_norm": "much", "loss": float("nan"), "fine": 1, "none": None}
    server.spoilt["optim_step"] = lambda answer: SimpleNamespace(metrics=told)
    assert np.isfinite(list(learn(learner, table, advantages).values())).all()
    server.spoilt["publish"] = lambda answer: SimpleNamespace(path=None)
    with pytest.raises(EngineError, match="no path came"):
        learner.publish()


@pytest.mark.parametrize("models", [None, [], [SimpleNamespace()], 7])
def test_a_server_that_does_not_say_what_it_has_is_believed_or_refused(
    served, monkeypatch, models
) -> None:
    served()
    told = SimpleNamespace(supported_models=models)
    monkeypatch.setattr(tinker_fake.Service, "get_server_capabilities", lambda self: told)
    if isinstance(models, list) and models:
        with pytest.raises(ConfigError, match="has no model"):
            ask(opened())
    else:
        assert ask(opened()).token_ids


@pytest.mark.long
def test_a_fault_that_stays_ends_in_one_line(served) -> None:
    server = served()
    engine = opened(attempts=3)
    server.faults += [("sample", "500", False)] * 3
    with pytest.raises(EngineError, match=r"policy 'speaker': 127\.0\.0\.1:9: oops") as error:
        ask(engine)
    assert error.value.retryable
    learner = engine.learner(HOW)
    table, advantages = lesson(engine, opened("listener", lora=None))
    before = {key: row.copy() for key, row in learner.trainer.table.rows.items()}
    server.faults += [("optim_step", "dropped", False)] * 3
    with pytest.raises(EngineError, match="connection reset"):
        learn(learner, table, advantages)
    assert same(before, server.saved[learner._state_path()].rows) == 0.0


@pytest.mark.long
def test_two_learn_beside_a_frozen_one_whose_numbers_stay(served) -> None:
    server = served("row_tokens_and_rows")
    speaker, listener = opened().learner(HOW), opened("listener").learner(HOW)
    frozen = opened("frozen", weights=speaker.engine.path, lora=None)
    before, trainers = ask(frozen), len(server.trainers)
    for _ in range(3):
        played = episodes({"speaker": speaker.engine, "listener": listener.engine})
        for learner in (speaker, listener):
            table = credit.turns(played, learner.policy)
            learn(learner, table, np.ones(len(table.turns)))
            learner.publish()
    assert len(server.trainers) == trainers  # nobody trains the frozen one
    assert ask(frozen) == before
    assert (speaker.version, listener.version, frozen.version) == (3, 3, 0)
    # weights of versions that nobody samples are deleted, that of the frozen one not by accident
    kept = [path for path in server.saved if "speaker-sampler" in path]
    assert len(kept) == 3


@pytest.mark.long
def test_a_publish_of_old_weights_is_found_out(served) -> None:
    served(stale=True)
    learner, other = opened().learner(HOW), opened("listener", lora=None)
    table, advantages = lesson(learner.engine, other)
    learn(learner, table, advantages)
    with pytest.raises(EngineError, match=r"differ by .* nats.* at version 0; the weights are not"):
        learner.publish()
    with pytest.raises(EngineError, match="are not published"):
        ask(learner.engine)


@pytest.mark.long
def test_a_resume_goes_on_from_the_state_at_the_server(served) -> None:
    server = served()
    learner, other = opened().learner(HOW), opened("listener", lora=None)
    table, advantages = lesson(learner.engine, other)
    learn(learner, table, advantages)
    learner.publish()
    files = learner.state()
    assert learner.state() == files  # one state of the same weights
    learn(learner, table, advantages, seed=1)
    straight = learner.trainer.table.rows
    again = opened().learner(HOW)
    again.load(files)
    assert again.version == 1
    learn(again, table, advantages, seed=1)
    assert same(straight, again.trainer.table.rows) == 0.0
    with pytest.raises(DataError, match=r"checkpoint cannot be read \(KeyError: 'tinker.json'\)"):
        again.load({})
    server.saved.clear()
    with pytest.raises(DataError, match=r"has the state .* of this checkpoint no more"):
        opened().learner(HOW).load(files)


REFUSED = {
    "all weights": ({"lora": None}, {}, {}, r"trains adapters, not all weights; add lora"),
    "alpha": ({"lora": {"alpha": 8}}, {}, {}, r"policies\.speaker\.lora\.alpha: the server"),
    "targets": ({"lora": {"targets": ["q_proj"]}}, {}, {}, "lora.targets: the server decides"),
    "top_p": ({}, {"top_p": 0.9}, {}, "top_p 1"),
    "top_k": ({}, {"top_k": 5}, {}, "top_k 0"),
    "temperature": ({}, {"temperature": 0.7}, {}, "temperature 1 alone; got 0.7"),
    "usd": ({"budget": Budget(usd=1.0), "price": {"input": 1, "output": 1}}, {}, {}, "limits.usd"),
    "base": ({"tokenizer": BASE, "name": "other"}, {}, {}, "has no model 'other'; it has models/"),
    "entropy": ({}, {}, {"entropy": 0.01}, "set loss.entropy: 0"),
    "kl": ({}, {}, {"kl": 0.1}, "set loss.kl: 0"),
    "pairs": ({}, {}, {"surrogate": "dpo"}, "surrogate dpo needs the weights of the start"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_api_lacks_is_refused_in_one_line(served, case) -> None:
    served()
    options, sampling, loss, words = REFUSED[case]
    options = {"base_url": "http://127.0.0.1:9", "lora": {"rank": 4}, **options}
    engine = Tinker(options.pop("name", BASE), policy="speaker", **options)
    with pytest.raises(ConfigError, match=words) as error:
        engine.learner(Sampling(**{"max_tokens": 6, **sampling})).bound(LossSettings(**loss))
    assert "\n" not in str(error.value)


@pytest.mark.long
def test_other_refusals_are_one_line_too(served, monkeypatch) -> None:
    served(keeps=False)
    with pytest.raises(ConfigError, match=r"old version with new weights.*train\.overlap"):
        opened().learner(HOW, apart=True)
    learner = opened().learner(HOW)
    with pytest.raises(ConfigError, match=r"keeps one version.*leave out the league"):
        ask(opened("old", weights=learner.engine.path, lora=None))
    with pytest.raises(ConfigError, match="no warm start"):
        opened().learner(HOW).clone([], None)
    with pytest.raises(ConfigError, match="leave stop out"):
        ask(opened(), stop=("x",))
    with pytest.raises(ConfigError, match="weights is a path of the server"):
        opened(weights="folder", lora=None)
    with pytest.raises(ConfigError, match="TINKER_API_KEY is not set"):
        opened(base_url=None)
    monkeypatch.setattr(client, "sdk", SDK)
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(ConfigError, match=r"needs the package tinker .*: pip install .*tinker"):
        opened()


SDK = client.sdk


@pytest.mark.long
def test_plays_ahead_sample_the_weights_that_were_published(served) -> None:
    served()
    learner = opened().learner(HOW, apart=True)
    pinned = learner.engine.pinned()
    before = ask(pinned)
    table, advantages = lesson(learner.engine, opened("listener", lora=None))
    for _ in range(4):
        learn(learner, table, advantages, lr=0.5)
        learner.publish()
    assert ask(pinned) == before and pinned.version == 0
    assert ask(learner.engine) != before and learner.version == 4


@pytest.mark.long
def test_a_budget_counts_what_is_sampled_and_what_is_trained(served) -> None:
    served()
    budget = Budget(tokens=2000)
    learner = opened(budget=budget).learner(HOW)
    table, advantages = lesson(learner.engine, opened("listener", lora=None))
    spent = budget.tokens
    learn(learner, table, advantages, minibatches=1)
    ids = sum(len(row.ids) for row in rows(table, advantages, "speaker").rows)
    assert budget.tokens == spent + 2 * ids  # scored once, learned once
    with pytest.raises(BudgetError, match=r"limits\.tokens is 2000"):
        for _ in range(100):
            learn(learner, table, advantages)


GAME = """
from gem_ma import Ask, Reward, Scenario


class Talk(Scenario):
    agents = ("speaker", "listener")

    def play(self, rng, task):
        told = yield Ask({"speaker": "red"})
        heard = yield Ask({"listener": told["speaker"].text})
        paid = len(told["speaker"].text.split()) - len(heard["listener"].text.split())
        yield Reward({"speaker": float(paid), "listener": -float(paid)})
"""
CONFIG = f"""
scenario: {{{{id: "{{game}}:Talk"}}}}
agents: {{{{speaker: {{{{policy: speaker}}}}, listener: {{{{policy: listener}}}}}}}}
policies:
  speaker: {{{{model: tinker/{BASE}, base_url: "http://127.0.0.1:9", lora: {{{{rank: 4}}}}, max_tokens: 6}}}}
  listener: {{{{model: tinker/{BASE}, base_url: "http://127.0.0.1:9", lora: {{{{rank: 4}}}}, max_tokens: 6,
    api_key_env: MY_KEY}}}}
train:
  policies: [speaker, listener]
  steps: 4
  episodes: 8
  lr: 0.3
  save_every: 2
  estimator: {{{{name: rebn}}}}
evaluate: {{{{episodes: 8}}}}
"""


@pytest.mark.longest
def test_a_training_resumes_plays_its_model_and_shows_no_key(
    served, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    config = tmp_path / "two.yaml"
    config.write_text(CONFIG.format(game=tmp_path / "talk.py"))
    (tmp_path / "talk.py").write_text(GAME)
    server = served("row_tokens_and_rows")
    assert main(["train", str(config), "--out", str(tmp_path / "whole"), "--quiet"]) == 0
    assert KEY in server.keys
    # killed after its first checkpoint: the steps behind it are done again
    whole = (tmp_path / "whole/episodes.jsonl").read_text()
    half = ["train", str(config), "train.steps=2", "--out", str(tmp_path / "half"), "--quiet"]
    assert main(half) == 0
    assert main(["resume", str(tmp_path / "half"), "train.steps=4", "--quiet"]) == 0
    assert (tmp_path / "half/episodes.jsonl").read_text() == whole
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if KEY.encode() in path.read_bytes()]
    model = f"policies.speaker.model=tinker/{tmp_path}/whole/models/speaker"
    played = ["run", str(config), model, "policies.speaker.lora=null", "-n", "4", "--quiet"]
    assert main([*played, "--out", str(tmp_path / "played")]) == 0
    note = json.loads((tmp_path / "whole/models/speaker/tinker.json").read_text())
    assert re.fullmatch(r"tinker://run\d+/sampler_weights/speaker-sampler-3-\w+", note["weights"])
    capsys.readouterr()
