"""Per-turn rewards of service talks: what each term pays, that shaping changes no best policy,
and that its guards hold against cheats."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.desk.log import Desk, Event
from gem_ma.scenarios.service_desk.desk.talk import retell
from gem_ma.scenarios.service_desk.grading.goals import goals_of
from gem_ma.scenarios.service_desk.grading.grader import Verdict
from gem_ma.scenarios.service_desk.retail import Retail
from gem_ma.scenarios.service_desk.retail.domain.grading import changes
from gem_ma.scenarios.service_desk.rewards.scene import Scene, Shadow
from gem_ma.scenarios.service_desk.rewards.terms import TERMS, Progress, read_settings
from gem_ma.scenarios.service_desk.rewards.watchers import watchers
from gem_ma.scenarios.service_desk.watching.monitor import Monitor

from gem_ma import Action, Plan, Seat, ToolCall, make, play
from gem_ma.credit import credit, returns
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError
from tests.phone_desk import EVERY_TERM, PHONE, desk, plan_task, stores


def scenario(**options: Any) -> Retail:
    made = make("retail", data="own", **options)
    assert isinstance(made, Retail)
    return made


async def run(
    shop: Retail, assistant: str, task: str, user: str = "retail_user", behaviours: Any = None
) -> Episode:
    return await play(
        Plan(shop, {"assistant": Seat(assistant), "user": Seat(user)}, task), behaviours=behaviours
    )


def use(name: str, **arguments: Any) -> Action:
    return Action("", (ToolCall("c", name, arguments),))


def paid_in(talk: Desk, acts: Sequence[Mapping[str, Action]]) -> list[float]:
    """What is paid while these acts are told."""
    seen: list[float] = []

    class Ears:
        def see(self, event: Event, desk: Desk) -> Sequence[Any]:
            seen.extend(pay.value for pay in desk.due)
            desk.due.clear()
            return ()

    talk.watchers = [*talk.watchers, Ears()]
    retell(talk, acts)
    return seen


def by_term(episode: Episode, agent: str = "assistant") -> dict[str, float]:
    sums: dict[str, float] = {}
    for entry in episode.ledger:
        if entry.agent == agent:
            term = entry.why.partition(":")[0]
            sums[term] = sums.get(term, 0.0) + entry.value
    return sums


# -- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"rewards": {"progres": 0.3}},
            "scenario.rewards: no term is called 'progres' (did you mean 'progress'?)",
        ),
        ({"rewards": {"zzz": 1}}, "known: abstention, communication"),
        (
            {"rewards": {"policy": {"hart": 1}}},
            "scenario.rewards.policy: has no 'hart' (did you mean 'hard'?)",
        ),
        (
            {"rewards": {"progress": {"mode": "densee"}}},
            (
                "scenario.rewards.progress.mode: there is invariant and dense; got 'densee' (did"
                " you mean 'dense'?)"
            ),
        ),
        (
            {"rewards": {"effort": -1}},
            "scenario.rewards.effort.weight: a finite number of at least 0; got -1",
        ),
        ({"rewards": {"effort": "much"}}, "scenario.rewards.effort: a number, or a mapping"),
        (
            {"user_reward": "adversary"},
            (
                "scenario.user_reward: there is cooperative, neutral, adversarial; got 'adversary'"
                " (did you mean 'adversarial'?)"
            ),
        ),
        ({"gamma": 1.5}, "scenario.gamma: a discount from 0 to 1; got 1.5"),
        (
            {"rewards": {"game": 1}, "user_reward": "neutral"},
            "scenario.rewards.game: a neutral user plays for nothing",
        ),
    ],
)
def test_a_wrong_option_says_where_and_what_is_near(options: Mapping[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        scenario(**options)
    assert told in str(error.value)


def test_a_term_is_a_number_a_mapping_true_or_off() -> None:
    settings = read_settings(
        {
            "progress": 0.5,
            "policy": 0.4,
            "validity": {"cap": 1},
            "effort": True,
            "role": False,
            "abstention": None,
            "information": 0,
        }
    )
    assert set(settings.terms) == {"outcome", "progress", "policy", "validity", "effort"}
    assert settings.terms["progress"] == Progress(0.5, "invariant")
    assert (settings.terms["policy"].hard, settings.terms["policy"].soft) == (0.4, 0.1)
    assert settings.terms["validity"].cap == 1.0


@pytest.mark.parametrize(
    ("options", "alike"),
    [
        ({}, True),
        ({"rewards": {"outcome": 2}}, True),
        ({"rewards": {"game": 0.5}}, False),
        ({"rewards": {"progress": 0.1}}, False),
        ({"rewards": {"progress": 0}}, True),
        ({"user_reward": "neutral"}, False),
        ({"user_reward": "adversarial"}, False),
    ],
)
def test_cooperative_is_said_only_where_both_are_always_paid_alike(
    options: Mapping[str, Any], alike: bool
) -> None:
    shop = scenario(**options)
    assert shop.cooperative is alike
    for index in range(4):
        totals = asyncio.run(run(shop, "retail_oracle", f"test/{index}")).returns()
        assert not alike or totals["assistant"] == totals["user"]


def test_without_terms_only_the_outcome_pays_both() -> None:
    ledger = asyncio.run(run(scenario(), "retail_oracle", "test/0")).ledger
    assert [(entry.agent, entry.value, entry.why) for entry in ledger] == [
        ("assistant", 1.0, "outcome"),
        ("user", 1.0, "outcome"),
    ]


def test_success_is_read_under_any_weight_of_the_outcome() -> None:
    for rewards in (
        {"outcome": 0.2},
        {"outcome": 0},
        {"outcome": False, "progress": 1},
        {"outcome": 7},
    ):
        shop = scenario(rewards=rewards)
        assert [
            shop.success(asyncio.run(run(shop, who, "test/0")))
            for who in ("retail_oracle", "retail_nothing")
        ] == [True, False]


# -- every term ----------------------------------------------------------------------------------


@pytest.mark.long
def test_each_term_stands_in_the_ledger_by_its_name_and_the_sum_is_the_return() -> None:
    shop = scenario(rewards=EVERY_TERM)
    seen: set[str] = set()
    for index in (0, 1, 2, 10, 11):
        for assistant in ("retail_scripted", "retail_forgets_to_confirm", "retail_refuse"):
            episode = asyncio.run(run(shop, assistant, f"test/{index}"))
            assert episode.error is None
            for agent in shop.agents:
                terms = by_term(episode, agent)
                seen |= set(terms)
                assert set(terms) <= set(TERMS)
                assert sum(terms.values()) == pytest.approx(episode.returns()[agent])
                folded = credit(episode, agent)
                assert folded.rewards.sum() + folded.before == pytest.approx(
                    episode.returns()[agent]
                )
            nothing = dict.fromkeys(
                (name for agent, name in shop.settings.paying if agent == "assistant"), 0.0
            )
            assert {
                name: value
                for name, value in shop.measures(episode).items()
                if name.startswith("reward assistant ")
            } == pytest.approx(
                {
                    f"reward assistant {name}": value
                    for name, value in {**nothing, **by_term(episode)}.items()
                }
            )
    assert seen >= {
        "outcome",
        "progress",
        "information",
        "policy",
        "communication",
        "effort",
        "abstention",
        "role",
    }


def test_a_served_task_earns_the_whole_of_information_and_communication() -> None:
    shop = scenario(rewards={"information": 0.4, "communication": 0.2, "progress": 0.5})
    for index in range(5):
        task = shop.tasks("test")[index]
        terms = by_term(asyncio.run(run(shop, "retail_scripted", f"test/{index}")))
        assert terms["information"] <= 0.4 + 1e-9
        assert terms.get("communication", 0.0) == pytest.approx(0.2 if task.outputs else 0.0)
        writes = any(wish.writes for wish in task.wishes)
        # -P at the start, in either mode
        assert terms.get("progress", 0.0) == pytest.approx(0.5 if writes else 0.0)


def test_the_dense_mode_keeps_the_last_potential_and_the_invariant_one_gives_it_back() -> None:
    for mode, left in (("invariant", 0.3), ("dense", 0.0)):
        shop = scenario(rewards={"progress": {"weight": 0.3, "mode": mode}})
        index = next(
            at
            for at, task in enumerate(shop.tasks("test"))
            if any(wish.writes for wish in task.wishes)
        )
        assert by_term(asyncio.run(run(shop, "retail_nothing", f"test/{index}"))).get(
            "progress", 0.0
        ) == pytest.approx(left)


def test_the_first_try_with_what_the_customer_said_is_free_and_repeats_cost_until_the_cap() -> None:
    shop = scenario(rewards={"validity": {"weight": 0.1, "cap": 0.25}})
    said = {"user": Action("I am nobody@example.com")}
    missed = {"assistant": use("find_user_id_by_email", email="nobody@example.com")}
    guessed = {"assistant": use("find_user_id_by_email", email="guess@example.com")}
    for acts, paid in (
        ([said, missed], []),
        ([said, guessed], [-0.1]),
        ([said, missed, missed], [-0.1]),
        ([said, missed, {"assistant": Action("")}], [-0.1]),
        ([said, guessed, guessed, guessed, guessed], [-0.1, -0.1, -0.05]),
    ):
        talk = shop.desk(shop.tasks("test")[0])
        assert paid_in(talk, acts) == pytest.approx(paid)


# -- invariance ----------------------------------------------------------------------------------

MOVES: dict[str, Action | None] = {
    "right": use("set_plan", line_id="L-10", plan_id="P-large"),
    "wrong": use("set_plan", line_id="L-11", plan_id="P-small"),
    "more": use("add_data", line_id="L-10", price=5.0),
    "look": use("read_line", line_id="L-10"),
    "stop": None,
}
USERS = {
    "": [],
    "helps": [use("set_roaming", line_id="L-10", on=True)],
}


def shaped_and_plain(
    moves: Sequence[str], user: str, gamma: float, mode: str = "invariant", weight: float = 1.0
) -> tuple[float, float]:
    """Discounted returns of the assistant's own turns with shaping and without, of one
    deterministic line of play on the phone desk."""
    task = plan_task(outputs=())
    goals = goals_of(task, stores, PHONE)
    scene = Scene(
        task,
        PHONE,
        goals,
        frozenset(),
        lambda talk: Verdict(0.0),
        Monitor(PHONE),
        Shadow(task, PHONE),
    )
    rewards: list[float] = []
    first = float(0)

    class Books:
        """Folds what is paid into own turns, as credit does."""

        def see(self, event: Event, talk: Desk) -> Sequence[Any]:
            if event.agent == "assistant" and event.kind in ("said", "called", "bounced"):
                rewards.append(0.0)
            return ()

    class Taken:
        def see(self, event: Event, talk: Desk) -> Sequence[Any]:
            for pay in talk.due:
                if rewards:
                    rewards[-1] += pay.value
            talk.due.clear()
            return ()

    settings = read_settings({"progress": {"weight": weight, "mode": mode}}, gamma=gamma)
    talk = desk(task, [Books(), *watchers(settings, scene), Taken()])
    acts: list[dict[str, Action]] = [{"user": Action("Hello.")}]
    for move in moves:
        action = MOVES[move]
        if action is None:
            acts.append({"assistant": Action("Bye.")})
            break
        acts.append({"assistant": action})
    else:
        acts.append({"assistant": Action("Bye.")})
    acts += [{"user": action} for action in USERS[user]]
    acts.append({"user": use("end_conversation", reason="settled")})
    retell(talk, acts)
    reached = float(
        talk.store.overlay.record("lines", "L-10")["plan"] == "P-large"
        and talk.store.overlay.record("lines", "L-10")["extra"] == 0
    )
    outcome = [0.0] * (len(rewards) - 1) + [reached]
    return first + float(
        returns([one + other for one, other in zip(rewards, outcome, strict=True)], gamma)[0]
    ), float(returns(outcome, gamma)[0])


@pytest.mark.long
@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("user", list(USERS))
def test_shaping_shifts_every_line_of_play_by_the_same_amount_so_no_best_policy_changes(
    gamma: float, user: str
) -> None:
    lines = [
        line
        for length in range(3 + (gamma == 0.9))
        for line in product([move for move in MOVES if move != "stop"], repeat=length)
    ]
    for weight in (0.3, 50.0):
        shifts = {
            line: shaped_and_plain((*line, "stop"), user, gamma, weight=weight) for line in lines
        }
        best = max(value for _, value in shifts.values())
        best_shaped = max(value for value, _ in shifts.values())
        assert {line for line, (_, value) in shifts.items() if value > best - 1e-9} == {
            line for line, (value, _) in shifts.items() if value > best_shaped - 1e-6
        }
        for shaped, plain in shifts.values():
            # -P of the start: the whole goal was missing
            assert shaped - plain == pytest.approx(weight * 1.0, abs=1e-6 * weight)


def test_the_dense_mode_does_change_which_line_is_best() -> None:
    lazy, done = (
        shaped_and_plain(("stop",), "", 1.0, "dense", 50.0),
        shaped_and_plain(("right", "stop"), "", 1.0, "dense", 50.0),
    )
    assert done[0] - lazy[0] > 20 + done[1] - lazy[1]


def test_a_record_that_is_locked_in_a_wrong_state_counts_double() -> None:
    shop = scenario(rewards={"progress": {"weight": 1, "mode": "dense"}})
    task = next(
        task
        for task in shop.tasks("test")
        if [wish.kind for wish in task.wishes] == ["modify_pending_order_address"]
    )
    order_id = str(task.wishes[0].arguments["order_id"])
    base = shop.source.world(task)
    size = sum(abs(count) for count in shop.gold(task).goals[0].values())
    talk = shop.desk(task)
    acts = [
        {"user": Action("Hi")},
        {"assistant": use("cancel_pending_order", order_id=order_id, reason="no longer needed")},
    ]
    seen = paid_in(talk, acts)
    done = changes(talk.store.overlay)
    of_order = sum(
        abs(done[fact] - shop.gold(task).goals[0][fact])
        for fact in {*done, *shop.gold(task).goals[0]}
        if fact[1] == order_id
    )
    others = sum(abs(count) for fact, count in done.items() if fact[1] != order_id)
    assert base.tables["orders"][order_id]["status"] == "pending"
    assert seen[-1] == pytest.approx(-(2 * of_order + others - size) / size)


# -- the user's stake ----------------------------------------------------------------------------


def test_an_adversary_is_paid_for_hard_violations_a_neutral_user_for_nothing() -> None:
    adversary, neutral = scenario(user_reward="adversarial"), scenario(user_reward="neutral")
    index = next(
        at
        for at, task in enumerate(adversary.tasks("test"))
        if [wish.kind for wish in task.wishes] == ["return_delivered_order_items"]
    )
    careless = asyncio.run(run(adversary, "retail_forgets_to_confirm", f"test/{index}"))
    assert adversary.audit(careless).faults == ()
    assert by_term(careless, "user") == {
        "game": 0.25 * adversary.measures(careless)["hard violations"]
    }
    assert by_term(asyncio.run(run(adversary, "retail_scripted", f"test/{index}")), "user") == {}
    assert by_term(asyncio.run(run(neutral, "retail_scripted", f"test/{index}")), "user") == {}


def test_an_adversary_that_breaks_its_role_loses_what_it_won() -> None:
    shop = scenario(user_reward="adversarial")
    task = shop.tasks("test")[0]

    class Liar:
        def __init__(self, agent: str, sample: Any, rng: Any, task: Any = None) -> None:
            self.said = 0

        async def act(self, asked: Any) -> Action:
            self.said += 1
            if self.said > 3:
                return use("end_conversation", reason="settled")
            return Action(
                "Hello, I need help."
                if self.said == 1
                else "How may I help you today? Let me process your request. ###STOP###"
            )

    class Careless:
        def __init__(self, agent: str, sample: Any, rng: Any, task: Any = None) -> None:
            self.acts = iter(
                [
                    use("get_user_details", user_id=task_user),
                    Action("Hm."),
                    Action("That is 12345.67."),
                    Action("Hm?"),
                ]
            )

        async def act(self, asked: Any) -> Action:
            return next(self.acts)

    task_user = task.user_id
    episode = asyncio.run(
        run(shop, "direct", "test/0", behaviours={"assistant": Careless, "user": Liar})
    )
    assert shop.audit(episode).monitor.findings
    assert shop.audit(episode).faults
    won = [
        entry.value
        for entry in episode.ledger
        if entry.agent == "user" and entry.why.startswith("game")
    ]
    assert won[0] == 0.25
    assert sum(won) == pytest.approx(0.0)


# -- cheats --------------------------------------------------------------------------------------


class _Cheat:
    privileged = True

    def __init__(self, agent: str, sample: Any, rng: Any, task: Any = None) -> None:
        self.task, self.turn = task, -1

    async def act(self, asked: Any) -> Action:
        self.turn += 1
        return self.move()

    def move(self) -> Action:
        return Action("")


class Silent(_Cheat):
    """Says nothing at all."""


class Sprayer(_Cheat):
    """Tells every number there is."""

    def move(self) -> Action:
        return Action(
            "It may be "
            + ", ".join(
                f"{number}, {number}.5" for number in range(40 * self.turn, 40 * self.turn + 40)
            )
        )


class Repeater(_Cheat):
    """Makes the same harmless call again and again."""

    def move(self) -> Action:
        return use("list_all_product_types")


class Writer(_Cheat):
    """Makes writes that nobody agreed to, on whatever the task names."""

    def move(self) -> Action:
        orders = [
            wish.arguments["order_id"] for wish in self.task.wishes if "order_id" in wish.arguments
        ] or ["#W0"]
        return (
            use(
                "cancel_pending_order",
                order_id=orders[self.turn % len(orders)],
                reason="no longer needed",
            )
            if self.turn % 2 == 0
            else Action("Done.")
        )


class Transferrer(_Cheat):
    """Hands everybody over at once."""

    def move(self) -> Action:
        return use("transfer_to_human_agents", summary="x")


class Honest(_Cheat):
    """Finds the customer, reads what is needed, and then fails to serve: it leaves the write and
    the answer out."""

    def move(self) -> Action:
        reads = [call for call in self.task.actions if call.name.startswith(("get_", "list_"))]
        if self.turn == 0:
            known = {slot.name: slot.value for slot in self.task.knowledge if slot.known}
            if "email" in known:
                return use("find_user_id_by_email", email=known["email"])
            return use(
                "find_user_id_by_name_zip",
                **{name: known[name] for name in ("first_name", "last_name", "zip")},
            )
        if self.turn <= len(reads):
            return use(reads[self.turn - 1].name, **reads[self.turn - 1].arguments)
        return Action(
            "I have looked into it, and I need a colleague's advice on this. Please have a little"
            " patience with me."
        )


def told_all(agent: str, sample: Any, rng: Any, task: Any = None) -> Any:
    """A patient user that says who it is, and leaves after some answers."""

    class Plain:
        said = 0

        async def act(self, asked: Any) -> Action:
            self.said += 1
            if self.said > 4:
                return use("end_conversation", reason="gave_up")
            who = ". ".join(
                f"My {slot.name} is {slot.value}" for slot in task.knowledge if slot.known
            )
            return Action(f"{who}. {task.wishes[0].text or 'Please help me.'}")

    return Plain()


told_all.privileged = True  # type: ignore[attr-defined]  # how a factory asks for the task


@pytest.mark.parametrize(
    "options",
    [
        {"rewards": EVERY_TERM},
        {"rewards": EVERY_TERM, "user_reward": "neutral"},
        *({"rewards": {term: True}} for term in sorted(set(EVERY_TERM) - {"role"})),
    ],
)
def test_no_cheat_earns_more_than_an_honest_failing_attempt(options: dict[str, Any]) -> None:
    shop = scenario(**options)
    for index in range(3):
        if shop.tasks("test")[index].goal != "served":
            continue
        episodes = [
            asyncio.run(
                run(shop, "direct", f"test/{index}", behaviours={**sides, "user": told_all})
            )
            for sides in (
                {"assistant": who}
                for who in (Honest, Silent, Sprayer, Repeater, Writer, Transferrer)
            )
        ]
        assert {episode.error for episode in episodes} == {None}
        honest, *others = [episode.returns()["assistant"] for episode in episodes]
        told = [by_term(episode) for episode in episodes]
        # one term alone may pay both nothing
        alone = options["rewards"] is not EVERY_TERM
        assert max(others) <= honest + 1e-9 if alone else max(others) < honest, (index, told)


@pytest.mark.parametrize("option", ["strict", {"weight": 2, "strict": True}])
def test_a_strict_outcome_is_paid_only_without_a_sure_hard_violation(option: Any) -> None:
    strict, plain = scenario(rewards={"outcome": option}), scenario()
    weight = option.get("weight", 1) if isinstance(option, dict) else 1
    for assistant in ("retail_scripted", "retail_trusts_the_user", "retail_nothing"):
        for place in range(3):
            episode = asyncio.run(run(plain, assistant, f"test/{place}"))
            paid = asyncio.run(run(strict, assistant, f"test/{place}"))
            wanted = plain.measures(episode)["success without hard violations"]
            assert paid.returns() == dict.fromkeys(("assistant", "user"), weight * wanted)
            assert strict.success(paid) is bool(wanted)
    with pytest.raises(ConfigError, match=r"^scenario.rewards.outcome.strict: true or false"):
        read_settings({"outcome": {"strict": 1}})
