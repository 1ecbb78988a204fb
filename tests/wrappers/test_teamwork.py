"""Teams on scenarios of one agent: what the rules see, who is shown what, who is paid for what."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from gem_ma import (
    Action,
    Ask,
    Call,
    Episode,
    Game,
    Leave,
    Message,
    Reward,
    Scenario,
    Seat,
    Tell,
    Tool,
    ToolCall,
    make,
    replay,
)
from gem_ma.config import load
from gem_ma.kernel.episode import End, Limits
from gem_ma.kernel.errors import CallError, ConfigError
from gem_ma.registry import as_scenario, wrapped
from gem_ma.testing import check_scenario
from gem_ma.tools.belt import Equipment, Use, WithTools
from gem_ma.wrappers.around import layers_of, relay
from gem_ma.wrappers.team_words import leaks, verified
from gem_ma.wrappers.teamwork import PATTERNS, Teamwork

ALL = [
    {"teamwork": {"pattern": "propose_review", "reviewers": 2, "rounds": 2}},
    {"teamwork": {"pattern": "debate_judge", "rounds": 2}},
    {"teamwork": {"pattern": "plan_execute", "every": 2}},
    {"teamwork": {"pattern": "vote", "voters": 4, "rounds": 2}},
    {"teamwork": {"pattern": "teach", "knows": False}},
]
NAMES = [next(iter(each["teamwork"].values())) for each in ALL]


class Errand(Scenario):
    """Three errands with tools, calls of which one fails, draws, payments in between and an end of
    its own."""

    agents = ("clerk",)
    ends_within = 3

    def play(self, rng: random.Random, task: Any) -> Any:
        yield Tell({"clerk": "Good morning. <facts>The safe holds 12 coins.</facts>"})
        for number in range(3):
            ask = (Message.system("Be brief."), f"errand {number}, room {rng.randrange(9)}")
            said = yield Ask({"clerk": ask}, tools=(Tool("look"), Tool("go")))
            done = said["clerk"].tool_calls
            try:
                found = yield Call(int, "no number" if number == 1 else len(said["clerk"].text))
            except CallError:
                found = -1
            # an edit of its own copy, which no record may show
            if done and isinstance(done[0], ToolCall):
                done[0].arguments["seen"] = True
            yield Reward({"clerk": found / 10 + rng.random()}, why=f"errand {number}")
            yield Tell({"clerk": Message.tool("1", f"found {found}")})
            if said["clerk"].text == "leave":
                yield Reward({"clerk": 1.0}, why="left")
                yield Leave("clerk")
                return

    def success(self, episode: Any) -> bool:
        return any(entry.why == "left" for entry in episode.ledger)

    def measures(self, episode: Any) -> Mapping[str, float | None]:
        return {
            "turns": len(episode.turns),
            "failed": sum(call.error is not None for call in episode.calls),
        }


class Ring(Use):
    def plan(self, name: str, arguments: Mapping[str, Any]) -> None: ...

    def run(self) -> Any:
        return "ding"


class Bell(Equipment):
    tools = (Tool("ring"),)
    uses = 2

    def open(self) -> Use:
        return Ring()


def around(inner: Any, pattern: str, *others: Any, **options: Any) -> Scenario:
    made = as_scenario(inner) if isinstance(inner, type) else inner
    return wrapped(made, [{"teamwork": {"pattern": pattern, **options}}, *others])


def words(game: Game, agent: str) -> str:
    return "\n".join(message.text for message in game.view(agent))


def paid(game: Game, agent: str) -> list[tuple[float, str]]:
    return [(round(e.value, 9), e.why) for e in game.ledger if e.agent == agent]


def recorded(game: Game, seed: int = 0, task: str = "train/0") -> Episode:
    return Episode(
        game.scenario.id, 1, seed, task, 0, None,
        {agent: Seat() for agent in game.scenario.agents},
        tuple(game.turns), tuple(game.calls), tuple(game.forks),
        {agent: game.new(agent) for agent in game.scenario.agents},
        tuple(game.ledger), game.own_end if game.over else End.MAX_STEPS, cut=tuple(game.cut),
    )  # fmt: skip


def anything(agent: str, asked: Any, rng: random.Random) -> Any:
    if asked.legal:
        return rng.choice([*asked.legal, "no such choice"])
    if asked.tools and rng.random() < 0.5:
        return Action("", (ToolCall("1", rng.choice(asked.tools).name, {"n": rng.randrange(3)}),))
    return rng.choice(["1", "2", "leave", "Answer: 3", ""])


def over(
    scenario: Scenario, seed: int = 0, most: int = 10_000, say: Callable[..., Any] = anything
) -> Game:
    game = Game(scenario, scenario.tasks("train")[0], seed)
    streams = {agent: random.Random(f"{seed}/{agent}") for agent in scenario.agents}
    while game.pending and game.step < most:
        game.send({x: say(x, asked, streams[x]) for x, asked in game.pending.items()})
    return game


def alone(inner: Scenario, ruled: Episode) -> Game:
    """The rules' own play of these actions, without a team."""
    game = Game(inner, inner.tasks("train")[0], ruled.seed)
    for turn in ruled.turns:
        game.send({turn.agent: turn.action})
    return game


