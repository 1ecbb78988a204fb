"""Collapse detectors: each on the failure that it is for, and silent on a healthy run."""

from __future__ import annotations

import asyncio
import math
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gem_ma import config
from gem_ma.config.document import parted
from gem_ma.config.settings import Config
from gem_ma.engines.base import Policy
from gem_ma.engines.small.table import Table, view_key
from gem_ma.kernel.episode import End, Entry, Episode, Seat
from gem_ma.kernel.types import Action, Malformed, Message, Reply, Turn
from gem_ma.pages.static.learning import alarms_told
from gem_ma.registry import make
from gem_ma.runs.plans import open_policies, scenario_of
from gem_ma.runs.store import RunFolder, read_metrics
from gem_ma.runs.worlds import worlds_of
from gem_ma.scores.exploitability import engine_strategy, exploitability
from gem_ma.training.loop.exams import exam_plans
from gem_ma.training.loop.local import LocalPlayers
from gem_ma.training.loop.saving import checked_state
from gem_ma.training.loop.step import Step
from gem_ma.training.selfplay import collapse
from gem_ma.training.selfplay.collapse import Detectors, Guard
from gem_ma.training.selfplay.signs import first_share, health, private_effect
from gem_ma.training.train import open_learner, train
from tests.plays import recorded

KUHN = ("train.episodes=64", "evaluate.episodes=128", "train.save_every=10")


def kuhn(*overrides: str) -> Config:
    # a key is typed once: the last value of each
    last = {override.partition("=")[0]: override for override in (*KUHN, *overrides)}
    return config.load("kuhn_table", list(last.values())).config


def trained(
    path: Path,
    settings: Config,
    policies: dict[str, Policy] | None = None,
    notes: list[str] | None = None,
) -> dict:
    with RunFolder.open(path, config_text="", resolved=settings.model_dump(mode="json")) as folder:
        say = notes.append if notes is not None else None
        return asyncio.run(
            train(
                settings,
                scenario_of(settings),
                policies or open_policies(settings),
                folder,
                on_note=say,
            )
        )


def alarms(path: Path) -> list[dict]:
    return [line for line in read_metrics(path) if line["kind"] == "alarm"]


def said(
    choice: str, tokens: tuple[int, ...], logprobs: tuple[float, ...], legal=("check", "bet")
) -> Episode:
    reply = Reply(choice, (), (1,), tokens, logprobs, policy="main")
    turn = Turn(
        0,
        "a",
        (),
        legal,
        (),
        Action(choice, (), choice if legal and choice in legal else None),
        (reply,),
    )
    return recorded({"a": Seat(policy="main")}, (turn,), (Entry(0, "a", 1.0),), scenario="s")


# -- what is measured ----------------------------------------------------------------------------


def test_entropy_is_that_of_the_token_at_which_choices_part_not_of_the_format():
    half, quarter = math.log(0.5), math.log(0.25)
    played = [
        said("check", (7, 8, 3), (quarter, half, 0.0)),
        said("bet", (7, 9, 3), (quarter, quarter, 0.0)),
    ]
    found = health(played, "main")
    assert found["entropy"] == pytest.approx((-half - quarter) / 2)
    assert found["one_action"] == 0.5 and found["decisions"] == 2 and found["length"] == 3
    alone = health(
        [said("check", (7, 8, 3), (-0.1, -0.7, 0.0)), said("check", (7, 8, 3), (-0.1, -0.9, 0.0))],
        "main",
    )
    assert alone["entropy"] == pytest.approx(0.8)  # one choice only: the least certain token
    unread = health([said("hm", (5,), (-2.0,)), said("check", (7, 8), (0.0, -1.0))], "main")
    assert unread["invalid"] == 0.5 and unread["entropy"] == pytest.approx(1.0)
    assert health(played, "other") == {}
    assert health([replace(played[0], end=End.FAILED)], "main") == {}


def test_forced_turns_are_no_decisions():
    assert health([said("check", (7,), (0.0,), legal=("check",))], "main") == {
        "turns": 1.0,
        "length": 1.0,
        "invalid": 0.0,
        "decisions": 0.0,
    }


def test_talk_has_a_length_and_malformed_calls_but_no_decisions():
    one = said("let me look", (7, 8), (0.0, -1.0), legal=None)
    broken = replace(one.turns[0], action=Action("", (Malformed("{", "no JSON"),)))
    assert health([one, replace(one, turns=(broken,))], "main") == {
        "turns": 2.0,
        "length": 2.0,
        "invalid": 0.5,
        "decisions": 0.0,
    }
    watch = Detectors(zero_sum=False)
    given = [
        watch.after_update("main", {"turns": 64.0, "length": length, "decisions": 0.0}, 0.0)
        for length in [10.0] * 10 + [25.0]
    ]
    assert [alarm.signal for alarms in given for alarm in alarms] == ["length"]


