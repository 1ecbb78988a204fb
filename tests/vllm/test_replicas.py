"""All weights at two real vLLM servers: one is killed and comes back with its old weights, the other
is killed for good, in the middle of a training."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gem_ma import config
from gem_ma.engines.base import Policy
from gem_ma.engines.vllm.engine import VLLM
from gem_ma.kernel.episode import End
from gem_ma.kernel.types import Sampling
from gem_ma.runs.store import RunFolder, read_episodes, read_metrics
from gem_ma.training.train import open_learner, run_training
from tests.vllm.serving import ROOT, VllmServer
from tests.vllm.test_weights import move

STEPS, EPISODES = 5, 48


@pytest.fixture(scope="module")
def pair(
    models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[VllmServer]]:
    logs = tmp_path_factory.mktemp("logs")
    started = [
        VllmServer(models["untied_words"], logs / f"{number}.log", lora=False).start()
        for number in range(2)
    ]
    try:
        yield [server.wait() for server in started]
    finally:
        for server in started:
            server.stop()


def test_all_weights_are_published_to_both_with_parity(
    pair: list[VllmServer], models: dict[str, Path]
) -> None:
    urls = [server.url for server in pair]
    engine = VLLM(str(models["untied_words"]), policy="main", base_url=urls)
    learner: Any = open_learner(Policy("main", engine, Sampling(max_tokens=8)))
    for seed in range(3):
        move(learner, seed)
        began = time.monotonic()
        engine.take(learner.parameters)
        taken = time.monotonic() - began
        numbers = learner.publish()
        print(
            f"all weights to 2 servers in {taken:.2f} s: parity {numbers['parity_gap']:.2g} nats,"
            f" servers {numbers['replica_gap']:.2g} apart"
        )
        assert numbers["parity_gap"] <= 1e-4 and numbers["replica_gap"] <= 1e-4
        assert numbers["replicas"] == 2


def test_a_training_loses_no_episode_where_one_server_is_restarted_and_the_other_dies(
    pair: list[VllmServer], models: dict[str, Path], tmp_path: Path, caplog: Any
) -> None:
    urls = [server.url for server in pair]
    main = {
        "model": f"vllm/{models['untied_words']}",
        "base_url": f"[{', '.join(urls)}]",
        "max_tokens": 8,
        "wall_s": 600,
    }
    settings = config.load(
        ROOT / "configs" / "referential.yaml",
        [
            "agents={speaker: {policy: main}, listener: {policy: main}}",
            f"policies={{main: {{{', '.join(f'{key}: {value}' for key, value in main.items())}}}}}",
            f"train={{policies: [main], steps: {STEPS}, episodes: {EPISODES}, lr: 0.003}}",
            "evaluate.episodes=8",
            "run.concurrency=16",
        ],
    ).config

    def restart() -> None:
        pair[0].stop(signal.SIGKILL)
        pair[0].start()

    def on_step(step: int, numbers: dict[str, Any]) -> None:
        # in the middle of the play of the next step
        if step == 1:
            threading.Timer(0.3, restart).start()
        if step == 3:
            threading.Timer(0.3, pair[1].stop, [signal.SIGKILL]).start()

    with RunFolder.open(
        tmp_path / "run", config_text="", resolved=settings.model_dump(mode="json")
    ) as folder:
        run_training(settings, folder, on_step=on_step)
    print(caplog.text)
    episodes = list(read_episodes(tmp_path / "run"))
    assert len(episodes) == STEPS * EPISODES
    assert {episode.end for episode in episodes} == {End.TERMINATED}
    lines = [
        one["policies"]["main"] for one in read_metrics(tmp_path / "run") if one["kind"] == "train"
    ]
    print([{key: line[key] for key in ("logprob_gap", "parity_gap", "replicas")} for line in lines])
    # of every token that was learned from
    assert all(line["logprob_gap"] <= 1e-4 and line["parity_gap"] <= 1e-4 for line in lines)
    assert "taken back" in caplog.text and caplog.text.count("set aside") >= 2
