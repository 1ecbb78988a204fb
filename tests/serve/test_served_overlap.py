"""A training that plays ahead at servers (`train.overlap`): every reply was given by the weights of
the version that it names, also where a server loses its weights under the plays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from gem_ma import config
from gem_ma.engines.local.transformers import Transformers
from gem_ma.engines.vllm.engine import VLLM
from gem_ma.kernel.episode import End, Episode
from gem_ma.runs.store import read_episodes
from gem_ma.training.learner.torch_learner import TorchLearner
from gem_ma.training.train import run_training
from tests.broken_runs import opened
from tests.engines import test_replicas
from tests.vllm_server import FakeVllm

quick, model = test_replicas.quick, test_replicas.model
CONFIGS = Path(__file__).parents[2] / "configs"
PLAYED = 4  # tokens of a reply, which checks of parity do not ask for
SMALL = (
    "train.steps=4",
    "train.episodes=16",
    "train.lr=0.02",
    "train.warm_start={}",
    "train.loss.target_kl=null",
    "evaluate.episodes=8",
    "run.concurrency=8",
)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The weights of every version, as they were sent."""
    sent: list[dict[str, Any]] = []
    take = VLLM.take

    def remembered(self: VLLM, weights: Any) -> None:
        sent.append({name: weight.detach().clone() for name, weight in weights.items()})
        take(self, weights)

    monkeypatch.setattr(VLLM, "take", remembered)
    yield sent


def trained(servers: list[FakeVllm], model: Path, out: Path, *overrides: str) -> list[Episode]:
    urls = ", ".join(server.url for server in servers)
    policy = f"{{model: vllm/{model}, base_url: [{urls}], max_tokens: {PLAYED}, timeout_s: 60}}"
    settings = config.load(
        CONFIGS / "kuhn_tiny.yaml", [f"policies.main={policy}", *SMALL, *overrides]
    ).config
    with opened(out, settings) as folder:
        run_training(settings, folder)
    return list(read_episodes(out))


def gaps(
    episodes: list[Episode], model: Path, published: list[dict[str, Any]], off: int = 0
) -> list[float]:
    """Of each reply, nats to the weights of the version that it names, or of one `off` it."""
    learner = TorchLearner(Transformers(str(model), policy="main"))
    found = []
    for episode in episodes:
        for turn in episode.turns:
            for reply in turn.replies:
                weights = published[min(reply.version + off, len(published) - 1)]
                with learner.holding(weights):
                    (scored,) = learner.score([(reply.prompt_ids, reply.token_ids)])
                pairs = zip(scored, reply.logprobs, strict=True)
                found.append(max(abs(one - other) for one, other in pairs))
    return found


@pytest.mark.longest
@pytest.mark.parametrize("overlap", [1, 2])
@pytest.mark.parametrize("restarted", [False, True])
def test_every_reply_is_of_the_weights_of_its_version(
    model: Path,
    published: list[dict[str, Any]],
    tmp_path: Path,
    overlap: int,
    restarted: bool,
) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(FakeVllm(model)) for _ in range(2)]
        if restarted:
            loses_its_weights(servers[1])
        episodes = trained(servers, model, tmp_path / "run", f"train.overlap={overlap}")
    assert len(episodes) == 64 and not [one for one in episodes if one.end is End.FAILED]
    versions = {reply.version for one in episodes for turn in one.turns for reply in turn.replies}
    assert versions == set(range(4 - overlap))
    assert max(gaps(episodes, model, published)) <= 1e-4
    assert sum(gap > 1e-4 for gap in gaps(episodes, model, published, 1)) > 100  # else all is alike
    if restarted:
        moved = [
            reply
            for one in episodes
            for turn in one.turns
            for reply in turn.replies
            if reply.attempts
        ]
        assert any("was it restarted?" in reply.attempts[0].detail for reply in moved)


def loses_its_weights(server: FakeVllm) -> None:
    """It is restarted before it answers the first play with what was published second."""
    answer = server._completions
    played: list[str] = []  # the names of the weights that plays came from

    def answered(body: dict[str, Any]) -> Any:
        plays = body["max_tokens"] == PLAYED and not body.get("allowed_token_ids")
        if plays and server.name not in played:
            played.append(server.name)
            if len(played) == 2:
                server.restart()
        return answer(body)

    server._completions = answered  # type: ignore[method-assign]