def test_the_first_agents_share_counts_ties_as_halves():
    def played(paid):
        one = said("check", (7,), (0.0,))
        return replace(
            one,
            cast={"a": Seat(), "b": Seat()},
            ledger=tuple(Entry(0, agent, value) for agent, value in paid.items()),
        )

    assert first_share(
        [played({"a": 1.0}), played({}), played({"b": 1.0}), played({"a": 2.0, "b": 1.0})]
    ) == (0.625, 4)
    assert first_share([said("check", (7,), (0.0,))]) is None


@pytest.fixture(scope="module")
def hands() -> list[Episode]:
    settings = kuhn()
    return asyncio.run(
        LocalPlayers(settings, open_policies(settings)).play(
            exam_plans(settings, make("kuhn_poker"))
        )
    )


def by_card(agent, view, legal):
    bold = {"J": 0.1, "Q": 0.5, "K": 0.8}[view[0].text.rstrip(".")[-1]]
    return [1 - bold, bold]


def by_history(agent, view, legal):
    return [0.9, 0.1] if "call" in legal else [0.2, 0.8]


def test_who_reads_its_card_is_told_from_who_reads_only_the_moves(hands):
    agents = ("player_0", "player_1")
    assert private_effect(by_card, hands, agents) == pytest.approx(0.7)
    # what both saw or said is not exchanged
    assert private_effect(by_history, hands, agents) == 0.0
    # hardly ever readable
    assert private_effect(
        lambda *view: [p / 1000 for p in by_card(*view)], hands, agents
    ) == pytest.approx(0.7)
    assert private_effect(by_card, hands, agents, probes=1) is None  # nothing to exchange with
    assert private_effect(by_card, hands, ()) is None


def test_a_game_without_secrets_has_no_deaf_player():
    board = Message("the board")
    turn = replace(said("check", (7,), (0.0,)).turns[0], observed=(board,))
    shown = replace(
        said("check", (7,), (0.0,)),
        turns=(turn,),
        cast={"a": Seat(), "b": Seat()},
        final={"b": (board,)},
    )
    assert private_effect(lambda *_: [0.5, 0.5], [shown, replace(shown, seed=1)], ("a",)) is None


# -- what is judged ------------------------------------------------------------------------------


def test_a_side_must_win_in_three_exams_by_more_than_noise():
    assert collapse.side([(0.8, 400)] * 3, "main") is not None
    assert collapse.side([(0.2, 400)] * 3, "main") is not None
    assert collapse.side([(0.5, 400), (0.8, 400), (0.8, 400)], "main") is None
    assert collapse.side([(0.8, 400)] * 2, "main") is None
    assert collapse.side([(0.64, 400)] * 3, "main") is None  # .15 is allowed
    assert collapse.side([(0.8, 16)] * 3, "main") is None  # 3 standard errors of 16 games are .375


def test_a_fall_against_an_anchor_must_pass_three_errors_of_the_difference():
    assert collapse.anchor([(0.5, 0.05), (0.1, 0.05)], "main", "x") is not None
    assert collapse.anchor([(0.5, 0.05), (0.3, 0.05)], "main", "x") is None  # 3 sqrt(2) .05 = .212
    assert collapse.anchor([(0.1, 0.05), (0.5, 0.05)], "main", "x") is None
    assert collapse.anchor([(0.5, 0.05)], "main", "x") is None


def test_entropy_alarms_when_it_is_gone_or_halves_in_ten_updates():
    assert collapse.entropy([0.04] * 3, "main") is not None
    assert collapse.entropy([0.6] * 3 + [0.5] * 7 + [0.29] * 3, "main") is not None
    assert collapse.entropy([0.6] * 3 + [0.5] * 7 + [0.31] * 3, "main") is None
    slow = [0.69 * 0.95**n for n in range(50)]
    assert all(collapse.entropy(slow[: n + 1], "main") is None for n in range(45))
    assert collapse.entropy([0.01] * 2, "main") is None


