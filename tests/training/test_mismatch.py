"""What is learned was drawn as the learner scores it: a behaviour's own sampling is refused, and
any other difference stops the run."""

from __future__ import annotations

import math
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gem_ma import config
from gem_ma.config.settings import Config
from gem_ma.driver.limits import DRAWS
from gem_ma.engines.small.table import Table
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Action, Asked, Reply, Request
from gem_ma.runs.store import read_metrics
from gem_ma.training.learner.parity import check_fresh, fresh_gap
from gem_ma.training.train import run_training
from tests.broken_runs import trained


class Own:
    """Answers by its policy, with sampling options of its own; `hush` is a behaviour that
    catches what its model raises."""

    def __init__(
        self,
        agent: str,
        sample: Any,
        rng: Any,
        task: Any = None,
        hush: bool = False,
        **options: Any,
    ) -> None:
        self.sample, self.hush, self.options = sample, hush, options

    async def act(self, asked: Asked) -> Action | str:
        with suppress(Exception) if self.hush else nullcontext():
            return str(
                (await self.sample(asked.transcript, legal=asked.legal, **self.options)).text
            )
        return (asked.legal or ("",))[0]


def kuhn(*overrides: str, **options: Any) -> Config:
    """Two steps of Kuhn on the table engine, in which player_1 samples with options of its own."""
    small = ("train.steps=2", "train.episodes=8", "evaluate.episodes=4", *overrides)
    loaded = config.load("kuhn_table", small).config
    seat = loaded.agents["player_1"].model_copy(
        update={"behaviour": "tests.training.test_mismatch:Own", "options": options}
    )
    return loaded.model_copy(update={"agents": {**loaded.agents, "player_1": seat}})


OTHERWISE = {"temperature": (0.0, 0.7, 1.5), "top_p": (0.5,), "top_k": (1, 3)}


@pytest.mark.parametrize(
    ("key", "value", "hush"),
    [
        *((key, value, False) for key, values in OTHERWISE.items() for value in values),
        ("temperature", 0.7, True),
    ],
)
def test_a_behaviour_that_draws_a_learned_policy_in_its_own_way_ends_the_run_in_words(
    key: str, value: float, hush: bool
) -> None:
    assert OTHERWISE.keys() == set(DRAWS)
    with pytest.raises(
        ConfigError,
        match=(
            rf"agent 'player_1'.* samples policy 'main' with {key} {value}, .*policies.main.{key}"
        ),
    ):
        run_training(kuhn(hush=hush, **{key: value}))


@pytest.mark.parametrize(
    "own",
    [
        {"temperature": 1.0, "top_p": 1.0, "top_k": 0},
        {"temperature": 1},
        {"max_tokens": 3, "stop": ("x",)},
    ],
)
def test_the_configs_own_values_and_what_only_ends_a_reply_are_harmless(
    own: dict[str, Any], tmp_path: Path
) -> None:
    trained(tmp_path / "run", kuhn(**own))
    lines = [
        line["policies"]["main"]
        for line in read_metrics(tmp_path / "run")
        if line["kind"] == "train"
    ]
    assert [line["fresh_gap"] < 1e-12 for line in lines] == [True, True]


def test_a_policy_that_does_not_learn_is_drawn_as_its_behaviour_likes(tmp_path: Path) -> None:
    other = (
        "policies.other.model=table/softmax",
        "agents.player_0.policy=other",
        "train.policies=[other]",
    )
    trained(tmp_path / "run", kuhn(*other, temperature=0.0))


def test_tokens_that_were_drawn_otherwise_than_the_learner_scores_them_stop_the_run_before_they_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Table.sample

    # an engine that draws otherwise and tells the truth about it
    async def louder(engine: Table, request: Request) -> Reply:
        return await honest(
            engine, replace(request, sampling=replace(request.sampling, temperature=2.0))
        )

    settings = kuhn("train.steps=3", "train.lr=3.0", "train.save_every=1")
    monkeypatch.setattr(Table, "sample", louder)
    with pytest.raises(
        EngineError,
        match=(
            r"policy 'main', step 2: .* nats apart on average, 1e-05 are allowed.*a behaviour that"
            r" samples"
        ),
    ):
        # uniform logits are alike at every temperature: step 1 moves them
        trained(tmp_path / "run", settings)
    assert [line["kind"] for line in read_metrics(tmp_path / "run")] == ["evaluation", "train"]
    monkeypatch.setattr(Table, "sample", honest)
    trained(tmp_path / "run", settings)


