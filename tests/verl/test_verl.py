"""The agent loop and the estimators inside verl: its own classes take what they give. Its trainer
wants GPUs and is not run. In an environment of its own: make test-verl."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.verl
pytest.importorskip("verl", reason="make test-verl has it")

import torch  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from verl.experimental.agent_loop.agent_loop import DictConfigWrap  # noqa: E402
from verl.protocol import DataProto  # noqa: E402
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories  # noqa: E402

from gem_ma.trainers import verl  # noqa: E402
from gem_ma.trainers.course import Outside  # noqa: E402

CONFIG = """
scenario: {id: kuhn_poker}
agents: {player_0: {policy: main}, player_1: {policy: main}}
policies: {main: {model: transformers/nowhere, constrain: null}}
train: {policies: [main]}
"""


class Manager:
    """verl's servers: bets or passes, whatever it is shown."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.count = tokenizer, 0

    async def generate(self, request_id: str, *, prompt_ids: Any, sampling_params: Any) -> Any:
        self.count += 1
        word = ("bet", "pass", "call", "check")[self.count % 4]
        ids = [*self.tokenizer.encode(word, add_special_tokens=False), self.tokenizer.eos_token_id]
        return SimpleNamespace(token_ids=ids, log_probs=[-0.5] * len(ids))


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoTokenizer

    from gem_ma import registry
    from gem_ma.engines.local.tiny import make_model

    folder = tmp_path_factory.mktemp("verl")
    make_model(folder / "model", registry.make("kuhn_poker"))
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    rollout = {"prompt_length": 64, "response_length": 64, "temperature": 1.0}
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"rollout": rollout},
            "algorithm": {"adv_estimator": "gem_ma_rebn"},
            "trainer": {"use_v1": True},
            "data": {},
        }
    )
    wrapped, data = DictConfigWrap(config), DictConfigWrap(config.data)
    return verl.GemLoop(
        wrapped, Manager(tokenizer), tokenizer, None, None, data, hf_model_type=None
    )


def test_every_seat_is_an_output_and_the_estimator_gives_each_its_own_advantage(
    loop: Any, tmp_path: Path
) -> None:
    (tmp_path / "kuhn.yaml").write_text(CONFIG)
    rows = verl.rows(str(tmp_path / "kuhn.yaml"), 8)

    async def work() -> list[Any]:
        sampling = {"temperature": 1.0}
        return [
            await loop.run(sampling, extra_info=row["extra_info"], uid=str(number))
            for number, row in enumerate(rows)
        ]

    made = asyncio.run(work())
    assert all(
        {each.extra_fields["agent"] for each in play} == {"player_0", "player_1"} for play in made
    )
    flat = [each.as_dict() for play in made for each in play]
    for each in flat:
        assert (
            each["rm_scores"].shape
            == each["response_mask"].shape
            == each["rollout_log_probs"].shape
        )
        assert "token_rewards" not in each

    def padded(name: str) -> Any:
        return torch.nn.utils.rnn.pad_sequence([each[name] for each in flat], batch_first=True)

    keys = [f"{number}_0_{place}" for number, play in enumerate(made) for place in range(len(play))]
    uid = np.array([key.split("_")[0] for key in keys], dtype=object)
    tensors = {"token_level_rewards": padded("rm_scores"), "response_mask": padded("response_mask")}
    data = DataProto.from_dict(tensors=tensors, non_tensors={"uid": uid})
    done = compute_advantage_for_multi_trajectories(
        data, keys, adv_estimator="gem_ma_rebn", config=OmegaConf.create({})
    )
    mask = tensors["response_mask"].bool()
    advantages = done.batch["advantages"]
    assert torch.isfinite(advantages).all() and float(advantages[~mask].abs().max()) == 0
    # zero-sum: what one seat wins the other loses, so no play gives both the same
    totals = [each.extra_fields["total"] for play in made for each in play]
    assert sum(totals) == 0 and len(set(totals)) > 1
    first = [float(row[flags.nonzero()[0]]) for row, flags in zip(advantages, mask, strict=True)]
    order = np.argsort(totals)
    assert first[order[0]] < 0 < first[order[-1]]


def test_the_learned_seats_are_those_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "kuhn.yaml").write_text(
        CONFIG.replace("player_1: {policy: main}", "player_1: {behaviour: random_legal}")
    )
    assert Outside(tmp_path / "kuhn.yaml").agents == ("player_0",)