@pytest.mark.parametrize("wrapper", ALL, ids=NAMES)
@pytest.mark.parametrize("inner", [Errand, "guess_number", "questions", "arithmetic", "sudoku"])
def test_the_rules_judge_the_play_that_they_would_have_had_alone(inner: Any, wrapper: Any) -> None:
    rules = as_scenario(inner)
    scenario = wrapped(rules, [wrapper])
    for seed in (0, 1, 77_003):
        # also a record that a limit has cut
        for most in (10_000, 4):
            game = over(scenario, seed, most)
            episode = recorded(game, seed)
            ruled = scenario.as_ruled(episode)
            own = alone(rules, ruled)
            assert ruled.turns == tuple(own.turns) and ruled.ledger == tuple(own.ledger)
            assert ruled.calls == tuple(own.calls) and own.over >= game.over
            assert ruled.final[rules.agents[0]] == own.new(rules.agents[0])
            assert scenario.success(episode) == rules.success(ruled)
            assert rules.measures(ruled).items() <= scenario.measures(episode).items()
            said = [turn.action for turn in game.turns if turn.agent not in ("judge", "teacher")]
            assert all(turn.action in [*said, Action("")] for turn in ruled.turns)
            assert len(ruled.turns) >= (most > 4)


@pytest.mark.parametrize("wrapper", ALL, ids=NAMES)
def test_a_record_is_judged_alike_with_tools_and_retries_around_and_after_a_fork(
    wrapper: Any,
) -> None:
    rules = as_scenario(Errand)
    # all are paid alike: what the rules paid stands in everybody's ledger
    options = {**wrapper["teamwork"], "credit": "team"}
    inner = wrapped(rules, [{"teamwork": options}])
    scenario = WithTools(wrapped(inner, [{"retry": 2}]), {inner.agents[-1]: [Bell()]})
    for seed in range(4):
        game = over(scenario, seed)
        assert game.over
        fork = game.fork(2, seed="another")
        streams = {agent: random.Random(f"{seed}/fork/{agent}") for agent in scenario.agents}
        while fork.pending:
            fork.send({x: anything(x, asked, streams[x]) for x, asked in fork.pending.items()})
        for each in (game, fork):
            ruled = recorded(each, seed)
            for layer in layers_of(scenario)[:-1]:
                ruled = layer.as_ruled(ruled)
            # the draws too: what the rules paid depends on them, and forks reseed them
            owed = [(entry.value, entry.why) for entry in ruled.ledger]
            for agent in inner.agents:
                assert owed == [(e.value, e.why) for e in each.ledger if e.agent == agent]
            assert len(ruled.turns) == sum(why.startswith("errand") for _, why in owed)
        again = replay(scenario, None, seed, fork.turns, fork.calls, fork.forks)
        assert again.ledger == fork.ledger


