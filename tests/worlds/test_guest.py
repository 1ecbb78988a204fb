"""A guest's turn: random states of its own, and the caller's are put back to the last bit."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy
import pytest

from gem_ma.worlds import guest as guests
from gem_ma.worlds.guest import guest


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    numbers, generator = random.getstate(), numpy.random.get_bit_generator()
    kept = numpy.random.get_state()
    yield
    random.setstate(numbers)
    numpy.random.set_bit_generator(generator)
    numpy.random.set_state(kept)


@pytest.fixture(params=["another generator", "a copy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "a copy":
        monkeypatch.setattr(guests, "_is_quick", lambda random: False)
    return str(request.param)


def draws() -> list[float]:
    return [random.random(), numpy.random.random(), *numpy.random.standard_normal(3)]


def test_this_numpy_takes_the_short_way() -> None:
    assert guests._is_quick(numpy.random)


@pytest.mark.parametrize("drawn", [0, 1, 2])  # after one normal a second waits in the state
@pytest.mark.parametrize("inside", [0, 1, 2])
def test_the_caller_goes_on_as_if_nobody_had_been_there(way: str, drawn: int, inside: int) -> None:
    def drawn_around(turn: bool) -> list[float]:
        random.seed(3)
        numpy.random.seed(3)
        numpy.random.standard_normal(drawn)
        if turn:
            with guest(8):
                numpy.random.standard_normal(inside)
                with guest(9):
                    numpy.random.standard_normal(3 - inside)
                random.random()
        return draws()

    assert drawn_around(True) == drawn_around(False)


def test_a_guest_draws_the_same_for_the_same_seed_whoever_was_there_before(way: str) -> None:
    numpy.random.standard_normal()
    with guest(5):
        first = draws()
        with guest(6):
            draws()
        second = draws()
    with guest(5):
        assert [draws(), draws()] == [first, second]


def test_a_guest_may_do_to_numpys_state_what_it_likes(way: str) -> None:
    numpy.random.seed(3)
    expected = numpy.random.RandomState(3).random(3)
    with guest(5):
        numpy.random.seed(11)
    with pytest.raises(KeyError), guest(5):
        raise KeyError
    if way == "another generator":
        with guest(5):
            numpy.random.set_bit_generator(numpy.random.PCG64(1))
    with guest(5):
        assert numpy.random.get_state()[0] == "MT19937"
    assert list(numpy.random.random(3)) == list(expected)


def test_a_caller_with_another_generator_keeps_it() -> None:
    mine = numpy.random.PCG64(1)
    expected = numpy.random.Generator(numpy.random.PCG64(1)).random(2)
    numpy.random.set_bit_generator(mine)
    with guest(5):
        numpy.random.random()
    assert numpy.random.get_bit_generator() is mine
    assert list(numpy.random.random(2)) == list(expected)


def test_a_numpy_with_other_insides_is_told_apart() -> None:
    class Other:
        MT19937 = numpy.random.MT19937
        RandomState = numpy.random.Generator

    assert not guests._is_quick(Other)
