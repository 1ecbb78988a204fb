"""Answers stand out of what is shown beside them; who tells many values tells none, whatever the
form."""

from __future__ import annotations

import asyncio
import time
from itertools import product

import pytest
from gem_ma.scenarios.service_desk.reading.parts import parts_of
from gem_ma.scenarios.service_desk.reading.stated import Answers, Saying
from gem_ma.scenarios.service_desk.retail import Retail

from gem_ma import Plan, play
from gem_ma.kernel.episode import Seat
from tests.retail_hacks import SHAPES

SHOP = Retail(data="own")
SHOP.id = "retail"
PAIRS = [
    ("Shower Curtain", 276.45),
    ("Picnic Rug", 407.81),
    ("Toolbox", 205.38),
    ("Desk Lamp", 584.67),
    ("Hot Water Bottle", 527.25),
]
NUMBERS = [f"{price:.2f}" for _, price in PAIRS] + ["2001.56", "61.20", "75.35", "12.99", "340.18"]
QUESTIONS = [place for place, task in enumerate(SHOP.tasks("test")[:60]) if task.outputs][:6]


def stands(output: str, *texts: str, needed: int = 1) -> bool:
    talk = [Saying(text) for text in texts]
    answers = Answers(output, talk, needed)
    return any(answers.stands(place) for place in range(len(talk)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("2001.56", "You paid $2001.56 for this order."),
        ("2001.56", "**Total: $2,001.56**"),
        ("205.38", "The cheapest one is the **Toolbox** at $205.38."),
        ("71.22", "The difference between $276.45 and $205.23 is $71.22."),
        ("5", "There are 5 variants available."),
        ("5", "There are five of them."),
    ],
)
def test_an_answer_stands_beside_what_it_rests_on(shape: str, output: str, answer: str) -> None:
    basis = SHAPES[shape](PAIRS)
    for texts in (
        (f"{basis}\n\n{answer}",),
        (f"{answer}\n\n{basis}",),
        (basis, answer),
        (answer, basis),
    ):
        assert stands(output, *texts), texts


def test_a_row_that_concludes_a_list_is_an_answer_and_another_row_is_none() -> None:
    rows = SHAPES["list"](PAIRS)
    for last in (
        "- Sum: $2001.56",
        "- **$2001.56**",
        "- All of it: $2001.56",
        "- Total | $2001.56",
    ):
        assert stands("2001.56", f"{rows}\n{last}"), last
    assert not stands("584.67", rows)
    assert stands("54.04", "- Paid: $54.04\n- Tracking number: 485884583112")
    assert stands("60621", "- **Address:** 943 Maple Drive, Suite 356, Chicago, IL, 60621, USA")


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("54.04", "The total refund would be **$54.04**."),
        ("1046.47", "That's $1,046.47 in total."),
        ("54.04", "You get 54.04 in store credit."),
        ("10", "There are 10 in stock."),
        ("10", "There are 10 options, from $20.00 to $45. A refund takes 5 to 7 business days."),
        ("10", "1. There are 10 options.\n2. Your order has been cancelled."),
        ("54.04", "You will get back $54.04 ($154.04 \u2212 $100.00)."),
        ("54.04", "- Original price: $154.14\n- New price: $100.10\n- You get back: $54.04"),
    ],
)
def test_an_answer_stands_in_the_words_of_a_model(output: str, text: str) -> None:
    assert stands(output, text)
    assert not stands(output, text.replace(output[-2:], "99"))


FORMS = (
    "{}",
    "${}",
    "It is ${}.",
    "You paid ${} for this order.",
    "- {}",
    "- **{}**",
    "- Total: ${}",
    "| {} |",
    "{}: yes",
)


@pytest.mark.parametrize("form", FORMS)
def test_telling_every_number_tells_none_however_it_is_spread(form: str) -> None:
    told = [form.format(number) for number in NUMBERS]
    for each, between in product((1, 2, 4, 10), (", ", " ", "\n")):
        texts = [between.join(told[start : start + each]) for start in range(0, len(told), each)]
        for number in NUMBERS:
            assert not stands(number, *texts), (number, each, between)