def test_a_reviewer_is_paid_what_its_objection_changed_and_an_approval_nothing() -> None:
    scenario = around(make("arithmetic"), "propose_review", reviewers=2)
    task = scenario.tasks("train")[0]
    right = scenario.answers(random.Random(0), task)[0]

    def played(draft: str, verdicts: tuple[str, str], final: str) -> Game:
        game = Game(scenario, task, 0)
        game.send({"proposer": draft})
        game.send({"reviewer_0": verdicts[0], "reviewer_1": verdicts[1]})
        if game.pending:
            game.send({"proposer": final})
        assert game.over
        return game

    better = played("0", ("approve", "I doubt it.\nobject"), right)
    assert paid(better, "proposer") == [(1.0, "answer")]
    assert paid(better, "reviewer_1") == [(1.0, "review: a change for the better")]
    assert paid(better, "reviewer_0") == []
    worse = played(right, ("object", "object"), "0")
    assert paid(worse, "proposer") == [(0.0, "answer")]
    assert paid(worse, "reviewer_0") == paid(worse, "reviewer_1")
    assert paid(worse, "reviewer_0") == [(-1.0, "review: a change for the worse")]
    assert paid(played("0", ("object", "approve"), "1"), "reviewer_0") == []
    approved = played(right, ("approve", "dunno"), "")
    assert paid(approved, "proposer") == [(1.0, "answer")] and approved.step == 2
    assert "does not count" in words(approved, "reviewer_1")
    assert "does not count" not in words(approved, "reviewer_0")
    assert "I doubt it." in words(better, "proposer")


def test_what_another_answer_would_have_earned_is_what_the_rules_pay_for_it() -> None:
    """Of games with draws, calls and a long past: the review's payment against a second play."""
    rules = as_scenario(Errand)
    scenario = around(Errand, "propose_review")
    found = 0
    for seed in range(6):
        game = over(scenario, seed, say=lambda x, asked, rng: (
            "object" if asked.legal else rng.choice(["a", "bcd", "efghi"])
        ))  # fmt: skip
        ruled = scenario.as_ruled(recorded(game, seed))
        drafts = [t for t in game.turns if t.agent == "proposer"][::2]
        expected = []
        for place, draft in enumerate(drafts):
            other = Game(rules, None, seed)
            for turn in ruled.turns[:place]:
                other.send({"clerk": turn.action})
            before = len(other.ledger)
            other.send({"clerk": draft.action})
            worth = sum(entry.value for entry in other.ledger[before:])
            expected.append(ruled.ledger[place].value - worth)
        got = [value for value, _ in paid(game, "reviewer_0")]
        assert got == pytest.approx([value for value in expected if value])
        found += len(got)
        # what was called before is fed, and not called again
        assert len(game.calls) == len(drafts) + sum(
            draft.action.text != turn.action.text
            for draft, turn in zip(drafts, ruled.turns, strict=True)
        )
    assert found > 4


def test_other_answers_are_worth_what_they_are_after_any_draws() -> None:
    """A lot breaks ties out of the play's own stream, and a fork reseeds it: what the rules draw
    then is what they would have drawn for the other answer too."""
    scenario = around(Errand, "vote", voters=4, ties="lot")
    differences = 0
    for seed in range(8):
        game = Game(scenario, None, seed)
        for number in range(3):
            if number == 1:
                game = game.fork(seed="another")
            before = len(game.ledger)
            said = {f"voter_{n}": "a" * (1 + 4 * (n % 2)) for n in range(4)}
            game.send(said)
            entries = {e.agent: e for e in game.ledger[before:]}
            assert len(entries) == 4
            for agent, entry in entries.items():
                if entry.why.startswith("vote"):
                    played = next(e for e in entries.values() if e.why == f"errand {number}")
                    letters = len(said[agent]) - len(said[played.agent])
                    # the call of the second errand fails, whatever is said
                    assert entry.value - played.value == pytest.approx(letters / 10 * (number != 1))
                    differences += 1
    assert differences == 8 * 3 * 2


def test_all_leave_with_the_one_agent_of_the_rules_and_are_paid_before() -> None:
    scenario = around(Errand, "propose_review")
    game = Game(scenario, None, 0)
    for action in ({"proposer": "a"}, {"reviewer_0": "object"}, {"proposer": "leave"}):
        game.send(action)
    assert game.over and set(game.left) == set(scenario.agents)
    assert paid(game, "reviewer_0") == [(1.4, "review: a change for the better")]


def test_a_config_by_id_seats_the_team_and_a_choice_is_told_by_its_text_too() -> None:
    config = load("questions", ["scenario.wrappers=[{teamwork: vote}]"]).config
    assert sorted(config.agents) == ["voter_0", "voter_1", "voter_2"]
    scenario = make("questions")
    task = next(task for task in scenario.tasks("all") if task.choices)
    letter, text = scenario.answers(random.Random(0), task)
    assert task.choices[task.letters.index(letter)] == text
    assert leaks(f"Not: {text}", (letter, text))