def test_tokens_of_older_weights_and_differences_of_rounding_are_no_mismatch() -> None:
    sampled, scored = np.array([-1.0, -2.0, -3.0]), np.array([-1.0, -2.5, -3.0])
    fresh = np.array([True, False, True])
    assert fresh_gap(sampled, scored, fresh) == {"fresh_gap": 0.0}
    # half a nat of a token that may be off by 1 + 2.5 / 2, and one token may lie 1 + 3 times as far
    assert fresh_gap(sampled, scored, ~fresh) == {"fresh_gap": pytest.approx(0.5 / 2.25 / 4)}
    assert fresh_gap(sampled, scored, np.zeros(3, np.bool_)) == {}
    for gap in (None, 0.0, 1e-5):
        check_fresh("main", 1, gap, 1e-5)
    for gap in (1.01e-5, math.inf, math.nan):
        with pytest.raises(EngineError, match="policy 'main', step 4"):
            check_fresh("main", 4, gap, 1e-5)


def test_a_few_choices_that_repeat_their_rounding_are_no_mismatch() -> None:
    # as the first step of SmolLM2 in bfloat16, which allowed .006: most tokens have one choice
    scored = np.repeat([0.0, -0.96, -1.25, -1.1], [367, 24, 40, 33])
    sampled = scored + np.repeat([0.0, 0.145, 0.004, 0.005], [367, 24, 40, 33])
    every = np.ones(464, np.bool_)
    check_fresh("main", 1, fresh_gap(sampled, scored, every)["fresh_gap"], 0.006)
    # the same of as many choices as tokens is the mistake of all, not the luck of one
    various = scored - np.linspace(0, 1e-3, 464)
    told = fresh_gap(sampled + various - scored, various, every)["fresh_gap"]
    assert told == pytest.approx(0.00483, rel=0.01)
    with pytest.raises(EngineError):
        check_fresh("main", 1, told, 0.0045)


@pytest.mark.parametrize("choices", [20, 300, 3000])
@pytest.mark.parametrize("temperature", [0.8, 1.25])
def test_another_temperature_stops_however_often_its_choices_repeat(
    choices: int, temperature: float
) -> None:
    rng = np.random.default_rng(choices)
    scores = rng.normal(0, 2, (choices, 2))
    rightly = scores - np.logaddexp.reduce(scores, 1)[:, None]
    drawn = scores / temperature - np.logaddexp.reduce(scores / temperature, 1)[:, None]
    taken = np.arange(choices), (rng.random(choices) < np.exp(drawn[:, 1])).astype(int)
    which = rng.integers(choices, size=3000)
    every = np.ones(3000, np.bool_)
    gap = fresh_gap(drawn[taken][which], rightly[taken][which], every)["fresh_gap"]
    with pytest.raises(EngineError):
        check_fresh("main", 1, gap, 0.007)  # what SmolLM2 in bfloat16 is allowed


class Narrow(Own):
    """Lets its model choose among less than it was asked."""

    async def act(self, asked: Asked) -> Action | str:
        return str((await self.sample(asked.transcript, legal=(asked.legal or ("",))[:1])).text)


@pytest.mark.long
def test_a_language_model_that_chose_among_other_strings_than_its_turn_records_stops_the_run(
    thin_model: Path,
) -> None:
    pytest.importorskip("torch", reason="needs the train extra")
    model = (
        f"policies.main.model=transformers/{thin_model}",
        "policies.main.constrain=legal",
        "policies.main.max_tokens=4",
        "train.lr=0.001",
    )
    clean = kuhn(*model, "train.steps=1")
    run_training(clean)
    narrow = clean.agents["player_1"].model_copy(
        update={"behaviour": "tests.training.test_mismatch:Narrow"}
    )
    with pytest.raises(EngineError, match=r"policy 'main', step 1: .*legal strings"):
        run_training(clean.model_copy(update={"agents": {**clean.agents, "player_1": narrow}}))
