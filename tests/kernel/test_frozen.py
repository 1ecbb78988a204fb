"""A quick record is the record that `dataclass` makes, in all that its users can see."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import (
    MISSING,
    FrozenInstanceError,
    InitVar,
    dataclass,
    field,
    fields,
    is_dataclass,
    replace,
)
from typing import Any, ClassVar

import pytest

from gem_ma.kernel import episode, types
from gem_ma.kernel.types import maker, quick


@quick
@dataclass(frozen=True, slots=True)
class Quick:
    """With a default and without, compared and not, and a value of the class."""

    name: Any
    values: tuple[int, ...] = ()
    hidden: Any = field(default=None, compare=False, repr=False)
    made: list[int] = field(default_factory=list, hash=False)
    shared: ClassVar[int] = 3


@dataclass(frozen=True, slots=True)
class Plain:
    """With a default and without, compared and not, and a value of the class."""

    name: Any
    values: tuple[int, ...] = ()
    hidden: Any = field(default=None, compare=False, repr=False)
    made: list[int] = field(default_factory=list, hash=False)
    shared: ClassVar[int] = 3


CALLS: list[Callable[[Any], Any]] = [
    lambda cls: cls("a"),
    lambda cls: cls("a", (1, 2), [3]),
    lambda cls: cls("a", hidden="b", values=(1,)),
    lambda cls: cls(values=(), name=None),
    lambda cls: cls(cls("a"), (1,)),
]
WRONG: list[Callable[[Any], Any]] = [
    lambda cls: cls(),
    lambda cls: cls("a", (), None, [], 3),
    lambda cls: cls("a", name="b"),
    lambda cls: cls("a", shared=4),
]


def named(text: object) -> str:
    return str(text).replace("Quick", "Plain")


MAKERS = [Quick, maker(Quick)]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("call", CALLS)
def test_it_reads_compares_hashes_and_travels_as_a_dataclass(call, make):
    made, plain = call(make), call(Plain)
    assert type(made) is Quick
    assert named(repr(made)) == repr(plain)
    assert [getattr(made, each.name) for each in fields(plain)[1:]] == [
        getattr(plain, each.name) for each in fields(plain)[1:]
    ]
    for other in CALLS:
        assert (made == other(Quick)) == (plain == other(Plain))
    assert hash(made) == hash(call(Quick)) and made != plain
    if not isinstance(made.name, Quick):  # whose hash is that of its fields, as a tuple
        assert hash(made) == hash(plain)
    copies = [copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), replace(made)]
    for each in copies:
        assert each == made and each.hidden == made.hidden and type(each) is Quick
    assert replace(made, values=(9,)) == Quick(made.name, (9,), made.hidden)


@pytest.mark.parametrize("call", WRONG)
def test_it_refuses_what_a_dataclass_refuses(call):
    words = []
    for cls in (*MAKERS, Plain):
        with pytest.raises(TypeError) as caught:
            call(cls)
        words.append(named(caught.value))
    assert words[0] == words[1] == words[2]


@pytest.mark.parametrize("make", MAKERS)
def test_what_a_factory_makes_is_made_anew(make):
    assert make("a").made == [] and make("a").made is not make("a").made
    assert make("a", made=[1]).made == [1]


@pytest.mark.parametrize("make", MAKERS)
def test_it_is_frozen_and_its_signature_is_that_of_a_dataclass(make):
    made = make("a")
    for change in (lambda: setattr(made, "name", "b"), lambda: delattr(made, "name")):
        with pytest.raises(FrozenInstanceError):
            change()
    with pytest.raises((AttributeError, TypeError)):
        made.unknown = 1
    assert inspect.signature(Quick) == inspect.signature(Plain)
    for name in ("__qualname__", "__module__"):
        assert named(getattr(Quick.__init__, name)) == getattr(Plain.__init__, name)


RECORDS = [
    cls
    for module in (types, episode)
    for cls in vars(module).values()
    if is_dataclass(cls) and cls.__module__ == module.__name__
]


@pytest.mark.parametrize("cls", RECORDS)
def test_the_records_of_a_play_take_their_fields_in_order(cls):
    taken = [*inspect.signature(cls).parameters.values()]
    assert [each.name for each in taken] == [each.name for each in fields(cls)]
    values = [object() for _ in taken]
    if not hasattr(cls, "__post_init__"):
        made = cls(*values)
        assert [getattr(made, each.name) for each in taken] == values
    for each, made_of in zip(taken, fields(cls), strict=True):
        if made_of.default is not MISSING:
            assert each.default == made_of.default


def after() -> type:
    @dataclass(frozen=True, slots=True)
    class Made:
        value: int = 0

        def __post_init__(self):
            raise ValueError

    return Made


def inherited() -> type:
    @dataclass(frozen=True, slots=True)
    class Made(after()):
        other: int = 0

    return Made


def by_name() -> type:
    @dataclass(frozen=True, slots=True)
    class Made:
        value: int = field(kw_only=True)

    return Made


def no_parameter() -> type:
    @dataclass(frozen=True, slots=True)
    class Made:
        first: int = 0
        value: int = field(init=False)

    return Made


def parameter_alone() -> type:
    @dataclass(frozen=True, slots=True)
    class Made:
        value: int
        of: InitVar[int] = 0

    return Made


def no_slots() -> type:
    @dataclass(frozen=True)
    class Made:
        value: int = 0

    return Made


def no_dataclass() -> type:
    class Made:
        __slots__ = ("value",)

    return Made


@pytest.mark.parametrize(
    "make",
    [after, inherited, by_name, no_parameter, parameter_alone, no_slots, no_dataclass],
)
def test_what_the_constructor_would_leave_out_is_refused(make):
    with pytest.raises(TypeError, match="Made: no quick constructor, since "):
        quick(make())