def test_voters_are_paid_for_their_own_answers_and_a_tie_goes_as_it_is_named() -> None:
    scenario = around(make("arithmetic"), "vote", voters=4)
    task = scenario.tasks("train")[0]
    right = scenario.answers(random.Random(0), task)[0]
    game = Game(scenario, task, 0)
    answers = ["0", right, f"It is {right}. Answer: {right}", "0"]
    game.send({f"voter_{n}": text for n, text in enumerate(answers)})
    assert game.over and scenario.success(recorded(game)) is False
    assert [paid(game, f"voter_{n}") for n in range(4)] == [
        [(0.0, "answer")],
        [(1.0, "vote: its own answer, not played")],
        [(1.0, "vote: its own answer, not played")],
        [(0.0, "answer")],
    ]
    assert scenario.measures(recorded(game)) == {"agreement": 0.5, "ties": 1.0}
    lots = around(make("arithmetic"), "vote", voters=4, ties="lot", credit="team")
    played = set()
    for seed in range(30):
        game = Game(lots, task, seed)
        game.send({f"voter_{n}": text for n, text in enumerate(answers)})
        played.add(lots.success(recorded(game, seed)))
        assert len({str(paid(game, agent)) for agent in lots.agents}) == 1
    assert played == {True, False} and lots.cooperative and lots.chance


def test_a_debate_is_zero_sum_hides_facts_and_verifies_quotes() -> None:
    scenario = around(Errand, "debate_judge")
    firsts = set()
    for seed in range(12):
        game = Game(scenario, None, seed)
        game.send({"debater_0": "leave", "debater_1": "stay"})
        said = "<quote>the SAFE holds</quote> <quote>13 coins</quote> <verified>x</verified>"
        game.send({"debater_0": said, "debater_1": "no"})
        assert "12 coins" in words(game, "debater_0") and "12 coins" in words(game, "debater_1")
        assert "12 coins" not in words(game, "judge") and "held" not in words(game, "judge")
        heard = words(game, "judge")
        assert "<verified>the SAFE holds</verified>" in heard and "<verified>x" not in heard
        assert "<unverified>13 coins</unverified>" in heard
        first = "debater_0" if "first, of debater_0," in heard else "debater_1"
        firsts.add(first)
        game.send({"judge": "first" if first == "debater_0" else "second"})
        assert game.over and scenario.success(recorded(game, seed))
        assert paid(game, "debater_0") == [(1.0, "debate: whom the judge believed")]
        assert paid(game, "debater_1") == [(-1.0, "debate: whom the judge believed")]
        assert [why for _, why in paid(game, "judge")] == ["errand 0", "left"]
        assert scenario.measures(recorded(game, seed))["quotes verified"] == 0.5
    assert firsts == {"debater_0", "debater_1"}
    # the order changes with every decision, and results of tools are facts as well
    game = Game(scenario, None, 0)
    orders = []
    for _ in range(2):
        game.send({"debater_0": "a", "debater_1": "b"})
        game.send({"debater_0": "", "debater_1": ""})
        orders.append("first, of debater_0," in game.view("judge")[-1].text)
        game.send({"judge": "neither of them"})
    assert len(set(orders)) == 2 and "found" in words(game, "debater_1")
    assert "found" not in words(game, "judge") and "does not count" in words(game, "judge")
    assert not any(paid(game, f"debater_{n}") for n in (0, 1))


def test_assigned_sides_are_dealt_by_lot_and_the_label_tells_which() -> None:
    scenario = around(make("guess_number"), "debate_judge", assigned=True, rounds=1)
    seats = set()
    for seed in range(12):
        game = Game(scenario, None, seed)
        number = scenario.answers(random.Random(seed), None)[0]
        seat = scenario.labels(recorded(game, seed))["right side"]
        seats.add(seat)
        assert f"Yours is: {number}" in words(game, seat)
        assert "Yours is" not in words(game, "judge")
        game.send({"debater_0": "x", "debater_1": "y"})
        judged = game.view("judge")[-1].text
        game.send({"judge": "first" if f"first, of {seat}" in judged else "second"})
        assert game.over and scenario.success(recorded(game, seed))
    assert seats == {"debater_0", "debater_1"}


