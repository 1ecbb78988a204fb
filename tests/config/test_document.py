"""YAML text becomes what a reader of it expects, with the line of every key; what would surprise
is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_ma.config.document import MAX_BYTES, read, scalar, write
from gem_ma.kernel.errors import ConfigError


def faults(text: str) -> str:
    try:
        return "\n".join(map(str, read(text, "run.yaml").faults))
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        ("no", "no"), ("on", "on"), ("yes", "yes"), ("Off", "Off"),
        ("12:30", "12:30"), ("2026-11-20", "2026-11-20"), ("1.2.3", "1.2.3"), ("5xx", "5xx"),
        ("7", 7), ("-3", -3), ("+4", 4), ("0", 0), ("2_000_000", 2_000_000), ("0x1F", 31), ("0o17", 15),
        ("1e-5", 1e-5), ("1e5", 1e5), ("1.5", 1.5), (".5", 0.5), ("3.", 3.0), ("-2.5E3", -2500.0), ("0.5", 0.5),
    ],
)  # fmt: skip
def test_plain_words_are_read_by_the_core_schema(text: str, value: object) -> None:
    read_back = scalar(text)
    assert read_back == value and type(read_back) is type(value)


@pytest.mark.parametrize(
    "text", ["010", "08", "00", "-07", "007.5", "1e400", ".inf", "-.INF", ".nan", "9" * 5000]
)
def test_numbers_that_would_surprise_are_refused(text: str) -> None:
    assert faults(f"a: 1\nb: {text}").startswith("run.yaml:2: b: ")
    assert read(f"b: '{text}'", "run.yaml").value == {"b": text}


def test_a_duplicate_key_names_both_lines_and_the_first_value_stays() -> None:
    document = read("a: 1\nb: {c: 1, c: 2}\na: 3\n", "run.yaml")
    assert list(map(str, document.faults)) == [
        "run.yaml:2: b: duplicate key 'c' (first at line 2)",
        "run.yaml:3: duplicate key 'a' (first at line 1)",
    ]
    assert document.value == {"a": 1, "b": {"c": 1}}


def test_keys_are_text_as_written() -> None:
    assert read("on: 1\n1: 2\nyes: 3\n'': 4\n", "run.yaml").value == {
        "on": 1,
        "1": 2,
        "yes": 3,
        "": 4,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("base: &a {x: 1}\nmore: *a", "run.yaml:2: more: aliases (*name) are refused"),
        ("&a [*a]", "run.yaml:1: aliases (*name) are refused"),
        ("a: 1\n<<: {b: 2}", "run.yaml:2: merge keys (<<) are refused"),
        (
            "a: !!python/object/apply:os.system [ls]",
            "run.yaml:1: a: the tag tag:yaml.org,2002:python/object/apply:os.system is refused",
        ),
        ("a: !x 1", "run.yaml:1: a: the tag !x is refused"),
        ("a: 1\n---\nb: 2", "run.yaml:2: a second document"),
        ("a: 1\nb: [1, 2", "run.yaml:2: not readable as YAML"),
        ("a:\n\tb: 1", "run.yaml:2: not readable as YAML: a tab at the beginning of the line"),
        ("a:\r\n  b:\r\n  \tc: 1", "run.yaml:3: not readable as YAML: a tab at the beginning"),
        ("? [1]\n: 2", "run.yaml:1: a key must be plain text"),
        ("a: " + "[" * 60, "run.yaml:1: a: nested deeper than 50"),
        ("a: " + "[" * 100_000, "run.yaml:1: a: nested deeper than 50"),
        ("a: x\0y", "run.yaml: not plain text"),
        ("# " + "x" * MAX_BYTES, "run.yaml: 262146 bytes; a config has at most 262144"),
    ],
)
def test_what_yaml_allows_and_a_config_does_not_need_is_refused_with_its_line(
    text: str, said: str
) -> None:
    assert faults(text).startswith(said)


def test_depth_50_is_read_and_51_is_not() -> None:
    assert faults("[" * 50 + "]" * 50) == ""
    assert "nested deeper" in faults("[" * 51 + "]" * 51)


def test_every_key_path_knows_its_line() -> None:
    document = read("a:\n  b: 1\n  c:\n  - x\n  - {d: 2}\n", "run.yaml")
    lines = {path: place.line for path, place in document.places.items()}
    assert lines == {
        (): 1,
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 5,
        ("a", "c", 1, "d"): 5,
    }


@pytest.mark.long
@settings(max_examples=80, deadline=None)
@given(
    st.text(alphabet=st.characters(codec="utf-8"), max_size=60)
    | st.text(alphabet="{}[]&*!<:,-#|>'\"%@` \n\tab01?", max_size=40)
)
def test_any_text_is_read_or_refused_in_one_way(text: str) -> None:
    faults(text)


_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
)
_TEXTS = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12
)
_WORDS = "12e4567,1e5,no,010,0o17,12:30,~,,null,1_000,.inf,<<,- a,a: b,#x,${env:X},2026-11-20"
_TRICKY = st.sampled_from(_WORDS.split(","))


@pytest.mark.long
@settings(max_examples=80, deadline=None)
@given(
    st.recursive(
        _LEAVES | _TEXTS | _TRICKY,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(_TEXTS | _TRICKY, inner, max_size=3)
        ),
        max_leaves=12,
    )
)
def test_what_is_written_is_read_back_equal(value: object) -> None:
    document = read(write(value), "run.yaml")
    assert document.value == value and not document.faults