def test_doubled_values_and_one_action_alarm():
    assert collapse.doubled([4.0] * 10 + [8.1], "main", "length") is not None
    assert collapse.doubled([4.0] * 10 + [7.9], "main", "length") is None
    assert collapse.doubled([4.0] * 9 + [9.0], "main", "length") is None
    assert collapse.doubled([0.001] * 10 + [0.04], "main", "invalid", collapse.INVALID) is None
    assert collapse.doubled([0.001] * 10 + [0.06], "main", "invalid", collapse.INVALID) is not None
    assert collapse.one_action([0.96] * 3, "main") is not None
    assert collapse.one_action([0.94, 0.95, 0.95], "main") is None


def test_an_alarm_is_given_once_until_it_has_cleared():
    watch = Detectors(zero_sum=True)
    bad, good = (
        {"turns": 64.0, "decisions": 64.0, "one_action": 1.0},
        {
            "turns": 64.0,
            "decisions": 64.0,
            "one_action": 0.5,
        },
    )
    given = [
        len(watch.after_update("main", found, 0.0))
        for found in [bad] * 5 + [good] * 5 + [bad] * 4 + [good] * 13 + [bad] * 3
    ]
    # five good updates clear nothing, eleven do
    assert [at for at, alarms in enumerate(given) if alarms] == [2, 29]
    assert [
        len(Detectors(True).after_update("main", {**bad, "decisions": 8.0}, 0.0)) for _ in range(4)
    ] == [0] * 4


def test_low_entropy_is_learning_where_the_return_is_at_its_best_and_no_game_of_win_and_loss():
    found = {"turns": 64.0, "decisions": 64.0, "entropy": 0.01}
    team, duel = Detectors(zero_sum=False), Detectors(zero_sum=True)
    assert not [alarm for n in range(6) for alarm in team.after_update("main", found, n / 5)]
    assert [alarm.signal for n in range(6) for alarm in duel.after_update("main", found, 0.0)] == [
        "entropy"
    ]
    # the return has fallen
    assert [alarm.signal for n in range(6) for alarm in team.after_update("main", found, 0.2)] == [
        "entropy"
    ]


# -- runs that collapse --------------------------------------------------------------------------


class Blind(Table):
    """A table that is never shown its card: what a model is after cloning players who ignore
    theirs."""

    async def sample(self, request):
        return await super().sample(replace(request, messages=request.messages[1:]))

    def probabilities(self, request):
        return super().probabilities(replace(request, messages=request.messages[1:]))


@pytest.mark.longest
def test_a_card_blind_policy_stays_at_a_third_of_a_chip_and_is_found_deaf(tmp_path):
    settings, notes = kuhn("train.steps=40", "evaluate.every=20"), []
    summary = trained(
        tmp_path / "run", settings, {"main": Policy("main", Blind(policy="main"))}, notes
    )
    # no play that ignores its card does better
    assert summary["after"]["nash_conv"] >= 2 / 3 - 1e-9
    assert [(line["signal"], line["step"]) for line in alarms(tmp_path / "run")][:1] == [
        ("deaf", 10)  # ten steps before the first exam
    ]
    assert "plays without reading what it is shown" in notes[0]
    assert notes[0].startswith("step 10, policy main: ")
    assert abs(summary["after"]["sampled"]["return"]["player_0"]) < 0.6  # the reward shows nothing


@pytest.mark.long
def test_a_constant_policy_is_found_by_its_entropy_and_its_one_action(tmp_path):
    settings = kuhn("train.steps=4", "train.lr=0.000001")
    table = Table(policy="main")
    for card in (
        "Kuhn poker. Your card is J.",
        "Kuhn poker. Your card is Q.",
        "Kuhn poker. Your card is K.",
    ):
        _teach(table, card)
    trained(tmp_path / "run", settings, {"main": Policy("main", table)})
    assert {line["signal"] for line in alarms(tmp_path / "run")} >= {"entropy", "one_action"}
    told = alarms_told("", tmp_path / "run")
    assert told.count('<p class="warn">') == len(alarms(tmp_path / "run"))
    assert "alarm entropy of main, step 3: the entropy of its decisions is" in told


def _teach(table: Table, card: str) -> None:
    """Always bet, always call."""

    def ask(moves: str, legal: tuple[str, str]) -> Message:
        return Message(f"Moves so far: {moves}. Choose {legal[0]} or {legal[1]}.")

    check, fold = ("check", "bet"), ("fold", "call")
    own = (Message(card), ask("none", check), Message("check", "me"), ask("c b", fold))
    views = [
        (own[:2], check),
        (own, fold),
        ((Message(card), ask("c", check)), check),
        ((Message(card), ask("b", fold)), fold),
    ]
    for view, legal in views:
        table.logits[view_key("me", view, legal)] = np.array([-8.0, 8.0])


