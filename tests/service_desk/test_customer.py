"""The scripted customer: what each trait changes, how it goes through its wishes, and that
nothing it does depends on chance outside its seed."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.agents.customer import Customer
from gem_ma.scenarios.service_desk.agents.customer_phrases import BANK, REGISTERS
from gem_ma.scenarios.service_desk.agents.customer_traits import (
    PRESETS,
    Character,
    Traits,
    traits_of,
)
from gem_ma.scenarios.service_desk.agents.retail_talk import change, proposal
from gem_ma.scenarios.service_desk.reading.answers import answer, corrects
from gem_ma.scenarios.service_desk.reading.phrases import MISSING, RIGHT, WRONG, Mention, Pick
from gem_ma.scenarios.service_desk.retail import Retail, Slot, Task, Wish
from gem_ma.scenarios.service_desk.watching.agenda import chain

from gem_ma import Action, Asked, Message, Plan, play
from gem_ma.kernel.episode import Episode, Seat
from gem_ma.kernel.errors import ConfigError
from tests.assistant_messages import WISHES
from tests.heard import Heard, ended

SHOP = Retail(data="own")
SHOP.id = "retail"
CANCEL, RETURN, EXCHANGE = WISHES["cancel"], WISHES["return"], WISHES["exchange"]
WHO = (
    Slot("first_name", "Ann", "opening"),
    Slot("last_name", "Lee", "opening"),
    Slot("email", "ann@example.com"),
    Slot("zip", "97301", known=False),
)
TASK = Task(
    "test/0", "by hand", "ann_lee_1", "You are Ann Lee.", (), knowledge=WHO, wishes=(CANCEL,)
)
WHO_ASKED = "Could you give me your e-mail address, or your full name and zip code?"


def offer(wish: Wish, **other: Any) -> str:
    return proposal([change(wish.kind, {**wish.arguments, **other})])


# -- going through the wishes --------------------------------------------------------------------


def test_a_talk_from_the_opening_to_the_end() -> None:
    customer = Heard(TASK)
    assert (
        "Ann Lee" in customer.opening
        and "#W1234567" in customer.opening
        and "ann@example.com" not in customer.opening
    )
    assert "ann@example.com" in customer.says(WHO_ASKED)
    assert answer(customer.says(offer(CANCEL))) == "yes"
    assert ended(customer.hear("Order #W1234567 has been cancelled. Anything else?")) == "settled"


FREE = (  # what an assistant says in free English, and what the customer's answer must hold
    (
        (
            "I'd be happy to help! To verify your identity, could you please provide your email"
            " address?"
        ),
        "ann@example.com",
    ),
    ("Thank you, Ann! Let me look that up for you.", ""),
    (
        (
            "The new Kite is available for $45.00. Please note that exchanges can only be requested"
            " once per order. Any other items to exchange?"
        ),
        "",
    ),
    (
        (
            "Here are the details:\n\n**Order:** #W3456789\n**Item to exchange:** Kite (delta, 30"
            " m, amber)\n**New item:** Kite (box, 60 m, amber)\n**Price difference:** $5.00,"
            " charged to your credit card ending in 4321\n\nDo you confirm that you'd like to"
            " proceed? (yes/no)"
        ),
        "Yes",
    ),
    (
        (
            "Your exchange request for order #W3456789 has been submitted successfully. Is there"
            " anything else I can help you with?"
        ),
        "#W2345678",
    ),
    (
        (
            "Sure. I can process the return of the Kite and the Lantern from order #W2345678,"
            " refunded to your PayPal account. Shall I go ahead?"
        ),
        "Yes",
    ),
)


def test_a_talk_in_free_english_from_the_opening_to_the_end() -> None:
    customer = Heard(TASK, EXCHANGE, RETURN)
    for text, held in FREE:
        said = customer.says(text)
        assert said and held in said and "not" not in said.casefold().split(), text
    assert (
        ended(customer.hear("The return has been processed. You will get $65.00 back to PayPal."))
        == "settled"
    )


def test_the_next_wish_is_raised_when_the_first_is_done_and_waits_for_those_before_it() -> None:
    later = replace(RETURN, after=(2,))
    customer = Heard(TASK, CANCEL, later, EXCHANGE)
    customer.says(offer(CANCEL))
    assert "#W3456789" in customer.says("Order #W1234567 has been cancelled. Anything else?")
    customer.says(offer(EXCHANGE))
    assert "#W2345678" in customer.says("The exchange of order #W3456789 has been requested.")


def test_several_writes_are_agreed_on_at_once_only_if_all_are_right() -> None:
    both = proposal([change(wish.kind, wish.arguments) for wish in (CANCEL, RETURN)])
    one_off = proposal(
        [
            change(CANCEL.kind, CANCEL.arguments),
            change(RETURN.kind, {**RETURN.arguments, "payment_method_id": "gift_card_1"}),
        ]
    )
    assert answer(Heard(TASK, CANCEL, RETURN).says(both)) == "yes"
    said = Heard(TASK, CANCEL, RETURN).says(one_off)
    assert answer(said) == "no" and "payment method" in said and "PayPal" in said


def test_a_wrong_argument_is_named_and_corrected() -> None:
    said = Heard(TASK).says(offer(CANCEL, reason="ordered by mistake"))
    assert answer(said) == "no" and "reason" in said and "no longer needed" in said


def test_a_gap_is_asked_about_once_and_a_wrong_value_never_gets_a_yes() -> None:
    customer = Heard(TASK, patience=8)
    vague = "Shall I cancel order #W1234567?"
    said = customer.says(vague)
    assert "?" in said and "reason" in said and answer(said) != "yes"
    # What is made then is the assistant's own affair.
    assert answer(customer.says(vague)) == "yes"
    customer = Heard(TASK, patience=8)
    wrong = [customer.hear(offer(CANCEL, reason="ordered by mistake")) for _ in range(9)]
    assert {answer(action.text) for action in wrong if action.text} == {"no"}
    assert ended(wrong[-1]) == "gave_up"


def test_the_mind_is_changed_when_the_first_wish_is_proposed() -> None:
    before = replace(
        CANCEL,
        arguments={**CANCEL.arguments, "reason": "ordered by mistake"},
        words={**CANCEL.words},
    )
    customer = Heard(TASK, replace(CANCEL, before_change=before))
    assert "ordered by mistake" in customer.opening
    said = customer.says(offer(before))
    assert answer(said) == "" and corrects(said) and "no longer needed" in said
    assert answer(customer.says(offer(CANCEL))) == "yes"


def test_a_right_refusal_leads_to_what_is_wanted_instead_and_a_wrong_one_to_insisting() -> None:
    no = Wish(
        "impossible",
        {"order_id": "#W7"},
        text="Please cancel order #W7.",
        intent="cancel",
        reason="order_status",
        instead=CANCEL,
    )
    customer = Heard(TASK, no)
    assert customer.opening.endswith("Please cancel order #W7.")
    assert "#W1234567" in customer.says(
        "I am sorry, order #W7 cannot be cancelled, because its status is delivered."
    )
    insisting = Heard(TASK, patience=3)
    refused = "I am sorry, order #W1234567 cannot be cancelled."
    assert [ended(insisting.hear(refused)) for _ in range(3)] == ["", "", "gave_up"]


def test_a_transfer_is_wanted_only_where_nothing_else_can_be_done() -> None:
    offered = "Would you like me to transfer you to a human agent?"
    assert answer(Heard(TASK).says(offered)) != "yes"
    beyond = Wish("impossible", {}, text="Please paint my kite.", reason="beyond_tools")
    assert answer(Heard(TASK, beyond).says(offered)) == "yes"


def test_forgotten_and_unknown_things_are_denied_and_nothing_is_made_up() -> None:
    customer = Heard(TASK)
    said = customer.says("What is your zip code?")
    assert "zip code" in said and not re.search(r"\d", said)
    assert "97301" not in customer.says(WHO_ASKED)


def test_what_is_not_found_is_told_again() -> None:
    customer = Heard(TASK)
    customer.says(WHO_ASKED)
    assert "ann@example.com" in customer.says("Sorry, there is no account with these data.")


def test_a_method_left_open_is_chosen_among_those_that_the_assistant_names() -> None:
    wish = replace(
        RETURN,
        words={**RETURN.words, "method": "whatever method is allowed"},
        choices=({"payment_method_id": "gift_card_5"},),
    )
    asked = "Which payment method shall I use? There are credit_card_4, gift_card_5."
    assert (
        "gift_card_5" in Heard(TASK, wish).says(asked) and "PayPal" not in Heard(TASK, wish).opening
    )
    assert answer(Heard(TASK, wish).says(offer(wish, payment_method_id="gift_card_5"))) == "yes"


def test_a_choice_among_offered_variants_is_made() -> None:
    text = (
        "There are several: 4444444444 (60 m) for $30.00; 5555555555 (30 m) for $31.00. Which one"
        " do you want?"
    )
    assert "4444444444" in Heard(TASK, EXCHANGE).says(text)


@pytest.mark.parametrize(
    "token",
    [
        "###STOP###",
        "###TRANSFER###",
        "<|endoftext|>",
        "[END]",
        "end_conversation(settled)",
        "</s>",
        "STOP.",
    ],
)
def test_no_word_of_the_assistant_ends_the_talk_or_is_echoed(token: str) -> None:
    action = Heard(TASK).hear(f"{token} Hello {token}")
    assert ended(action) == "" and token not in action.text


# -- traits --------------------------------------------------------------------------------------


def test_patience_is_the_number_of_unhelpful_messages() -> None:
    for patience in (1, 3, 7):
        customer = Heard(TASK, patience=patience)
        assert [ended(customer.hear("Thank you for your message.")) for _ in range(patience)] == [
            ""
        ] * (patience - 1) + ["gave_up"]


def test_what_is_told_at_once_grows_with_front_load() -> None:
    opening = {share: Heard(TASK, RETURN, front_load=share).opening for share in (0.0, 0.5, 1.0)}
    assert "Ann" not in opening[0.0] and "Kite" not in opening[0.0] and "#W2345678" in opening[0.0]
    assert "Kite" in opening[1.0] and "PayPal" in opening[1.0] and "Ann Lee" in opening[1.0]
    assert len(opening[0.0]) < len(opening[0.5]) < len(opening[1.0])
    assert "PayPal" in Heard(TASK, RETURN, front_load=0.0).says(
        "Which payment method should the refund go to?"
    )


def test_words_grow_with_verbosity() -> None:
    talks = {
        level: [Heard(TASK, verbosity=level, seed=seed) for seed in range(8)] for level in (0, 1, 2)
    }
    lengths = [
        sum(len(talk.opening) + len(talk.says(offer(CANCEL))) for talk in talks[level])
        for level in (0, 1, 2)
    ]
    assert lengths[0] < lengths[1] < lengths[2]


def test_an_uncooperative_customer_does_not_answer_at_once_and_never_refuses_twice() -> None:
    customer = Heard(TASK, cooperation=0.0)
    assert "ann@example.com" not in customer.says(WHO_ASKED)
    assert "ann@example.com" in customer.says(WHO_ASKED)

    details = Heard(TASK, RETURN, cooperation=0.0, front_load=0.0)
    said = [details.says("Which payment method should the refund go to?") for _ in range(2)]
    assert ["PayPal" in text for text in said] == [False, True]


def test_a_slip_is_put_right_in_the_next_message() -> None:
    known = replace(TASK, knowledge=(*WHO[:3], Slot("zip", "97301")))
    customer = Heard(known, mistakes=1.0)
    first = customer.says("What is your zip code?")
    assert "97301" not in first and re.search(r"\b\d{5}\b", first)
    second = customer.says("I could not find you.")
    assert corrects(second) and "97301" in second
    assert answer(customer.says(offer(CANCEL))) == "yes"


def test_scepticism_goes_from_ids_only_to_prices() -> None:
    bare, whole, priced = (
        "Shall I cancel order #W1234567?",
        offer(CANCEL),
        f"The refund is $12.50. {offer(CANCEL)}",
    )
    assert [answer(Heard(TASK, scepticism=level).says(bare)) for level in (0, 1, 2)] == [
        "yes",
        "",
        "",
    ]
    assert [answer(Heard(TASK, scepticism=level).says(whole)) for level in (0, 1, 2)] == [
        "yes",
        "yes",
        "",
    ]
    assert answer(Heard(TASK, scepticism=2).says(priced)) == "yes"
    assert [
        answer(Heard(TASK, scepticism=level).says(offer(CANCEL, order_id="#W7")))
        for level in (0, 1, 2)
    ] == ["no"] * 3
    twice = Heard(TASK, scepticism=2)
    assert "?" in twice.says(whole) and answer(twice.says(whole)) == "yes"


def test_a_wavering_customer_wavers_once() -> None:
    customer = Heard(TASK, mind_change=1.0)
    assert [answer(customer.says(offer(CANCEL))) for _ in range(2)] == ["", "yes"]


def test_the_order_of_topics_is_given_reversed_or_drawn_by_the_seed() -> None:
    wishes = (CANCEL, RETURN, EXCHANGE)
    first = {
        order: [
            wish
            for wish in wishes
            if wish.arguments["order_id"] in Heard(TASK, *wishes, order=order).opening
        ]
        for order in ("given", "reversed")
    }
    assert first == {"given": [CANCEL], "reversed": [EXCHANGE]}
    drawn = {
        Heard(TASK, *wishes, order="shuffled", seed=seed).opening.split("#W")[1][:7]
        for seed in range(12)
    }
    assert drawn == {"1234567", "2345678", "3456789"}


@pytest.mark.parametrize("register", REGISTERS)
def test_a_register_has_its_own_words_for_everything(register: str) -> None:
    for act, words in BANK.items():
        assert words[register] and all(
            re.search(r"\d", text) is None for text in words[register]
        ), act
    assert all(answer(text) == "yes" for text in BANK["confirm"][register])
    assert all(answer(text) == "no" for text in BANK["reject"][register])
    neither = [
        text for act in BANK if act not in ("confirm", "reject") for text in BANK[act][register]
    ]
    assert [text for text in neither if answer(text) == "yes"] == []


def test_presets_traits_of_the_task_and_options_are_laid_over_each_other() -> None:
    draw, rng = traits_of, random.Random(0)
    assert draw("user", rng, Character(), {}) == Traits()
    assert draw("user", rng, Character(), {"preset": "terse", "patience": 9}) == Traits(
        patience=9, **PRESETS["terse"]
    )
    assert draw("user", rng, Character("chatty", verbosity=1), {"patience": 9}) == Traits(
        verbosity=1, register="casual"
    )
    assert draw("user", rng, Character(), {"colour": "blue"}) == Traits()
    drawn = {
        draw("user", random.Random(seed), Character(patience=[3, 12]), {}).patience
        for seed in range(60)
    }
    assert drawn == set(range(3, 13))
    shares = [
        draw("user", random.Random(seed), Character(front_load=(0.2, 0.4)), {}).front_load
        for seed in range(20)
    ]
    assert all(0.2 <= share <= 0.4 for share in shares) and len(set(shares)) > 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"preset": "terce"}, "did you mean 'terse'"),
        ({"patience": 0}, "patience is a whole number of at least 1"),
        ({"patience": True}, "patience"),
        ({"patience": "4"}, "patience"),
        ({"patience": [5, 3]}, "goes from low to high"),
        ({"verbosity": 3}, "verbosity is a whole number from 0 to 2"),
        ({"verbosity": 0.5}, "verbosity"),
        ({"front_load": 1.5}, "front_load is a number from 0 to 1"),
        ({"mistakes": float("nan")}, "mistakes"),
        ({"order": "random"}, "order is one of given, reversed, shuffled"),
        ({"register": "rude"}, "register is one of"),
        ({"scepticism": [0, 1, 2]}, "scepticism"),
    ],
)
def test_a_trait_out_of_its_range_is_refused_by_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match="agent 'user'") as refused:
        Heard(TASK, **options)
    assert words in str(refused.value)


# -- whole talks ---------------------------------------------------------------------------------


def run(assistant: str, index: int, preset: str, seed: int = 0, split: str = "val") -> Episode:
    cast = {"assistant": Seat(assistant), "user": Seat("retail_user", options={"preset": preset})}
    return asyncio.run(play(Plan(SHOP, cast, f"{split}/{index}", seed)))


@pytest.mark.parametrize("preset", list(PRESETS))
def test_the_oracle_serves_every_preset_and_the_same_seed_gives_the_same_bytes(preset: str) -> None:
    for index in range(list(PRESETS).index(preset), 200, 40):
        episode = run("retail_oracle", index, preset)
        assert SHOP.success(episode) is True, (preset, index)
    assert run("retail_oracle", 7, preset, seed=5) == run("retail_oracle", 7, preset, seed=5)


def test_seeds_draw_other_words_for_the_same_wish() -> None:
    assert (
        len({run("retail_oracle", 3, "faithful", seed).turns[0].action.text for seed in range(8)})
        > 1
    )


# -- another desk --------------------------------------------------------------------------------


class Library:
    """A desk that lends books: the least that a phrasebook can say."""

    name = "library"
    single = frozenset(("card",))
    anchors = frozenset(("book",))
    refusing = finished = states = re.compile(r"(?!)")
    asked = {"card": re.compile(r"\bcard\b"), "book": re.compile(r"\bwhich book\b")}
    reasons: Mapping[str, re.Pattern[str]] = {}

    def writes(self, sentence: str) -> frozenset[str]:
        return frozenset(("lend",)) if re.search(r"\blen[dt]\b", sentence) else frozenset()

    def kinds(self, wish: Wish) -> frozenset[str]:
        return frozenset((wish.kind,))

    def mentions(self, text: str) -> tuple[Mention, ...]:
        return tuple(
            Mention("book", hit.group(), *hit.span()) for hit in re.finditer(r"B\d+", text)
        )

    def judge(self, wish: Wish, text: str) -> Mapping[str, str]:
        named = {mention.value for mention in self.mentions(text)}
        return {"book": RIGHT if wish.arguments["book"] in named else WRONG if named else MISSING}

    def details(self, wish: Wish) -> tuple[str, ...]:
        return ("book",)

    def request(self, wish: Wish, details: Collection[str], pick: Pick) -> str:
        return f"Please lend me book {wish.arguments['book']}."

    def detail(self, wish: Wish, slot: str, pick: Pick) -> str:
        return f"It is book {wish.arguments['book']}."

    def give(self, slots: Mapping[str, str], pick: Pick) -> str:
        return " ".join(f"My {slot} is {value}." for slot, value in slots.items())

    def offered(self, wish: Wish, text: str) -> str:
        return ""

    def label(self, slot: str) -> str:
        return slot

    def mistaken(self, slot: str, value: str) -> str:
        return ""


class Reader(Customer):
    phrasebook = Library()
    scenario = "library"


def test_a_customer_of_another_desk_needs_only_its_phrasebook() -> None:
    task = Task(
        "library/0",
        "by hand",
        "reader",
        "",
        (),
        knowledge=(Slot("card", "C7"),),
        wishes=(Wish("lend", {"book": "B12"}),),
    )
    reader = Reader("user", None, random.Random(0), task)

    def hear(text: str) -> Action:
        return asyncio.run(reader.act(Asked((Message(text, "assistant"),), (), None, (), 0)))

    assert "book B12" in hear("Hi!").text
    assert "C7" in hear("What is the number of your card?").text
    assert answer(hear("Shall I lend you book B13?").text) == "no"
    assert answer(hear("Shall I lend you book B12?").text) == "yes"
    assert (
        ended(hear("It has been lent to you.")) == "settled"
        or ended(hear("Done, it is all set.")) == "settled"
    )
    with pytest.raises(ConfigError, match="a task of the scenario library"):
        Reader("user", None, random.Random(0))


ASKS = (
    "What is your order number?",
    "Which order is it about? Please give me its number, or the names of its items.",
    WHO_ASKED,
    "Could you tell me more about what you want?",
    "I could not find your account. Could you check what you gave me?",
    "Which payment method shall I use, and what is the reason?",
    "One moment, please.",
)


@pytest.mark.long
def test_no_sentence_names_the_record_of_a_wish_that_waits_for_a_refusal() -> None:
    shop = Retail(data="own", knobs={"conditional": 1.0, "infeasible": 0.5, "requests": 2})
    tried = 0
    for task in shop.tasks("train")[:40]:
        first = {str(wish.arguments.get("order_id")) for wish in task.wishes}
        spare = (
            {
                str(each.arguments.get("order_id"))
                for wish in task.wishes
                for each in tuple(chain(wish))[1:]
            }
            - first
            - {"None"}
        )
        tried += bool(spare)
        for preset in ("faithful", "terse", "erratic") if spare else ():
            heard = Heard(task, preset=preset)
            said = [heard.opening, *(heard.says(text) for text in ASKS)]
            for order_id in spare:
                assert not any(order_id in text for text in said), (task.id, order_id)
    assert tried > 2
