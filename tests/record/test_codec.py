"""Records travel as one line of strict JSON and come back equal."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_ma.kernel.episode import CallResult, End, Entry, Episode, Seat
from gem_ma.kernel.errors import SchemaError, StoreError
from gem_ma.kernel.parsing.strict_json import dump_json, load_json
from gem_ma.kernel.types import (
    Action,
    Attempt,
    Image,
    Malformed,
    Message,
    Reply,
    Tool,
    ToolCall,
    Turn,
    Usage,
)
from gem_ma.record.codec import digest, dump_episode, load_episode, to_json

# any Unicode but lone surrogates
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
NAME = st.sampled_from(["a", "b", "assistant", "user", "ключ", "__proto__", ""])
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | FLOAT | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=3)
CALLS = st.lists(
    st.builds(ToolCall, TEXT, TEXT, OBJECT) | st.builds(Malformed, TEXT, TEXT), max_size=2
).map(tuple)
IMAGE = st.builds(
    Image,
    st.binary(max_size=4).map(lambda data: Image.of(data).digest),
    st.sampled_from(["image/png", "image/jpeg"]),
)
MESSAGES = st.lists(
    st.builds(Message, TEXT | st.lists(TEXT | IMAGE, max_size=3).map(tuple), NAME, CALLS, TEXT),
    max_size=3,
).map(tuple)
COUNT = st.none() | st.integers(0, 10**6)
IDS = st.lists(st.integers(0, 200_000), max_size=4).map(tuple)
REPLY = st.builds(
    Reply,
    text=TEXT,
    tool_calls=CALLS,
    prompt_ids=IDS,
    token_ids=IDS,
    logprobs=st.lists(FLOAT, max_size=4).map(tuple),
    finish=TEXT,
    policy=TEXT,
    version=st.integers(0, 99),
    usage=st.builds(Usage, COUNT, COUNT, COUNT),
    attempts=st.lists(st.builds(Attempt, TEXT, COUNT, FLOAT, TEXT), max_size=2).map(tuple),
)
TOOLS = st.lists(st.builds(Tool, NAME, TEXT, OBJECT), max_size=2).map(tuple)
TURN = st.builds(
    Turn,
    step=st.integers(0, 9),
    agent=NAME,
    observed=MESSAGES,
    legal=st.none() | st.lists(TEXT, min_size=1, max_size=3).map(tuple),
    tools=TOOLS,
    action=st.builds(Action, TEXT, CALLS, st.none() | TEXT),
    replies=st.lists(REPLY, max_size=2).map(tuple),
)
EPISODES = st.builds(
    Episode,
    scenario=TEXT,
    version=st.integers(1, 9),
    seed=st.integers(-(2**63), 2**63),
    task=TEXT,
    repeat=st.integers(0, 9),
    group=st.none() | TEXT,
    cast=st.dictionaries(
        NAME,
        st.builds(
            Seat,
            TEXT,
            st.none() | TEXT,
            OBJECT,
            st.booleans(),
            st.dictionaries(NAME, TEXT, max_size=2),
            OBJECT,
        ),
        max_size=3,
    ),
    turns=st.lists(TURN, max_size=3).map(tuple),
    calls=st.lists(
        st.builds(CallResult, st.integers(-1, 9), JSON, st.none() | TEXT), max_size=2
    ).map(tuple),
    forks=st.lists(st.tuples(st.integers(0, 9), TEXT), max_size=2).map(tuple),
    final=st.dictionaries(NAME, MESSAGES, max_size=2),
    ledger=st.lists(
        st.builds(
            Entry, st.integers(-1, 9), NAME, FLOAT | st.integers(-9, 9), TEXT, st.none() | FLOAT
        ),
        max_size=3,
    ).map(tuple),
    end=st.sampled_from(End),
    error=st.none() | TEXT,
    options=OBJECT,
)
LOOKUP = Tool(
    "lookup",
    "Finds a thing.",
    {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
)


def small(**changes: object) -> Episode:
    turn = Turn(
        0,
        "a",
        (Message("go"),),
        ("left", "right"),
        (LOOKUP,),
        Action("left", (ToolCall("call_0", "lookup", {"id": "7"}),), "left"),
    )
    second = replace(
        turn,
        step=1,
        replies=(Reply("left", (), (1, 2), (3,), (-0.1,), policy="main", usage=Usage(2, 1)),),
    )
    episode = Episode(
        "toy",
        1,
        7,
        "test/3",
        0,
        None,
        {"a": Seat("direct", "main")},
        (turn, second),
        (),
        (),
        {"a": ()},
        (Entry(1, "a", 1.0, "won"),),
        End.TERMINATED,
    )
    return replace(episode, **changes)


@pytest.mark.longest
@settings(max_examples=150, deadline=None)
@given(EPISODES, st.sampled_from([1, 2]))
def test_an_episode_comes_back_equal_and_its_line_is_stable(episode: Episode, schema: int) -> None:
    line = dump_episode(episode, schema)
    loaded = load_episode(line)
    assert loaded == episode and digest(loaded) == digest(episode)
    assert dump_episode(loaded, schema) == line
    assert len(line.splitlines()) == 1  # also for readers that split at U+2028 or form feeds
    json.loads(line.encode("utf-8"))
    assert list(loaded.cast) == list(episode.cast)  # order of agents is kept


def test_every_field_of_every_record_is_written() -> None:
    written = json.dumps(to_json(full(5, "hm", "shop")))
    for kind in (
        Episode,
        Turn,
        Message,
        Action,
        Reply,
        Entry,
        CallResult,
        Seat,
        Tool,
        ToolCall,
        Malformed,
        Image,
        Usage,
        Attempt,
    ):
        missing = [
            f.name for f in fields(kind) if f'"{f.name}"' not in written and f.name != "data"
        ]
        assert not missing, f"{kind.__name__}: {missing}"
    assert load_episode(dump_episode(full())) == full()


def full(cut: int = 0, reasoning: str = "", world: str = "") -> Episode:
    """An episode in which no field holds its default."""
    calls = (ToolCall("c", "lookup", {"id": 1}, "put right"), Malformed("{", "bad_json"))
    image = Image.of(b"png", "image/jpeg")
    message = Message(("see", image), "a", calls, "c")
    attempts = (Attempt("429", 429, 0.5, "slow down"),)
    reply = Reply(
        "x",
        calls,
        (1,),
        (2,),
        (-0.5,),
        "length",
        "main",
        4,
        Usage(1, 1, 1, 1),
        attempts,
        cut,
        reasoning,
        "m" if reasoning else "",
        ("5a",) if reasoning else (),
    )
    turn = Turn(0, "a", (message,), ("x",), (LOOKUP,), Action("x", calls, "x", cut), (reply,))
    seat = Seat("persona", "main", {"k": 1}, True, {"judge": "other"}, {"window": 2})
    calls_made = (CallResult(0, [1], "late"),)
    entry = (Entry(0, "a", 1.0, "why", 2.0),)
    return Episode(
        "toy",
        1,
        1,
        "test/0",
        2,
        "g",
        {"a": seat},
        (turn,),
        calls_made,
        ((0, "s"),),
        {"a": (message,)},
        entry,
        End.FAILED,
        "boom",
        {"r": 2},
        world,
    )


def test_floats_and_whole_numbers_keep_their_type_and_every_bit() -> None:
    logprobs = (-0.1, -1e-300, 5e-324, -0.30000000000000004, -0.0, 1.7976931348623157e308)
    episode = small(
        ledger=(Entry(0, "a", 3), Entry(0, "a", 3.0)), calls=(CallResult(0, [1, 1.0, True, 2**80]),)
    )
    episode = replace(
        episode, turns=(replace(episode.turns[0], replies=(Reply(logprobs=logprobs),)),)
    )
    loaded = load_episode(dump_episode(episode))
    assert [math.copysign(1, x) * x for x in loaded.turns[0].replies[0].logprobs] == [
        math.copysign(1, x) * x for x in logprobs
    ]
    assert [type(entry.value) for entry in loaded.ledger] == [int, float]
    assert [type(value) for value in loaded.calls[0].value] == [int, float, bool, int]


def test_tools_stand_once_per_episode_whatever_the_number_of_turns() -> None:
    line = dump_episode(small())
    assert line.count("Finds a thing.") == 1
    assert all(turn.tools == (LOOKUP,) for turn in load_episode(line).turns)


def test_numbers_of_numpy_are_written_as_plain_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    reply = Reply(
        token_ids=tuple(numpy.array([1, 2])),
        logprobs=tuple(numpy.array([-0.5, -0.25], dtype=numpy.float32)),
    )
    loaded = load_episode(dump_episode(small(turns=(replace(small().turns[0], replies=(reply,)),))))
    assert loaded.turns[0].replies[0].token_ids == (1, 2)
    assert loaded.turns[0].replies[0].logprobs == (-0.5, -0.25)


def test_texts_of_numpy_are_written_as_plain_texts() -> None:
    word = pytest.importorskip("numpy").str_("a")
    turn = replace(small().turns[0], agent=word, observed=(Message(word),))
    given = small(turns=(turn,), ledger=(Entry(0, word, 1.0, word),), final={word: ()})
    for schema in (1, 2):
        assert load_episode(dump_episode(given, schema)) == given


def test_an_image_is_written_as_its_digest_only() -> None:
    image = Image.of(b"\x89PNG secret bytes")
    line = dump_episode(small(final={"a": (Message(("look", image)),)}))
    assert image.digest in line and "secret" not in line
    assert load_episode(line).final["a"][0].content == ("look", image)


def test_text_that_splits_lines_or_drives_terminals_is_escaped_and_kept() -> None:
    nasty = "a\u2028b\u2029c\x85d\x0ce\x1bf\x7fg\x9bh\u202ei\x00\r\nj"
    line = dump_episode(small(error=nasty))
    assert line.isascii() or not set(line) & set("\u2028\u2029\x85\x7f\x9b")
    assert load_episode(line).error == nasty


def test_a_lone_surrogate_is_replaced_on_the_way_out_and_refused_on_the_way_in() -> None:
    line = dump_episode(small(error="bad \ud800 text", options={"\udfff": "\udc00"}))
    assert load_episode(line.encode("utf-8")).error == "bad ? text"
    with pytest.raises(StoreError, match="lone surrogate"):
        load_episode(line.replace("bad ? text", "bad \\ud800 text"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ledger": (Entry(0, "a", math.nan),)}, r"ledger\[0\].value: nan is not a finite number"),
        ({"ledger": (Entry(0, "a", math.inf),)}, r"ledger\[0\].value"),
        ({"ledger": (Entry(0, "a", True),)}, r"ledger\[0\].value: expected a number, got bool"),
        ({"error": 7}, "error: expected text, got int"),
        ({"seed": "7"}, "seed: expected an integer, got str"),
        ({"options": {1: 2}}, "options: the key 1 is not text"),
        ({"options": {"a": {"b": {1, 2}}}}, r"options.a.b: expected a JSON value, got set"),
        ({"calls": (CallResult(0, 10**5000),)}, "beyond the range of floats"),
        (
            {
                "turns": (
                    Turn(
                        0,
                        "a",
                        (),
                        None,
                        (),
                        Action("", (ToolCall("c", "f", {"x": [1.0, math.inf]}),)),
                    ),
                )
            },
            r"turns\[0\].action.tool_calls\[0\].arguments.x\[1\]",
        ),
        (
            {"turns": (Turn(0, "a", (), None, (), Action(None)),)},
            r"turns\[0\].action.text: expected text, got null",
        ),
    ],
)
def test_what_could_not_be_read_back_is_not_written(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(StoreError, match=message):
        dump_episode(small(**change))


def test_values_nested_too_deep_are_refused_in_both_directions() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(StoreError, match="deep"):
        dump_episode(small(calls=(CallResult(0, deep),)))
    with pytest.raises(StoreError, match="deep"):
        load_json("[" * 100_000 + "]" * 100_000)


def edited(path: str, value: object, schema: int) -> str:
    """The line of `small()` with the value at a dotted path replaced; `...` deletes it."""
    data = json.loads(dump_episode(small(), schema))
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = data
    for part in way:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(data, separators=(",", ":"))


@pytest.mark.parametrize("schema", [1, 2])
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("turns.0.action.text", 5, r"turns\[0\].action.text: expected text, got int"),
        (
            "turns.0.action.tool_calls.0.name",
            ...,
            r"turns\[0\].action.tool_calls\[0\].name: is missing",
        ),
        (
            "turns.1.replies.0.token_ids",
            [1.5],
            r"turns\[1\].replies\[0\].token_ids\[0\]: expected an integer, got float",
        ),
        ("turns.1.replies.0.token_ids", [True], r"token_ids\[0\]: expected an integer, got bool"),
        ("turns.1.replies.0.logprobs", ["x"], r"logprobs\[0\]: expected a number, got str"),
        ("turns.1.replies.0.speed", 1, r"turns\[1\].replies\[0\]: unknown key 'speed'"),
        ("turns.0.tools", [1], r"turns\[0\].tools: names a tool that `tools` lacks; it has 1"),
        ("turns.0.tools", [-1], "names a tool"),
        ("turns", {}, "turns: expected a list, got dict"),
        ("cast.a.privileged", "yes", "cast.a.privileged: expected true or false, got str"),
        ("ledger", ..., "ledger: is missing"),
        ("colour", "red", "unknown key 'colour'"),
        ("end", "exploded", "end: 'exploded' is not one of terminated"),
        ("end", [], "end: "),
        ("id", ["test/3", 7, 1], "id: "),
        ("id", "x", "id: "),
        ("forks", [[1]], r"forks\[0\]: expected a pair"),
        ("schema", "1", "schema: "),
        ("schema", ..., "schema: is missing"),
        ("schema", 0, "schema: "),
        ("schema", True, "schema: "),
        ("final.a", None, "final.a: expected a list, got null"),
    ],
)
def test_a_wrong_field_is_named_with_its_path(
    path: str, value: object, message: str, schema: int
) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        load_episode(edited(path, value, schema))
    assert not isinstance(caught.value, SchemaError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "not JSON"),
        ("[]", "expected an object, got list"),
        ("{", "not JSON"),
        (b"\xff\xfe{}", "not UTF-8 at byte 0"),
        ('{"schema": 1, "schema": 1}', "duplicate key 'schema'"),
        ('{"schema": NaN}', "NaN is not JSON"),
        ('{"schema": -Infinity}', "Infinity"),
        ('{"schema": 1e400}', "beyond the range of floats"),
        ('{"schema": ' + "9" * 5000 + "}", "not strict JSON"),
        ('{"schema": 1} {"schema": 1}', "Extra data"),
        ('{"a": "\x01"}', "not JSON"),
    ],
)
def test_a_line_that_is_no_strict_json_is_refused(line: str | bytes, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        load_episode(line)


def test_a_newer_schema_is_told_apart_even_with_unknown_fields() -> None:
    for space in ("", " "):
        with pytest.raises(SchemaError, match="schema 3 is newer than 2"):
            load_episode(f'{{"schema":{space}3, "shape": "of things to come"}}')


def test_the_digest_forgets_token_counts_and_retries_and_nothing_else() -> None:
    plain = small()
    reply = plain.turns[1].replies[0]
    retried = replace(reply, usage=Usage(9, 9), attempts=(Attempt("429"),))
    assert digest(
        small(turns=(plain.turns[0], replace(plain.turns[1], replies=(retried,))))
    ) == digest(plain)
    other = replace(reply, token_ids=(4,))
    assert digest(
        small(turns=(plain.turns[0], replace(plain.turns[1], replies=(other,))))
    ) != digest(plain)
    assert digest(small(seed=8)) != digest(plain)
    assert digest(load_episode(dump_episode(plain))) == digest(plain)


def test_a_line_of_the_first_schema_still_opens() -> None:
    golden = Path(__file__).parents[1] / "golden" / "episode-schema-1.jsonl"
    # written before a seat could name further policies, or remember, and before wrappers
    seat = replace(full().cast["a"], policies={}, memory={})
    assert load_episode(golden.read_bytes().rstrip(b"\n")) == replace(
        full(), cast={"a": seat}, ledger=(replace(full().ledger[0], original=None),)
    )


def test_dump_json_refuses_what_json_cannot_hold() -> None:
    with pytest.raises(StoreError, match="not writable as JSON"):
        dump_json({"a": math.nan})
    with pytest.raises(StoreError, match="not writable as JSON"):
        dump_json({"a": object()})
