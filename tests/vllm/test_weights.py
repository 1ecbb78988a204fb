"""Weights on their way to a vLLM server: a change is seen, and weights or caches that are old
are found out by the parity check."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from gem_ma.engines.base import Policy
from gem_ma.engines.vllm.engine import VLLM
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Message, Reply, Request, Sampling
from gem_ma.training.learner.torch_learner import TorchLearner
from gem_ma.training.train import open_learner
from tests.vllm.serving import VllmServer

LORA = {"rank": 4, "alpha": 8.0}
SAMPLING = Sampling(max_tokens=8)


def policy_at(
    server: VllmServer,
    models: dict[str, Path],
    kind: type[VLLM] = VLLM,
    name: str = "main",
    **options: Any,
) -> tuple[VLLM, TorchLearner]:
    engine = kind(
        str(models["bytes"]), policy=name, base_url=server.url, **{"lora": LORA, **options}
    )
    learner = open_learner(Policy(name, engine, SAMPLING))
    assert isinstance(learner, TorchLearner)
    return engine, learner


def move(learner: TorchLearner, seed: int) -> None:
    """Other weights, far enough that sampling differs by far more than the parity allows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in learner.parameters.values():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.3)


def ask(engine: VLLM, text: str = "hello", seed: int = 1) -> Reply:
    return asyncio.run(
        engine.sample(Request("a", (Message(text),), sampling=Sampling(max_tokens=12), seed=seed))
    )


def served(server: VllmServer) -> list[str]:
    with urllib.request.urlopen(f"{server.url}/models", timeout=10) as answer:
        return [one["id"] for one in json.load(answer)["data"]]


def post(server: VllmServer, path: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=30).close()


def test_an_adapter_under_a_new_name_is_sampled_from_at_once(
    server: VllmServer, models: dict[str, Path]
) -> None:
    engine, learner = policy_at(server, models)
    before = ask(engine)
    names, gaps = [engine._now.name], []  # type: ignore[union-attr]
    for seed in range(3):
        move(learner, seed)
        gaps.append(learner.publish()["parity_gap"])
        names.append(engine._now.name)  # type: ignore[union-attr]
    after = ask(engine)
    print(f"LoRA by new name: parity gaps {', '.join(f'{gap:.2g}' for gap in gaps)} nats")
    assert max(gaps) <= 1e-4 and len(set(names)) == 4
    assert (before.version, after.version) == (0, 3) and before.token_ids != after.token_ids
    at_server = served(server)
    # a request may still run on the version before
    assert names[-1] in at_server and names[-2] in at_server
    assert names[0] not in at_server and names[1] not in at_server


def test_the_parity_check_meets_the_prefix_cache(
    server: VllmServer, models: dict[str, Path]
) -> None:
    engine, learner = policy_at(server, models)
    move(learner, 0)
    learner.publish()
    prompts = engine.probes
    assert len(prompts) >= 4 and all(len(prompt) >= 3 * 128 for prompt in prompts)
    wanted = [engine._wanted(prompt, SAMPLING, 9, "") for prompt in prompts]
    replies = [asyncio.run(engine._draw(one)) for one in wanted]
    assert [reply.usage.cached_tokens for reply in replies] == [384] * len(prompts)


class Forgetful(VLLM):
    """Says that it took the weights, and keeps the old ones."""

    def take(self, weights: Mapping[str, Any]) -> None:
        if self._now is None:
            super().take(weights)


def test_a_sampler_that_keeps_the_old_weights_is_caught(
    server: VllmServer, models: dict[str, Path]
) -> None:
    _, learner = policy_at(server, models, Forgetful)
    move(learner, 2)
    with pytest.raises(EngineError, match="published by adapter"):
        learner.publish()


def test_two_policies_share_one_served_base_and_keep_apart(
    server: VllmServer, models: dict[str, Path]
) -> None:
    (one, first), (other, second) = (
        policy_at(server, models, name=name) for name in ("one", "other")
    )
    move(first, 1)
    move(second, 2)
    assert first.publish()["parity_gap"] <= 1e-4 and second.publish()["parity_gap"] <= 1e-4
    assert first.engine.model is second.engine.model  # nor are there two bases here
    assert ask(one).token_ids != ask(other).token_ids
    assert first.check()["parity_gap"] <= 1e-4 and second.check()["parity_gap"] <= 1e-4


def test_an_adapter_that_the_server_has_forgotten_is_loaded_again(
    server: VllmServer, models: dict[str, Path]
) -> None:
    engine, learner = policy_at(server, models)
    move(learner, 3)
    learner.publish()
    before = ask(engine)
    post(server, "/unload_lora_adapter", {"lora_name": engine._now.name})  # type: ignore[union-attr]

    async def many() -> list[Reply]:
        requests = [
            Request("a", (Message("hello"),), sampling=Sampling(max_tokens=12), seed=seed)
            for seed in range(1, 17)
        ]
        return list(await asyncio.gather(*map(engine.sample, requests)))

    replies = asyncio.run(many())
    assert replies[0].token_ids == before.token_ids and learner.check()["parity_gap"] <= 1e-4


def test_a_checkpoint_puts_the_adapter_back_and_checks_it(
    server: VllmServer, models: dict[str, Path]
) -> None:
    engine, learner = policy_at(server, models)
    move(learner, 4)
    learner.publish()
    files, before = learner.state(), ask(engine)
    other, resumed = policy_at(server, models)
    resumed.load(files)
    assert (
        other.version == 1
        and ask(other).token_ids == before.token_ids
        and resumed.check()["parity_gap"] <= 1e-4
    )


def test_the_folder_of_an_adapter_is_sampled_from_without_a_learner(
    server: VllmServer, models: dict[str, Path], tmp_path: Path
) -> None:
    engine, learner = policy_at(server, models)
    move(learner, 5)
    learner.publish()
    engine.save(tmp_path / "adapter")
    frozen = VLLM(
        str(models["bytes"]), policy="frozen", base_url=server.url, lora=str(tmp_path / "adapter")
    )
    assert (
        ask(frozen).token_ids == ask(engine).token_ids
        and frozen.fingerprint() == engine.fingerprint()
    )


def test_a_server_that_keeps_a_tied_head_is_found_out_and_left_as_it_was(
    server: VllmServer, models: dict[str, Path]
) -> None:
    engine = VLLM(str(models["bytes"]), policy="main", base_url=server.url)
    before = ask(engine).token_ids
    with pytest.raises(ConfigError, match=r"tied embeddings, as was tried; add lora: \{rank: 8\}"):
        open_learner(Policy("main", engine, SAMPLING))
    engine.unpublished = False  # nothing was learned
    assert ask(engine).token_ids == before


def test_a_rank_above_that_of_the_server_is_told_in_its_words(
    server: VllmServer, models: dict[str, Path]
) -> None:
    with pytest.raises(EngineError, match=r"did not load the adapter .*16"):
        policy_at(server, models, lora={"rank": 16})
