"""The tinker engine and learner at a real server: SkyRL on a CPU. In an environment of its own:
make test-tinker."""

from __future__ import annotations

import asyncio
import json
import random
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tinker
pytest.importorskip("tinker", reason="make test-tinker has it")

from gem_ma import credit  # noqa: E402
from gem_ma.cli.main import main  # noqa: E402
from gem_ma.config.learning import LossSettings  # noqa: E402
from gem_ma.driver.rollout import Plan  # noqa: E402
from gem_ma.engines.base import Policy, open_engine  # noqa: E402
from gem_ma.engines.local.transformers import Transformers  # noqa: E402
from gem_ma.engines.models.adapter_folder import write_adapter  # noqa: E402
from gem_ma.engines.models.vocabulary import Vocabulary  # noqa: E402
from gem_ma.engines.tinker.engine import Tinker  # noqa: E402
from gem_ma.engines.vllm.engine import lora_note  # noqa: E402
from gem_ma.kernel.episode import Seat  # noqa: E402
from gem_ma.kernel.errors import ConfigError  # noqa: E402
from gem_ma.kernel.types import Message, Request, Sampling  # noqa: E402
from gem_ma.registry import load  # noqa: E402
from gem_ma.training.learner.rows import Row, rows  # noqa: E402
from gem_ma.training.learner.torch_learner import TorchLearner  # noqa: E402
from tests.plays import played_all  # noqa: E402
from tests.tinker.conftest import SkyRL  # noqa: E402
from tests.tinker.faulty import FaultyWay  # noqa: E402

HOW = Sampling(max_tokens=8)
ALPHA = 32.0  # of every adapter of this server
# gradient descent: beside this eps the root of the second moment is nothing
PLAIN: dict[str, Any] = {"eps": 1e6, "betas": [0.0, 0.0], "grad_clip": 1e9, "minibatches": 1}
RATE = 2e5  # a step of .2 along the gradient
# first halves that this server shares among the projections of one input; ours have one each
TIED = re.compile(r"(q_proj|k_proj|v_proj|gate_proj|up_proj)\.lora_A")
START, LEARNED, LAST = 0.45, 0.60, 8


def opened(server: SkyRL, policy: str = "speaker", **options: Any) -> Tinker:
    options = {"base_url": server.url, "lora": {"rank": 8}, **options}
    return Tinker(str(server.model), policy=policy, **options)


def played(engines: dict[str, Tinker], count: int = 32) -> list[Any]:
    scenario = load("scenarios", "referential")()
    cast = {agent: Seat(behaviour="direct", policy=agent) for agent in scenario.agents}
    policies = {name: Policy(name, engine, HOW) for name, engine in engines.items()}
    plans = [Plan(scenario, cast, "train/0", number) for number in range(count)]

    return sorted(played_all(plans, policies, concurrency=32), key=lambda episode: episode.id)


def returned(engines: dict[str, Any], count: int) -> float:
    """The mean return of the listener."""
    paid = [e for episode in played(engines, count) for e in episode.ledger]
    return sum(entry.value for entry in paid if entry.agent == "listener") / count


def lesson(learner: Any, other: Tinker) -> tuple[Any, Any]:
    episodes = played({"speaker": learner.engine, "listener": other})
    table = credit.turns(episodes, "speaker")
    return table, np.random.default_rng(0).normal(size=len(table.turns))


def learn(learner: Any, table: Any, advantages: Any, lr: float, **loss: Any) -> dict[str, float]:
    settings = LossSettings(**loss)
    rng = random.Random(0)
    return learner.update(table, advantages, lr=lr, settings=settings, rng=rng)


def scores(learner: Any, some: tuple[Row, ...]) -> Any:
    """Log-probabilities of the trained tokens of these rows at the server."""
    found = learner.clients.forward(learner.trainer, [row.ids for row in some])
    return np.concatenate([one[row.mask] for one, row in zip(found, some, strict=True)])


@pytest.fixture(scope="module")
def frozen(server: SkyRL) -> Tinker:
    """The base, which never learns."""
    return opened(server, "listener", lora=None)