FAST = ("train.steps=40", "train.lr=400.0", "train.lr_final=1.0", "train.loss.entropy=0.0")


@pytest.mark.long
def test_a_learning_rate_that_is_too_high_is_told(tmp_path):
    trained(tmp_path / "warn", kuhn(*FAST, "train.steps=6"))
    told = alarms(tmp_path / "warn")
    assert told[0]["signal"] == "entropy" and told[0]["step"] <= 5


def guarded(*overrides: str) -> Guard:
    settings = kuhn(*overrides)
    policies = open_policies(settings)
    learners = {"main": open_learner(policies["main"])}
    return Guard(settings.train, worlds_of(settings), learners)


def test_an_alarm_is_said_once_and_its_other_steps_at_the_end():
    guard, notes = guarded(), []
    for number in (12, 85, 157, 160):
        step = Step(number, last=number == 160)
        if number < 160:
            guard._alarms = [collapse.Alarm("entropy", "main", 0.0, 0.05, "gone")]
        guard.examined(step)
        assert len(step.rows) == (number < 160)  # the record has all of them
        notes += step.notes
        again = guarded()
        again.load(guard.state())
        assert again.state() == guard.state()
        guard = again  # as after a kill
    assert [note.partition(";")[0] for note in notes] == [
        "step 12, policy main: gone",
        "policy main: entropy again at step 85, 157",
    ]


@pytest.mark.parametrize(
    ("signal", "override", "cure"),
    [
        ("entropy", "train.loss.entropy=0.01", "train.loss.entropy"),
        ("one_action", "train.per_policy.main={loss: {entropy: 0.02}}", "train.loss.entropy"),
        (
            "unreadable",
            "train.warm_start.main.cast.player_0.behaviour=noisy_kuhn",
            "train.warm_start",
        ),
        ("side", "train.opponents={latest: 0.5, uniform: 0.5}", "train.opponents"),
    ],
)
def test_a_cure_that_is_set_already_is_not_named(signal: str, override: str, cure: str) -> None:
    alarm = {"step": 3, "policy": "main", "signal": signal, "text": "gone"}
    # of this recipe, which has a bonus for entropy
    bare = () if override.startswith("train.loss.entropy") else ("train.loss.entropy=0.0",)
    assert cure in guarded("train.loss.entropy=0.0")._note(alarm)
    note = guarded(*bare, override)._note(alarm)
    assert cure not in note and note.startswith("step 3, policy main: gone")


@pytest.mark.parametrize("signal", ["deaf", "unreadable"])
def test_a_clone_that_is_advised_can_be_typed_as_it_stands(signal: str) -> None:
    guard = guarded()
    note = guard._note({"step": 3, "policy": "main", "signal": signal, "text": "gone"})
    advised = next(word for word in shlex.split(note) if word.startswith("train.warm_start"))
    settings = kuhn(advised.replace("FILE.py:NAME", "noisy_kuhn"))
    seats = settings.train.warm_start["main"].cast
    assert {seat.behaviour for seat in seats.values()} == {"noisy_kuhn"}
    # a dot in a name parts no keys
    guard.learners = {"gpt-4.1": guard.learners["main"]}
    note = guard._note({"step": 3, "policy": "gpt-4.1", "signal": signal, "text": "gone"})
    advised = next(word for word in shlex.split(note) if word.startswith("train.warm_start"))
    assert parted(advised)[0] == ("train", "warm_start", "gpt-4.1")


@pytest.mark.parametrize(
    ("overrides", "is_duel"),
    [
        ((), True),
        (("agents.player_1=random_legal",), False),
        (("agents.player_1=random_legal", "train.opponents={latest: 0.5, uniform: 0.5}"), True),
    ],
)
def test_a_return_against_players_who_stand_still_tells_what_was_learned(
    overrides: tuple[str, ...], is_duel: bool
) -> None:
    # so low entropy at the best return is no alarm there
    assert guarded(*overrides).detectors.zero_sum is is_duel


def test_the_return_that_is_judged_is_the_policys_own_where_players_change_seats() -> None:
    guard = guarded("agents.player_1=random_legal", "train.seats=swap")
    metrics = {
        "return": {"player_0": 0.0, "player_1": 0.0},
        "policies": {"main": {"return": {"player_0": 1.0, "player_1": 3.0}}},
    }
    guard.updated(Step(1, metrics=metrics))
    assert guard.detectors.past == {"main/paid": [2.0]}


