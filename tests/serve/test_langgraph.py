"""An agent of LangGraph in a seat: it plays retail in front of the simulated user, is scored, and
its tokens are learned from. In an environment of its own: make test-serve."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.serve
pytest.importorskip("langgraph", reason="make test-serve has it")

import numpy as np  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import gem_ma  # noqa: E402
from gem_ma import credit, registry  # noqa: E402
from gem_ma.config.loading import load  # noqa: E402
from gem_ma.engines.local.tiny import make_model  # noqa: E402
from gem_ma.serving import answers, routes  # noqa: E402
from gem_ma.serving.desk import DESK, Desk  # noqa: E402
from gem_ma.serving.door import Door  # noqa: E402
from gem_ma.trainers.samples import samples  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import with_langgraph  # noqa: E402

SEAT = ["agents.assistant.behaviour=program", "agents.assistant.policy=main", "scenario.data=own"]


def with_agents(count: int, work: Callable[[], Any]) -> Any:
    """What the work gives while so many agents take seats."""
    token = DESK.set(Desk(patience_s=60))
    desk = DESK.get()
    assert desk is not None
    try:
        with Door(desk) as door:
            agents = [
                threading.Thread(target=with_langgraph.main, args=(door.address,), daemon=True)
                for _ in range(count)
            ]
            for agent in agents:
                agent.start()
            result = work()
        for agent in agents:
            agent.join(30)
            assert not agent.is_alive()
        return result
    finally:
        DESK.reset(token)


def test_it_plays_retail_as_well_as_its_model(tmp_path: Path) -> None:
    """The model says what the scripted assistant did: tools, texts and turns all come through."""
    words = ["scenario.data=own", "scenario.tasks=12"]
    wanted = gem_ma.run(load("retail_scripted", words, configs_first=True), out=tmp_path / "a")
    model = [f"policies.main.model=replay/{tmp_path / 'a'}", "policies.main.actions=true"]
    config = load("retail_scripted", [*words, *SEAT, *model], configs_first=True)
    score = with_agents(2, lambda: gem_ma.run(config, out=tmp_path / "b"))
    assert score["failed"] == 0
    assert score["success"] == wanted["success"] and score["success"]["mean"] == 1.0
    assert acts(tmp_path / "a") == acts(tmp_path / "b")


def acts(folder: Path) -> dict[Any, Any]:
    """Who did what, less the ids of calls: a library has ids of its own."""
    return {
        episode.id: [
            (turn.agent, turn.action.text, [(call.name, call.arguments) for call in turn.action.tool_calls])
            for turn in episode.turns
        ]
        for episode in gem_ma.read_episodes(folder)
    }  # fmt: skip


def test_its_tokens_are_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model"
    make_model(model, registry.make("retail", data="own"))
    sent: list[Any] = []

    def completion(reply: Any, *rest: Any) -> Any:
        sent.append(reply)
        return answers.completion(reply, *rest)

    monkeypatch.setattr(routes, "completion", completion)
    # an untrained model serves nobody, so the rules pay nothing: a cost of each turn tells plays
    # apart, whose lengths differ
    words = [
        *SEAT, f"policies.main.model=transformers/{model}", "policies.main.constrain=null",
        "policies.main.max_tokens=24", "run.max_steps=9", "evaluate.episodes=2",
        "scenario.wrappers=[{reward: {per_step: -0.1}}]", "train.policies=[main]", "train.steps=1",
        "train.episodes=6", "train.lr=1e-3", "train.estimator.name=rebn",
    ]  # fmt: skip
    config = load("retail_scripted", words, configs_first=True)
    summary = with_agents(2, lambda: gem_ma.train(config, out=tmp_path / "run"))
    learned = tmp_path / "run" / summary["models"]["main"]["path"]
    before, after = (load_file(folder / "model.safetensors") for folder in (model, learned))
    moved = max(float((after[name] - weight).abs().max()) for name, weight in before.items())
    assert moved > 1e-4

    record = list(gem_ma.read_episodes(tmp_path / "run"))
    table = credit.turns(record, "main")
    made = samples(table, np.ones(len(table.turns)), "main")
    trained = sorted(tuple(each.response_ids[each.mask].tolist()) for each in made)
    plays: dict[Any, list[int]] = {}
    for each in made:
        plays.setdefault(each.episode, []).extend(each.response_ids[each.mask].tolist())
    assert len(record) == 6 and trained and all(each.end.scored for each in record)
    in_training = [reply for episode in record for turn in episode.turns for reply in turn.replies]
    assert all(reply in sent for reply in in_training)
    assert sum(map(len, plays.values())) == sum(len(reply.token_ids) for reply in in_training)
    for episode in record:
        ids = [i for turn in episode.turns for reply in turn.replies for i in reply.token_ids]
        assert plays[episode.id] == ids
        # one row a play: each prompt goes on from what was sampled, as that of `direct` does
        assert sum(each.episode == episode.id for each in made) == 1