@pytest.mark.long
def test_neither_seat_nor_place_nor_number_tells_which_side_is_right() -> None:
    """What the judge sees before it has heard an argument: 5 standard errors of 1,600 plays."""
    scenario = around(make("guess_number"), "debate_judge", assigned=True, rounds=1)
    game = Game(scenario, None, 0)
    asked = []
    for _ in range(2):
        asked.append({m.text for m in game.new("judge") if m.sender.startswith("debater")})
        game.send({"debater_0": "", "debater_1": ""})
        game.send({"judge": "none"})
    assert len(asked[0]) == 2 and asked[0] == asked[1] - {"?"}  # a claim that comes again is none
    signs: dict[str, list[bool]] = {"first": [], "debater_0": [], "larger": []}
    for seed in range(1_000_000, 1_001_600):
        game = Game(scenario, None, seed)
        claims = {
            m.sender: int(m.text)
            for m in game.view("judge")
            if m.sender != "scenario" and m.text.isdecimal()
        }
        right = scenario.answers(random.Random(seed), None)[0]
        seat = next(agent for agent, claim in claims.items() if str(claim) == right)
        signs["first"].append(next(iter(claims)) == seat)
        signs["debater_0"].append(seat == "debater_0")
        signs["larger"].append(claims[seat] == max(claims.values()))
        game.close()
    shares = {sign: sum(found) / len(found) for sign, found in signs.items()}
    assert all(abs(share - 0.5) < 5 * 0.0125 for share in shares.values()), shares
    both = sum(map(bool.__and__, signs["first"], signs["debater_0"])) / 1_600
    assert abs(both - 0.25) < 5 * 0.011


def test_a_teacher_who_says_the_answer_pays_and_is_not_heard() -> None:
    scenario = around(make("guess_number"), "teach", leak=0.5)
    number = scenario.answers(random.Random(3), None)[0]
    other = str(int(number) % 10 + 1)
    game = Game(scenario, None, 3)
    assert f"The right answer is: {number}" in words(game, "teacher")
    game.send({"teacher": f"Say {number}!"})
    assert (-0.5, "teach: the answer was said") in paid(game, "teacher")
    assert "withheld" in words(game, "pupil") and "Say" not in words(game, "pupil")
    assert "did not hear" in words(game, "teacher")
    game.send({"pupil": other})
    game.send({"teacher": "It is another one."})
    assert "It is another one." in words(game, "pupil")
    game.send({"pupil": number})
    assert game.over and scenario.success(recorded(game, 3))
    assert sum(v for v, _ in paid(game, "teacher")) == sum(v for v, _ in paid(game, "pupil")) - 0.5
    assert scenario.measures(recorded(game, 3))["leaks"] == 1
    shared = around(make("guess_number"), "teach", credit="team")
    game = Game(shared, None, 3)
    game.send({"teacher": number})
    assert paid(game, "pupil") == paid(game, "teacher") == [(-1.0, "teach: the answer was said")]


@pytest.mark.parametrize(
    ("text", "answers", "said"),
    [
        ("seven", ["7"], True),
        ("17 or 71", ["7"], False),
        ("It is 4,042.", ["4042"], True),
        ("4 0 4 2", ["4042"], True),
        ("140421", ["4042"], False),
        ("minus sixteen", ["-16"], True),
        ("PARIS!", ["Paris"], True),
        ("P.A.R.I.S", ["Paris"], True),
        ("the capital of France", ["Paris"], False),
        ("Take B.", ["B", "the blue one"], True),
        ("The Blue   one", ["B", "the blue one"], True),
        ("to be or not to be", ["B"], False),
        ("A hint: birds", ["A"], False),
        ("I think so", ["I"], False),
        ("the choice A", ["A"], True),
        ("", ["7"], False),
        ("anything", [], False),
        ("return sorted(set(numbers), reverse=True)[:1] # so", [
            "def f(numbers):\n    return sorted(set(numbers), reverse=True)[:1]"], True),
        ("sort it and take one", ["def f(numbers):\n    return sorted(set(numbers))[:1]"], False),
    ],
)  # fmt: skip
def test_a_leak_is_decided_by_the_text(text: str, answers: Sequence[str], said: bool) -> None:
    assert leaks(text, answers) is said