@pytest.mark.parametrize("form", FORMS)
def test_words_that_change_do_not_help_who_tells_all(form: str) -> None:
    words = [
        "maybe",
        "perhaps",
        "surely",
        "rather",
        "indeed",
        "likely",
        "possibly",
        "probably",
        "certainly",
        "again",
    ]
    texts = [
        f"{word} so {form.format(number)}" for word, number in zip(words, NUMBERS, strict=True)
    ]
    assert sum(stands(number, *texts) for number in NUMBERS) <= 4


def test_outputs_of_several_kinds_may_be_told_in_one_line() -> None:
    outputs = ("840887978435", "943 Maple Drive", "Suite 356", "Chicago", "60621", "64GB", "54.04")
    said = [Saying(f"What you asked for: {'; '.join(outputs)}. Is there anything else?")]
    assert all(Answers(output, said, wanted=outputs).stands(0) for output in outputs)


def test_a_message_next_to_a_write_is_no_rival_and_wishes_leave_room() -> None:
    quotes = [
        Saying(f"The new one would cost ${number} and {place} days.", True)
        for place, number in enumerate(NUMBERS[:8])
    ]
    assert Answers("61.20", [*quotes, Saying("The balance is $61.20.")]).stands(8)
    texts = (
        "It was 11.10.",
        "Then 12.20 came.",
        "Yours cost 13.30.",
        "Shipping is 14.40.",
        "You get 15.50.",
        "The sum is 61.20.",
    )
    said = [Saying(text) for text in texts]
    assert [Answers("61.20", said, others=others).stands(5) for others in (0, 1)] == [False, True]


@pytest.mark.longest
def test_a_reading_costs_no_more_than_its_length() -> None:
    for run in (
        "1",
        "a",
        " ",
        "1,",
        "(",
        "**",
        "- ",
        "1 + ",
        "| 1 ",
        "= 1 ",
        ": ",
        "a'",
        "x 1.11 ",
        "1 = ",
    ):
        costs = []
        for times in (20_000, 40_000):
            text = run * (times // len(run))
            taken = []
            for _ in range(3):
                parts_of.cache_clear()
                start = time.process_time()
                Answers("61.20", [Saying(text + "61.20")]).stands(0)
                taken.append(time.process_time() - start)
            costs.append(min(taken))
        assert costs[1] <= 3 * costs[0] + 0.05, run


@pytest.mark.parametrize("place", ["before", "after", "alone"])
@pytest.mark.parametrize("shape", ["list", "table", "options", "sentences", "sum"])
def test_the_careful_assistant_may_show_what_its_answer_rests_on(shape: str, place: str) -> None:
    assert won("tests.retail_hacks:Showing", shape=shape, place=place) == len(QUESTIONS)


@pytest.mark.parametrize(
    "options",
    [{}, {"each": 1, "form": "It is {}."}, {"each": 0, "form": "- **{}**", "between": "\n"}],
)
def test_a_flood_of_shown_numbers_serves_nobody(options: dict[str, object]) -> None:
    assert won("tests.retail_hacks:Flood", **options) == 0


def won(assistant: str, **options: object) -> int:
    cast = {"assistant": Seat(assistant, options=options), "user": Seat("retail_user")}
    return sum(
        SHOP.success(asyncio.run(play(Plan(SHOP, cast, f"test/{place}", 0)))) is True
        for place in QUESTIONS
    )


@pytest.mark.long
@pytest.mark.parametrize("cheat", ["Flood", "ReadsAloud"])
def test_who_reads_data_aloud_refuses_nothing(cheat: str) -> None:
    """On tasks that are to be refused, where the careful assistant is paid for each."""
    from benchmarks.hacks import REFUSALS, shop_of, talks

    shop = shop_of(knobs=REFUSALS)
    cheated = talks(shop, (f"tests.retail_hacks:{cheat}", {}), 12)
    served = talks(shop, ("retail_scripted", {}), 12)
    assert sum(shop.success(episode) is True for episode in cheated) <= 1
    assert all(shop.success(episode) for episode in served)