@pytest.mark.longest
def test_a_model_that_was_cloned_deaf_is_told_so_before_it_learns(kuhn_model, tmp_path):
    notes: list[str] = []
    settings = kuhn(
        f"policies.main.model=transformers/{kuhn_model}",
        "policies.main.max_tokens=3",
        "train.warm_start.main.cast.player_0.behaviour=random_legal",
        "train.warm_start.main.cast.player_1.behaviour=random_legal",
        "train.warm_start.main.steps=40",
        "train.steps=1",
        "train.episodes=8",
        "evaluate.episodes=32",
    )
    trained(tmp_path / "run", settings, None, notes)
    assert any(note.startswith("step 0, policy main: what only it is shown") for note in notes)
    assert not any("train.policies=" in note for note in notes)
    assert ("deaf", 0) in [(line["signal"], line["step"]) for line in alarms(tmp_path / "run")]


@pytest.mark.longest
def test_a_healthy_run_is_silent(tmp_path):
    notes: list[str] = []
    summary = trained(
        tmp_path / "run",
        kuhn("train.episodes=128", "train.steps=60", "evaluate.every=20"),
        None,
        notes,
    )
    assert alarms(tmp_path / "run") == [] and notes == []
    assert summary["after"]["nash_conv"] < summary["before"]["nash_conv"] / 2
    assert summary["after"]["private_effect main"] > 0.5
    assert 0.3 < summary["after"]["first_share"] < 0.7
    line = next(line for line in read_metrics(tmp_path / "run") if line["kind"] == "train")
    assert {"decision_entropy", "one_action", "invalid_share", "reply_tokens", "decisions"} <= line[
        "policies"
    ]["main"].keys()


@pytest.mark.longest
def test_decision_entropy_of_a_table_is_near_the_exact_one(tmp_path):
    trained(tmp_path / "run", kuhn("train.steps=8", "train.episodes=256"))
    for line in read_metrics(tmp_path / "run"):
        if line["kind"] == "train":
            found = line["policies"]["main"]
            assert found["decision_entropy"] == pytest.approx(found["entropy"], abs=0.1)


@pytest.mark.long
def test_off_measures_nothing(tmp_path):
    summary = trained(tmp_path / "run", kuhn(*FAST, "train.steps=3", "train.on_collapse=off"))
    assert alarms(tmp_path / "run") == [] and "first_share" not in summary["after"]


def test_a_checkpoint_of_a_version_that_could_go_back_is_read():
    guard = guarded()
    older = {**guard.state(), "brake": {"main": 1.0}, "kept": {}}
    guard.load(checked_state(older, Guard.shape))
    assert guard.state() == {"past": {}, "active": {}, "told": {}}


def test_the_exact_bound_of_card_blind_play_is_what_the_test_above_says():
    """Of the card-blind plays on a grid, by chance to bet and to call, none is below a NashConv
    of 2/3."""
    game, best = make("kuhn_poker"), 9.0
    for a in (0.0, 0.2, 1 / 3, 0.5, 1.0):
        for b in (0.0, 1 / 3, 0.5, 2 / 3, 1.0):
            found = exploitability(
                game,
                lambda agent, view, legal, a=a, b=b: [1 - b, b] if "call" in legal else [1 - a, a],
            )
            best = min(best, found.nash_conv)
    assert best >= 2 / 3 - 1e-9
    assert exploitability(game, engine_strategy(Blind(policy="main"))).nash_conv == pytest.approx(
        0.916667, abs=1e-5
    )


@pytest.mark.parametrize(
    ("shares", "rings"),
    [
        ([0.98] * 3, True),
        ([0.6, 0.5, 0.45], True),
        ([0.4] * 12, False),
        ([0.9, 0.3, 0.2], False),
        ([1.0, 1.0], False),
    ],
)
def test_answers_that_cannot_be_read_ring_from_the_first_updates_on(
    shares: list[float], rings: bool
) -> None:
    watch = Detectors(zero_sum=False)
    alarms = [
        alarm
        for share in shares
        for alarm in watch.after_update("p", {"turns": 64.0, "invalid": share}, None)
    ]
    assert [alarm.signal for alarm in alarms] == ["unreadable"] * rings


def test_every_alarm_says_what_to_type() -> None:
    from gem_ma.training.selfplay import collapse

    signals = {"side", "anchor", "deaf", "entropy", "one_action", "invalid", "length", "unreadable"}
    assert collapse.ADVICE.keys() == signals
    cures = [cure for several in collapse.ADVICE.values() for cure in several]
    assert cures and all("train." in cure or "policies." in cure for cure in cures)