@pytest.mark.parametrize(
    ("text", "marked", "counts"),
    [
        ("<quote>a b</quote>", "<verified>a b</verified>", (1, 0)),
        ("<quote></quote>", "<unverified></unverified>", (0, 1)),
        ("<quote>a b", "<unverified>a b</unverified>", (0, 1)),
        ("<quote>a <quote>b</quote>", "<unverified>a </unverified><verified>b</verified>", (1, 1)),
        ("<ver</verified>ified>x", "<ver ified>x", (0, 0)),
        ("< VERIFIED >x", " x", (0, 0)),
    ],
)
def test_only_what_stands_in_the_facts_is_marked(text: str, marked: str, counts: Any) -> None:
    assert verified(text, ["A  B c"]) == (marked, *counts)


def test_a_time_limit_of_the_rules_cuts_by_their_own_decisions() -> None:
    for pattern in PATTERNS:
        options = {"knows": False} if pattern == "teach" else {}
        timed = wrapped(make("guess_number"), [{"time_limit": 2}])
        scenario = around(timed, pattern, **options)
        assert scenario.limits is None and Limits(max_steps=2) == timed.limits
        number = timed.answers(random.Random(5), None)[0]

        def wrong(agent: str, asked: Any, rng: random.Random, number: str = number) -> str:
            choices = [choice for choice in asked.legal or ("hm",) if choice != number]
            return choices[-1 - (agent == "debater_1")] if asked.legal else "hm"

        game = over(scenario, 5, say=wrong)
        episode = recorded(game, 5)
        assert episode.end is End.TRUNCATED and set(episode.cut) == set(scenario.agents)
        ruled = scenario.as_ruled(episode)
        assert len(ruled.turns) == 2 and ruled.goes_on("player")
        # what would have been asked next is shown: a critic reads it
        assert ruled.final["player"] and game.new(scenario.actors[0])


def test_the_facts_of_the_rules_stay() -> None:
    inner = make("questions")
    scenario = around(inner, "vote", voters=64)
    assert len(scenario.agents) == 64 and scenario.ends_within == inner.ends_within
    assert scenario.tasks("dev") == inner.tasks("dev") and scenario.id == "questions"
    assert scenario.provenance() == inner.provenance() and scenario.version == inner.version
    assert scenario.baselines == inner.baselines and set(inner.rates) <= set(scenario.rates)
    assert scenario.default_cast == dict.fromkeys(scenario.agents, "question_random")
    assert set(scenario.baseline_casts) == set(inner.baseline_casts)
    assert around(make("arithmetic"), "teach").rates == scenario.rates[1:]
    games = {p: over(around(make("guess_number"), p, **o)) for p, o in [
        ("propose_review", {"rounds": 2, "every": 2}), ("plan_execute", {}), ("teach", {"every": 3}),
        ("vote", {"rounds": 3}), ("debate_judge", {"order": "in turn", "rounds": 2}),
    ]}  # fmt: skip
    assert all(game.step <= game.scenario.ends_within for game in games.values())
    assert [game.scenario.ends_within for game in games.values()] == [12, 5, 6, 12, 24]
    assert scenario.role(recorded(over(scenario)), "voter_7") == "voter"
    assert scenario.team(recorded(over(scenario)), "voter_7") == "team"


def test_only_verdicts_and_signals_pass_where_talk_is_closed() -> None:
    scenario = around(make("guess_number"), "plan_execute", talk="signals", signals=["up", "down"])
    game = Game(scenario, None, 0)
    assert game.pending["planner"].legal == ("up", "down")
    game.send({"planner": "It is a secret word: up"})
    assert game.view("executor")[-2].text == "up"
    review = around(make("guess_number"), "propose_review", talk="signals")
    game = Game(review, None, 0)
    game.send({"proposer": "1"})
    game.send({"reviewer_0": "because of a secret\nobject"})
    assert "secret" not in words(game, "proposer") and "object" in words(game, "proposer")


