"""Talk inside of a play: forms, orders, channels, and that a message keeps its sender."""

import pytest

from gem_ma import Ask, Game, Scenario, talk

NAMES = ("ann", "bob", "cat")


class Room(Scenario):
    agents = NAMES

    def __init__(self, **how):
        self.how = how

    def play(self, rng, task):
        self.said = yield from talk(NAMES, "Speak.", rng=rng, **self.how)
        yield Ask({"ann": "done"})


def heard(game, agent):
    return [(m.sender, m.text) for m in game.view(agent) if m.sender in NAMES and m.sender != agent]


def test_all_at_once_hear_each_other_with_senders():
    game = Game(Room())
    game.send({name: f"I am {name}" for name in NAMES})
    assert heard(game, "ann") == [("bob", "I am bob"), ("cat", "I am cat")]
    assert game.scenario.said == [(name, f"I am {name}") for name in NAMES]


def test_in_turn_each_has_heard_those_before():
    game = Game(Room(order="in turn"))
    assert set(game.pending) == {"ann"}
    game.send({"ann": "first"})
    assert set(game.pending) == {"bob"} and heard(game, "bob") == [("ann", "first")]


def test_bids_let_one_speak_and_none_where_nobody_wants_to():
    game = Game(Room(order="bids", rounds=2))
    game.send({"ann": "0", "bob": "3", "cat": "junk"})
    assert set(game.pending) == {"bob"}
    game.send({"bob": "me"})
    assert heard(game, "ann") == [("bob", "me")]
    game.send(dict.fromkeys(NAMES, "0"))
    assert game.pending["ann"].legal is None and heard(game, "ann") == [("bob", "me")]


def test_a_channel_is_heard_by_its_hearers_alone():
    game = Game(Room(hearers={"ann": ("bob",), "bob": ("ann",), "cat": ()}))
    game.send({"ann": "psst", "bob": "yes", "cat": "hello?"})
    assert heard(game, "bob") == [("ann", "psst")] and heard(game, "ann") == [("bob", "yes")]
    assert heard(game, "cat") == []


def test_signals_are_legal_strings_and_nothing_else_is_heard():
    game = Game(Room(form="signals", signals=("high", "low")))
    assert game.pending["ann"].legal == ("high", "low")
    game.send({"ann": "high", "bob": "the deed is done", "cat": "low"})
    assert game.scenario.said == [("ann", "high"), ("cat", "low")]


def test_none_asks_nobody_and_free_is_cut():
    assert set(Game(Room(form="none")).pending) == {"ann"}
    game = Game(Room(most=5))
    game.send({"ann": "x" * 100, "bob": " ", "cat": ""})
    assert game.scenario.said == [("ann", "x" * 5)]


@pytest.mark.parametrize("how", [{"form": "loud"}, {"order": "at will"}])
def test_other_words_are_refused(how):
    with pytest.raises(ValueError, match="talk is none"):
        next(talk(NAMES, "?", **how))
    with pytest.raises(ValueError, match="needs rng"):
        next(talk(NAMES, "?", order="bids"))


@pytest.mark.parametrize("order", ["at once", "in turn"])
def test_signals_may_be_those_of_each_agent(order):
    own = {name: (f"{name} knows", "nothing") for name in NAMES}
    game = Game(Room(form="signals", signals=own, order=order))
    while "done" not in game.view("ann")[-1].text:
        assert all(asked.legal == own[name] for name, asked in game.pending.items())
        game.send(dict.fromkeys(game.pending, "ann knows"))
    assert game.scenario.said == [("ann", "ann knows")]
