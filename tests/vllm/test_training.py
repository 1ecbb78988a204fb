"""Training and playing over a vLLM server, and what comes of it when the server is restarted or
dies in the middle."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path

import pytest

from gem_ma import config
from gem_ma.cli.main import main
from gem_ma.config.settings import Config
from gem_ma.driver.rollout import Plan, play_many
from gem_ma.engines.base import Policy
from gem_ma.engines.local.transformers import Transformers
from gem_ma.engines.vllm.engine import VLLM
from gem_ma.kernel.episode import End, Seat
from gem_ma.kernel.errors import EndpointError
from gem_ma.kernel.types import Sampling
from gem_ma.registry import make
from gem_ma.runs.store import RunFolder, read_episodes, read_metrics
from gem_ma.training.learner.torch_learner import TorchLearner
from gem_ma.training.train import open_learner, run_training
from tests.vllm.serving import ROOT, VllmServer
from tests.vllm.test_weights import move

AGENTS = ("speaker", "listener")
SMALL = (
    "train.steps=3",
    "train.episodes=16",
    "evaluate.episodes=8",
    "train.loss.target_kl=null",
    "train.lr=0.01",
    "train.lr_final=1.0",
)


@pytest.fixture
def server(servers: dict[str, VllmServer]) -> VllmServer:
    """The server of the word-level model."""
    return servers["words"]


def settings_of(server: VllmServer, models: dict[str, Path], *more: str) -> Config:
    engine = {
        "model": f"vllm/{models['words']}",
        "base_url": server.url,
        "lora": "{rank: 4, alpha: 8}",
    }
    policies = [
        f"policies.{agent}.{key}={value}" for agent in AGENTS for key, value in engine.items()
    ]
    warm = [
        f"train.warm_start.{agent}.{key}" for agent in AGENTS for key in ("episodes=64", "steps=12")
    ]
    return config.load(
        ROOT / "configs" / "referential.yaml", [*policies, *SMALL, *warm, *more]
    ).config


def test_two_adapters_on_one_served_base_learn_referential(
    server: VllmServer, models: dict[str, Path], tmp_path: Path
) -> None:
    settings = settings_of(server, models)
    with RunFolder.open(
        tmp_path / "run", config_text="", resolved=settings.model_dump(mode="json")
    ) as folder:
        summary = run_training(settings, folder)
    assert (summary["changed"], summary["unchanged"]) == (list(AGENTS), [])
    lines = [line["policies"] for line in read_metrics(tmp_path / "run") if line["kind"] == "train"]
    assert len(lines) == 3
    for agent in AGENTS:
        own = [line[agent] for line in lines]
        print(
            agent,
            [
                {
                    key: f"{line[key]:.2g}"
                    for key in ("mismatch_kl", "logprob_gap", "parity_gap", "grad_norm")
                }
                for line in own
            ],
        )
        # 1 was published after the warm start
        assert [line["version"] for line in own] == [2, 3, 4]
        assert all(
            line["mismatch_kl"] < 1e-8
            and line["logprob_gap"] <= 1e-4
            and line["parity_gap"] <= 1e-4
            for line in own
        )
        assert all(line["grad_norm"] > 0 and line["lag"] == 0 for line in own)
    episodes = list(read_episodes(tmp_path / "run"))
    assert len(episodes) == 48 and not [
        episode for episode in episodes if episode.end is End.FAILED
    ]
    assert all(
        reply.token_ids and reply.logprobs and reply.policy == turn.agent
        for e in episodes
        for turn in e.turns
        for reply in turn.replies
    )


def test_snapshots_of_a_league_are_sampled_at_the_same_server(
    server: VllmServer, models: dict[str, Path], tmp_path: Path
) -> None:
    settings = settings_of(
        server,
        models,
        "train.opponents={latest: 0.5, uniform: 0.5}",
        "train.pool={every: 1, size: 4, loaded: 2}",
    )
    with RunFolder.open(
        tmp_path / "run", config_text="", resolved=settings.model_dump(mode="json")
    ) as folder:
        run_training(settings, folder)
    frozen = [
        (turn, reply)
        for e in read_episodes(tmp_path / "run")
        for turn in e.turns
        for reply in turn.replies
        if "@" in reply.policy
    ]
    assert {reply.policy.partition("@")[0] for _, reply in frozen} == set(AGENTS) and len(
        {reply.policy for _, reply in frozen}
    ) > 2
    for name in {reply.policy for _, reply in frozen}:
        engine = Transformers(str(tmp_path / "run" / "league" / name), policy=name)
        mine = [reply for _, reply in frozen if reply.policy == name]
        assert {reply.version for reply in mine} == {int(name.partition("@")[2])}
        scored = TorchLearner(engine).score([(reply.prompt_ids, reply.token_ids) for reply in mine])
        assert (
            max(
                abs(a - b)
                for reply, row in zip(mine, scored, strict=True)
                for a, b in zip(reply.logprobs, row, strict=True)
            )
            <= 1e-4
        )


def test_a_restart_in_the_middle_loses_no_episode_and_loads_the_adapters_again(
    server: VllmServer, models: dict[str, Path]
) -> None:
    engine = VLLM(
        str(models["words"]),
        policy="main",
        base_url=server.url,
        lora={"rank": 4},
        attempts=100,
        wall_s=600,
        concurrency=4,
    )
    learner = open_learner(Policy("main", engine, Sampling(max_tokens=16)))
    assert isinstance(learner, TorchLearner)
    move(learner, 1)
    learner.publish()
    scenario = make("dilemma", rounds=4, briefing=False)
    cast = {agent: Seat("direct", "main") for agent in scenario.agents}
    plans = [Plan(scenario, cast, "train/0", seed) for seed in range(24)]
    again: list[threading.Thread] = []

    def restart() -> None:
        server.stop(signal.SIGKILL)
        server.start().wait()

    async def playing() -> list[End]:
        ends, attempts = [], 0
        async for episode in play_many(
            plans, {"main": Policy("main", engine, Sampling(max_tokens=16))}, concurrency=8
        ):
            ends.append(episode.end)
            replies = [reply for turn in episode.turns for reply in turn.replies]
            assert len(replies) == 8 and {reply.version for reply in replies} == {1}
            attempts += sum(len(reply.attempts) for reply in replies)
            if len(ends) == 4:
                again.append(threading.Thread(target=restart))
                again[0].start()
        assert attempts > 0  # it was gone for a while
        return ends

    ends = asyncio.run(playing())
    again[0].join()
    assert ends == [End.TERMINATED] * 24
    assert learner.check()["parity_gap"] <= 1e-4  # the adapter of version 1, not the base


def test_a_server_that_dies_ends_the_run_with_exit_code_3(
    server: VllmServer,
    models: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("talk.yaml").write_text(f"""
scenario: {{id: dilemma, rounds: 40, briefing: false, tasks: 64}}
agents: {{player_0: {{policy: main}}, player_1: {{policy: main}}}}
policies: {{main: {{model: "vllm/{models["words"]}", base_url: "{server.url}", max_tokens: 16}}}}
run: {{concurrency: 4, baselines: false}}
retry: {{attempts: 3, wall_s: 20}}
""")
    threading.Timer(6.0, server.stop, [signal.SIGKILL]).start()
    code = main(["run", "talk.yaml", "--out", "out"])
    told = capsys.readouterr().err
    assert (
        code == 3
        and "cannot be reached" in told
        and "resume with: gem-ma resume out" in told
        and "Traceback" not in told
    )
    with pytest.raises(EndpointError, match="cannot be reached: start it, or correct base_url"):
        asyncio.run(
            VLLM(str(models["words"]), policy="main", base_url=server.url, attempts=2).ping()
        )
