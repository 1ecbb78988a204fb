"""`gem-ma new model`: the context fits the scenario, whatever it is, and a scenario that cannot
be played costs a line and no more."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gem_ma import Ask, Scenario, registry
from gem_ma.cli.new import command
from gem_ma.driver.rollout import play
from gem_ma.kernel.errors import ConfigError, ScenarioError

pytest.importorskip("torch", reason="needs the train extra")

from gem_ma.engines.local import tiny
from gem_ma.engines.models.chat import Chat
from gem_ma.training.learner import positions
from gem_ma.training.learner.positions import LEAST, Measured, length, plans, talks_of

KINDS: dict[str, Callable[[Any], Any]] = {
    "word": tiny.word_tokenizer,
    "byte": tiny.byte_tokenizer,
}
UNSEEN = 7  # plays, on other tasks than the measured ones
HEARD = 300  # texts of a tokenizer: more would take seconds and change its lengths little


@pytest.fixture(autouse=True, scope="module")
def few_tasks() -> Iterator[None]:
    """Words are collected from a few tasks, since making two thousand of retail takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            tiny,
            "_tasks",
            lambda scenario, split: (
                list(islice(scenario.tasks(split), 20)) if positions._tasks(scenario, split) else []
            ),
        )
        yield


@pytest.mark.long
@pytest.mark.parametrize("scenario", sorted(registry.catalog("scenarios")))
def test_unseen_plays_of_the_default_cast_fit_with_room_to_spare(scenario: str) -> None:
    """Sizes differ in their tokenizer alone, as far as the length of a talk goes; there are two
    kinds."""
    played = registry.make(scenario)
    episodes = [asyncio.run(play(plan)) for plan in plans(played, UNSEEN)]
    assert all(episode.end.scored for episode in episodes)
    heard, measured = [*islice(tiny.texts(played, 0), HEARD)], Measured(played)
    for kind in KINDS:
        tokenizer = KINDS[kind](heard)
        chosen = measured(tokenizer)
        chat = Chat(tokenizer, frozenset({tokenizer.eos_token_id}))
        longest = max(length(chat, talk) for episode in episodes for talk in talks_of(episode))
        assert longest * 1.25 <= chosen, kind
        assert LEAST <= chosen <= max(LEAST, 8 * longest), kind


def test_all_sizes_have_a_tokenizer_of_these_kinds() -> None:
    assert {size.byte_level for size in tiny.SIZES.values()} == {True, False}


def new_model(path: Path, *words: str) -> Any:
    return CliRunner().invoke(command, ["model", str(path), *words], catch_exceptions=False)


@pytest.mark.long
def test_the_command_writes_and_says_how_long_a_talk_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "ENOUGH", 20_000)  # characters that the tokenizer hears
    made = new_model(tmp_path / "model", "--scenario", "retail", "--size", "nano")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (
        f"{config['max_position_embeddings']} positions: the longest talk of 12 scripted plays"
        " takes " in made.stdout
    )
    assert config["max_position_embeddings"] >= 16_384
    assert (
        json.loads((tmp_path / "model" / "tokenizer_config.json").read_text())["model_max_length"]
        == config["max_position_embeddings"]
    )


@pytest.mark.long
def test_a_typed_number_holds_with_a_warning_where_plays_do_not_fit_and_is_refused_where_the_start_does_not(
    tmp_path: Path,
) -> None:
    words = ("--scenario", "tic_tac_toe", "--positions")
    fits = new_model(tmp_path / "fits", *words, "300", "--json")
    assert json.loads(fits.stdout)["positions"] == 300 and "warning" not in fits.stderr
    short = new_model(tmp_path / "short", *words, "80", "--json")
    assert json.loads(short.stdout)["positions"] == 80
    assert short.stderr.count("\n") == 1
    assert "will run out of context with 80 positions" in short.stderr
    with pytest.raises(
        ConfigError, match=r"--positions 20: tic_tac_toe opens with \d+ tokens"
    ) as refused:
        new_model(tmp_path / "none", *words, "20")
    assert "\n" not in str(refused.value) and not (tmp_path / "none").exists()


class Played(Scenario):
    """One agent, asked again and again."""

    agents = ("a",)
    asked = 3

    def play(self, rng: Any, task: Any) -> Any:
        for _ in range(self.asked):
            yield Ask({"a": "word " * 10})


class Endless(Played):
    """A play that never ends."""

    asked = 1 << 60


class Long(Played):
    """Far more words than a model usually has positions."""

    asked = 300

    def play(self, rng: Any, task: Any) -> Any:
        for _ in range(self.asked):
            yield Ask({"a": "word " * 100})


class Raising(Played):
    """Fails after a while."""

    def play(self, rng: Any, task: Any) -> Any:
        yield Ask({"a": "word " * 10})
        raise RuntimeError("broken rules")


class Nothing(Played):
    """Fails before anybody is asked."""

    def play(self, rng: Any, task: Any) -> Any:
        raise RuntimeError("broken rules")
        yield


GIVEN_UP = threading.Event()


class Hanging(Played):
    """Does not give the word back."""

    def play(self, rng: Any, task: Any) -> Any:
        GIVEN_UP.wait()
        yield


class HangingLate(Played):
    """Answers twice, then no more."""

    def play(self, rng: Any, task: Any) -> Any:
        yield Ask({"a": "word"})
        yield Ask({"a": "word"})
        GIVEN_UP.wait()


class Untasked(Played):
    """Has no task in any split."""

    def tasks(self, split: str) -> Any:
        raise ConfigError(f"no split {split!r}")


class Policied(Played):
    """Names a behaviour that would ask a model."""

    default_cast = {"a": "direct"}


class Nameless(Played):
    """Names a behaviour that there is not."""

    default_cast = {"a": "no_such_player"}


BROKEN: dict[type[Scenario], tuple[bool, bool]] = {  # -> something was measured, plays were cut
    Played: (True, False),
    Endless: (True, True),
    Long: (True, False),
    Raising: (True, False),
    Nothing: (False, False),
    Untasked: (False, False),
    Policied: (True, False),
    Nameless: (True, False),
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_any_scenario_gets_a_context(kind: type[Scenario]) -> None:
    measured = Measured(kind())
    chosen = measured(tiny.word_tokenizer(["word yes no hello"]))
    assert (measured.need.longest > 0, measured.need.cut) == BROKEN[kind]
    assert chosen == measured.need.positions >= max(LEAST, 2 * measured.need.longest)
    assert ("could be played" in measured.source) == (not measured.need.longest)
    assert measured.warning is None
    if kind is Long:
        assert chosen > 30_000


@pytest.mark.parametrize("kind", [Hanging, HangingLate])
def test_a_scenario_that_hangs_is_told_in_a_line_before_its_words_are_collected(
    kind: type[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    GIVEN_UP.clear()
    monkeypatch.setattr(positions, "WAIT_S", 0.5)
    try:
        with pytest.raises(ScenarioError, match=r"does not end within 0\.5 s") as refused:
            Measured(kind())
    finally:
        GIVEN_UP.set()
    assert "\n" not in str(refused.value)