@pytest.mark.parametrize(
    ("inner", "options", "told"),
    [
        ("kuhn_poker", "vote", "one agent; kuhn_poker has player_0, player_1"),
        ("questions", "gossip", "pattern is one of propose_review, debate_judge"),
        ("questions", None, "pattern is one of"),
        ("questions", {"pattern": "vote", "voters": 65}, "voters is a whole number from 2 to 64"),
        ("questions", {"pattern": "vote", "voters": True}, "voters is a whole number"),
        ("questions", {"pattern": "vote", "reviewers": 2}, "vote has no option 'reviewers'"),
        ("questions", {"pattern": "vote", "ties": "none"}, "ties is first or lot"),
        ("questions", {"pattern": "vote", "credit": "all"}, "credit is role or team"),
        ("questions", {"pattern": "teach", "leak": -1}, "leak is what is taken off"),
        ("questions", {"pattern": "teach", "talk": "signals"}, "takes signals, a list"),
        ("questions", {"pattern": "teach", "signals": ["a"]}, "takes signals, a list"),
        ("questions", {"pattern": "teach", "signals": "ab", "talk": "signals"}, "different texts"),
        (
            "sudoku",
            "teach",
            "sudoku does not say its right answers (Scenario.answers); write knows",
        ),
        ("sudoku", {"pattern": "debate_judge", "assigned": True}, "write assigned: false"),
        ("questions", {"pattern": "debate_judge", "facts": 1}, "facts is true or false"),
        ("questions", {"pattern": "propose_review", "talk": "none"}, "talk is free or signals"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(inner: str, options: Any, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(inner, wrappers=[{"teamwork": options}])
    assert told in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="one agent"):
        make("questions", wrappers=[{"teamwork": "vote"}, {"teamwork": "vote"}])


@pytest.mark.longest
@pytest.mark.parametrize(
    ("inner", "wrapper"),
    [
        *itertools.product([Errand, "questions", "guess_number", "reasoning_gym:chain_sum"], ALL),
        ("code", ALL[0]),  # its grader's processes take their time
    ],
)
def test_the_kit_finds_nothing(inner: Any, wrapper: Any) -> None:
    if str(inner).startswith("reasoning_gym"):
        pytest.importorskip("reasoning_gym", reason="needs the reasoning-gym extra")
    scenario = wrapped(as_scenario(inner), [wrapper])
    assert isinstance(scenario, Teamwork)
    check_scenario(scenario, seeds=range(4))


# drawn in each play, or fixed by the task
@pytest.mark.longest
@pytest.mark.parametrize("name", ["guess_number", "arithmetic", "questions"])
def test_the_secret_of_a_teacher_is_tested_and_a_leak_is_found(name: str) -> None:
    report = check_scenario(make(name, wrappers=[{"teamwork": "teach"}]), seeds=range(4))
    assert 4 in report.passed and 4 not in report.untested

    class Leaky(Teamwork):
        def play(self, rng: random.Random, task: Any) -> Any:
            def handle(effect: Any) -> Any:
                if isinstance(effect, Tell) and "right answer is" in str(effect.to):
                    effect = Tell(dict.fromkeys(self.agents, next(iter(effect.to.values()))))
                return (yield effect)

            return relay(super().play(rng, task), handle)

    with pytest.raises(AssertionError, match="nobody sees another's secret"):
        check_scenario(Leaky(make(name), "teach"), seeds=range(4))


@pytest.mark.parametrize("pattern", ["propose_review", "debate_judge", "vote"])
def test_other_wrappers_stand_on_either_side(pattern: str) -> None:
    rules = make("guess_number")
    inside: list[Any] = [{"reward": {"scale": 2}}, {"retry": 1}]
    outside: list[Any] = [{"reward": {"scale": 3}}, "hide_names"]
    made = {"pattern": pattern, "credit": "team"}
    scenario = wrapped(rules, [*inside, {"teamwork": made}, *outside])
    won = set()
    for seed in range(30):
        game = over(scenario, seed)
        episode = recorded(game, seed)
        ruled = episode
        for layer in layers_of(scenario)[:-1]:
            ruled = layer.as_ruled(ruled)
        own = alone(rules, ruled)
        # by value: the steps of what was tried again stay its own
        owed = [(entry.value, entry.why) for entry in own.ledger]
        assert own.over and [(entry.value, entry.why) for entry in ruled.ledger] == owed
        assert scenario.success(episode) == rules.success(ruled)
        assert sum(value for value, _ in paid(game, scenario.agents[0])) == pytest.approx(
            6 * sum(entry.value for entry in own.ledger)
        )
        won.add(scenario.success(episode))
        for agent in scenario.agents:
            assert all(
                other == agent or other not in words(game, agent)
                for other in scenario.agents
                if "_" in other
            )
    assert won == {True, False}
