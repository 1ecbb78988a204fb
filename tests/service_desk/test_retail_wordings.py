"""The careful assistant is served alike in whatever words it talks: what it did decides, not how
it was said."""

from __future__ import annotations

import asyncio

import pytest
from gem_ma.scenarios.service_desk.retail import Retail

from gem_ma import Plan, Seat, play
from tests.retail_wordings import WORDINGS

SHOP = Retail(data="own")
SHOP.id = "retail"
TASKS = [f"test/{place}" for place in range(10)]


def won(assistant: str, task: str, **options: str) -> bool:
    cast = {"assistant": Seat(assistant, options=options), "user": Seat("retail_user")}
    episode = asyncio.run(play(Plan(SHOP, cast, task, seed=int(task.rpartition("/")[2]))))
    assert episode.error is None, episode.error
    return SHOP.success(episode) is True


@pytest.mark.long
@pytest.mark.parametrize("wording", WORDINGS)
def test_natural_words_are_served_as_the_scripted_ones_are(wording: str) -> None:
    assert [task for task in TASKS if not won(f"tests.retail_wordings:{wording}", task)] == []
    # Every other task is served in these words too, up to the few that the scripted words lose.
    assert all(won(f"tests.retail_wordings:{wording}", f"train/{place}") for place in range(3))


QUESTIONS = [
    f"test/{place}"
    for place, task in enumerate(SHOP.tasks("test")[:60])
    if [wish.kind for wish in task.wishes] == ["question"]
][:3]


@pytest.mark.parametrize(
    ("say", "paid"),
    [
        ("It is {}.", True),
        ("No worries, it comes to {}. Delivery isn't affected.", True),
        ("I can't change it, but I can tell you: {}.", True),
        ("You won't be charged anything else; it is {}.", True),
        ("I am not sure, but it is certainly not {}.", False),
        ("It isn't {}, that much is clear.", False),
        ("{} is wrong.", False),
        ("It might be {}.", False),
        ("I'm unsure; {} is a guess.", False),
        ("It is {}. No, that is wrong.", False),
        ("It is {0}. No wait, it's {1}.", False),
        ("Either {0} or {1}.", False),
        ("First guess: {0}. Otherwise I would say {1}. One colleague thinks {2}.", False),
        ("It is {0}. It is {1}. It is {2}. It is {3}.", False),
        ("First: {0}\nSecond: {1}\nThird: {2}", False),
    ],
)
def test_an_answer_is_the_last_value_that_is_not_denied(say: str, paid: bool) -> None:
    told = [won("tests.retail_answerers:Answering", task, say=say) for task in QUESTIONS]
    assert told == [paid] * len(QUESTIONS)