def local(server: SkyRL, path: str, folder: Path) -> TorchLearner:
    """Our own learner with the weights that the server wrote at this path."""
    from safetensors.torch import load_file

    run, _, name = path.removeprefix("tinker://").partition("/")
    name = name.rpartition("/")[2]
    (packed,) = (server.folder / "checkpoints" / run / "sampler_weights").glob(f"{name}*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder / "served", filter="data")
    (file,) = (folder / "served").rglob("adapter_model.safetensors")
    named = {key.removeprefix("base_model.model."): value for key, value in load_file(file).items()}
    weights = {key: value for key, value in named.items() if value.numel()}
    write_adapter(folder / "adapter", lora_note(weights, ALPHA, str(server.model)), weights)
    engine = Transformers(str(server.model), policy="speaker", lora=str(folder / "adapter"))
    return TorchLearner(engine, HOW)


def test_an_update_is_that_of_the_torch_learner(
    server: SkyRL, frozen: Tinker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = opened(server).learner(HOW)
    print(f"scale {remote.scale}, noise {remote.checks.noise:.2g} nats")
    assert remote.scale.way == "row_tokens_and_rows" and not remote.scale.clips
    # the API masks nothing, so neither does ours
    monkeypatch.setattr(
        Vocabulary, "of", classmethod(lambda cls, chat, size, *more: unmasked(cls, chat, size))
    )
    table, advantages = lesson(remote, frozen)
    some = rows(table, advantages, "speaker").rows
    assert len({len(row.ids) for row in some}) > 1  # else a mean by rows would look like a sum
    for step, loss in enumerate(({}, {"aggregation": "token_mean"})):
        mine = local(server, str(remote.engine.path), tmp_path / f"begin{step}")
        begin = {name: weight.detach().clone() for name, weight in mine.parameters.items()}
        before = scores(remote, some)
        assert np.abs(before - mine.scorer.logprobs(some)).max() < 1e-5
        for learner in (remote, mine):
            learn(learner, table, advantages, RATE, **{**PLAIN, **loss})
        after = scores(remote, some)
        remote.publish()
        theirs = local(server, str(remote.engine.path), tmp_path / f"end{step}").parameters
        off = []
        for name, weight in mine.parameters.items():
            if not TIED.search(name):
                moved = (weight - begin[name]).norm()
                off.append(float((theirs[name] - weight).norm() / (moved + 1e-9)))
        apart = np.abs(after - mine.scorer.logprobs(some)).max()
        moved = np.abs(after - before).max()
        print(f"step {step}: moved {moved:.3g} nats, apart {apart:.3g}, weights {max(off):.2g}")
        assert moved > 0.02 and max(off) < 1e-4
        # a new adapter learns by its second halves alone; later the tied first ones learn too
        assert step or apart < 1e-4


def unmasked(cls: Any, chat: Any, size: int) -> Vocabulary:
    return cls(size, chat.ends, frozenset(), chat.text, None)


def test_a_resume_goes_on_and_the_frozen_stay_as_they_are(server: SkyRL, frozen: Tinker) -> None:
    ask = Request("listener", (Message("red"),), seed=5, sampling=HOW)
    before = asyncio.run(frozen.sample(ask))
    learner = opened(server).learner(HOW)
    table, advantages = lesson(learner, frozen)
    learn(learner, table, advantages, 3e-3)
    learner.publish()
    files = learner.state()
    learn(learner, table, advantages, 3e-3)
    some = rows(table, advantages, "speaker").rows
    straight = scores(learner, some)
    again = opened(server).learner(HOW)
    again.load(files)
    assert again.version == 1
    learn(again, table, advantages, 3e-3)
    apart = np.abs(scores(again, some) - straight).max()
    print(f"resumed: {apart:.3g} nats apart")
    assert apart < 1e-5
    later = asyncio.run(frozen.sample(ask))
    assert later.token_ids == before.token_ids
    assert np.abs(np.array(later.logprobs) - np.array(before.logprobs)).max() < 1e-6


def test_faults_lose_nothing(server: SkyRL, frozen: Tinker) -> None:
    way = FaultyWay(server.port)
    try:
        calm = opened(server).learner(HOW)
        rough = opened(server, base_url=way.url).learner(HOW)
        table, advantages = lesson(calm, frozen)
        some = rows(table, advantages, "speaker").rows
        way.faults += [
            ("/forward", 500, False),
            ("/forward", 0, True),
            ("/forward_backward", 429, False),
            ("/optim_step", 0, True),  # taken, and nobody was told
            ("/retrieve_future", 410, False),
            ("/save_weights_for_sampler", 503, False),
        ]
        told = [learn(each, table, advantages, 3e-3) | each.publish() for each in (calm, rough)]
        assert not way.faults
        apart = np.abs(scores(calm, some) - scores(rough, some)).max()
        print(f"repeated {told[1]['repeated']:g} times, {apart:.3g} nats apart")
        assert told[1]["repeated"] >= 2 and apart < 1e-5
        way.faults += [("/asample", 429, False), ("/asample", 0, True), ("/asample", 500, False)]
        episodes = played({"speaker": rough.engine, "listener": frozen}, 8)
        assert not way.faults and all(episode.end.scored for episode in episodes)
    finally:
        way.stop()


def test_a_server_that_samples_old_versions_with_new_weights_plays_nothing_ahead(
    server: SkyRL,
) -> None:
    with pytest.raises(ConfigError, match=r"samples an old version with new weights"):
        opened(server).learner(HOW, apart=True)


CONFIG = """
scenario: {{id: referential}}
agents: {{speaker: {{policy: speaker}}, listener: {{policy: listener}}}}
policies:
  speaker: {{model: "tinker/{model}", base_url: "{url}", lora: {{rank: 8, seed: {seed}}}, max_tokens: 8}}
  listener: {{model: "tinker/{model}", base_url: "{url}", lora: {{rank: 8, seed: {seed}}}, max_tokens: 8}}
run: {{seed: {seed}, concurrency: 32}}
train:
  policies: [speaker, listener]
  steps: 30
  episodes: 32
  lr: 3.0e-3
  save_every: 30
  estimator: {{name: rebn, key: [policy]}}
  loss: {{minibatches: 1}}
evaluate: {{episodes: 32}}
"""


@pytest.fixture(scope="module")
def start(model: Path) -> float:
    """What two of the base earn together: the mean return of 512 plays, here."""
    engine = open_engine("base", f"transformers/{model}")
    return returned({"speaker": engine, "listener": engine}, 512)


@pytest.mark.parametrize("seed", [0, 1])
def test_two_policies_learn_to_talk(server: SkyRL, start: float, tmp_path: Path, seed: int) -> None:
    config = tmp_path / "two.yaml"
    config.write_text(CONFIG.format(model=server.model, url=server.url, seed=seed))
    assert main(["train", str(config), "--out", str(tmp_path / "run"), "--quiet"]) == 0
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    steps = [row for row in map(json.loads, lines) if row["kind"] == "train"]
    returns = [row["return"]["listener"] for row in steps]
    parities = [each["parity_gap"] for row in steps for each in row["policies"].values()]
    end = float(np.mean(returns[-LAST:]))
    print(f"seed {seed}: {start:.3f} -> {end:.3f}, parity {max(parities):.2g} nats at most")
    assert sum(row.get("failed", 0) for row in steps) == 0
    assert len(returns) == 30 and start <= START and end >= LEARNED
