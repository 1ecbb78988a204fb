"""The scenario `questions`: every grader pays the right answer and no junk; data, splits, attempts
and baselines."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sys
from hashlib import sha256
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from gem_ma.scenarios.questions.answers import answer_of
from gem_ma.scenarios.questions.graders import GRADERS, read, score
from gem_ma.scenarios.questions.items import Item, item_of
from gem_ma.scenarios.questions.numbers import number
from gem_ma.scenarios.rows import read as read_rows

from gem_ma import Episode, Game, Plan, Scenario, Seat, make, play_many, task_of
from gem_ma.config import load
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.tools.belt import WithTools
from gem_ma.tools.search import Search
from tests.junk import junk

COLUMNS = {name: name for name in ("question", "answer", "choices", "kind")}
CITIES = ["London", "Paris", "Rome", "Berlin"]
ROWS: dict[str, dict[str, Any]] = {
    "number": {"question": "A shop has 6 boxes with 7 eggs each. How many eggs?", "answer": "42"},
    "fraction": {"question": "What is 2/8 in lowest terms?", "answer": "1/4"},
    "letter": {"question": "What is the capital of France?", "choices": CITIES, "answer": "B"},
    "last letter": {"question": "What is the capital of Germany?", "choices": CITIES, "answer": 3},
    "word": {"question": "What is the capital of France?", "answer": "Paris"},
    "words": {
        "question": "Who wrote the play Hamlet?",
        "answer": ["William Shakespeare", "Shakespeare"],
    },
    "either": {"question": "Which city is larger, Paris or Metz?", "answer": "Paris"},
    "yes": {"question": "Is 7 a prime number?", "answer": True},
}
CASES = [
    ("number", "number"), ("fraction", "number"), ("letter", "letter"), ("last letter", "letter"),
    ("word", "exact"), ("words", "exact"), ("yes", "exact"), ("number", "math"), ("fraction", "math"),
    ("word", "contains"), ("words", "contains"), ("either", "contains"), ("number", "contains"),
    ("word", "f1"), ("words", "f1"), ("either", "f1"), ("number", "f1"), ("yes", "contains"), ("yes", "f1"),
    ("number", "exact"), ("last letter", "exact"), ("letter", "contains"), ("letter", "f1"),
]  # fmt: skip


def item(name: str, grader: str = "") -> Item:
    row = dict(ROWS[name])
    if row.get("choices") and grader not in ("", "letter"):
        row["answer"] = row["choices"][
            "ABCD".find(row["answer"]) if isinstance(row["answer"], str) else row["answer"]
        ]
    return item_of(row, COLUMNS, grader, "row 1")


def paid(asked: Item, text: str) -> float:
    worth = score(asked, read(asked, text))
    return 0.0 if worth is None else worth


@pytest.mark.longest
def test_gold_gets_one_and_junk_nothing_whatever_the_grader() -> None:
    assert {grader for _, grader in CASES} == set(GRADERS)
    for name, grader in CASES:
        asked = item(name, grader)
        for right in asked.right:
            for form in (
                "{}",
                " {} \n",
                "\\boxed{{{}}}",
                "Answer: {}",
                "So it is:\n\nThe answer is {}.",
                "Because of this and of that.\n{}",
            ):
                assert paid(asked, form.format(right)) == 1, (name, grader, form)
        texts = junk(asked)
        assert len(texts) >= 60
        for text in texts:
            if text.strip().casefold() not in map(str.casefold, asked.right):
                assert paid(asked, text) == 0, (name, grader, text[:80])


def test_golds_of_other_questions_are_junk() -> None:
    for name, grader in CASES:
        asked = item(name, grader)
        for other, _ in CASES:
            for gold in item(other, grader if other == name else "").right:
                if gold not in asked.right and gold.casefold() not in map(
                    str.casefold, asked.choices
                ):
                    assert paid(asked, gold) == 0, (name, grader, gold)


@pytest.mark.parametrize("grader", ["contains", "f1", "exact"])
def test_a_list_of_candidates_never_pays_more_than_its_best_one(grader: str) -> None:
    """Over every right answer that a list could be meant for, in the mean."""
    names = ["New York", "Rio de Janeiro", "Paris", "Saint Petersburg", "Rome"]
    for size in (2, 3, 5):
        for listed in (names[:size], names[-size:], names[::-1][:size]):
            flood = sum(
                score(
                    item_of({"question": "Where?", "answer": right}, COLUMNS, grader, ""),
                    " ".join(listed),
                )
                or 0
                for right in names
            )
            guess = max(
                sum(
                    score(
                        item_of({"question": "Where?", "answer": right}, COLUMNS, grader, ""), guess
                    )
                    or 0
                    for right in names
                )
                for guess in listed
            )
            assert flood <= guess


@pytest.mark.parametrize(
    ("grader", "answer", "worth"),
    [
        ("contains", "The capital of France is Paris.", 1.0),
        ("contains", "It is in Paris", 1.0),
        ("f1", "the Paris", 1.0),
        ("exact", "PARIS.", 1.0),
        ("exact", "**Paris**", 1.0),
        ("exact", "Paris, France", 0.0),
    ],
)
def test_usual_forms_of_a_word_are_read(grader: str, answer: str, worth: float) -> None:
    assert paid(item("word", grader), answer) == worth


@pytest.mark.parametrize(
    "said",
    [
        "B",
        "b",
        "(B)",
        "B.",
        "B)",
        "**B**",
        "B) Paris",
        "(B) Paris",
        "B: paris",
        "Paris",
        "$B$",
        "\\text{B}",
        "[B]",
        "\\boxed{\\text{B}}",
        "Option B",
        "choice (B)",
        "It's B.",
        "B is correct.",
        "B is the right answer",
        "Paris is correct",
        "The correct option is B.",
        "Hence the best choice is (B).",
        "Answer: option B",
        "Answer - B",
        "Answer: The answer is B",
        "B - Paris",
        "<answer>B</answer>",
        "<answer>\n(B) Paris\n</answer> That is all.",
        "Thus, B.",
        "I think it is B.",
        "I'd go with B",
        "Therefore (B) is the correct answer.",
        "The capital of France is **Paris**.",
        "Paris is the capital of France.",
        "The answer is B because Rome is in Italy.",
        "The answer is B, Paris.",
        "B (Paris)",
        "“B”",
        "### Answer\nB",
        "**Final Answer**\nB",
        "Answer → B",
        "The answer must be B.",
        "The wrong answer is A, so the correct answer is B",
    ],
)
def test_usual_forms_of_a_choice_are_read(said: str) -> None:
    assert paid(item("letter"), said) == 1


def test_a_choice_that_stands_there_twice_is_named_by_its_letter_alone() -> None:
    asked = item_of({"question": "?", "choices": ["x", "y", "x"], "answer": "C"}, COLUMNS, "", "")
    assert [paid(asked, said) for said in ("C", "x", "C) x", "A", "A) x")] == [1, 0, 1, 0, 0]


def test_a_list_of_choices_whose_words_the_question_has_names_none() -> None:
    choices = ["I only", "II only", "III only", "I, II, and III"]
    question = (
        "Which are true? I. The sea is salt. II. Ice only floats. III. Stones swim, and sink."
    )
    asked = item_of({"question": question, "choices": choices, "answer": "D"}, COLUMNS, "", "")
    assert [paid(asked, said) for said in (*choices, ", ".join(choices))] == [0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    "said",
    [
        *("B) London", "A) Paris", "B or so", "choice", "BB", "B) Paris C) Rome", "б", "B - Rome"),
        *("B is not correct", "It isn't B", "neither option B", "option", "B is wrong"),
        *("It's A\nIt's B", "<answer>A</answer><answer>B</answer>", "<answer></answer>"),
        *(
            "wrong answer: B",
            "A, Paris",
            "The capital is not Paris.",
            "A Paris",
            "Rome or Paris is.",
        ),
        *("The correct option is not B", "The best choice is to say B", "Option B or option C"),
    ],
)
def test_a_choice_that_contradicts_itself_is_none(said: str) -> None:
    assert paid(item("letter"), said) == 0


@pytest.mark.parametrize(
    "said",
    [
        "42",
        "42.0",
        "+42",
        "$42$",
        "\\$42",
        "42 eggs",
        "x = 42",
        "4.2e1",
        "42.",
        "\\(42\\)",
        "42\\text{ eggs}",
        "**42**",
        "It is 42.",
        "There are 42 eggs.",
        "So the total is 42",
        "Total: 42",
        "= 42",
        "f(x) = 42",
        "(42)",
        "\\left(42\\right)",
        "6 * 7 = 42",
        "The answer is 6 × 7 = 42 eggs",
        "It's 42",
        "$42$ eggs",
        "**42** eggs",
        "There are 42 eggs in total.",
        "That makes 42 eggs.",
        "Total eggs = 42",
    ],
)
def test_usual_forms_of_a_number_are_read(said: str) -> None:
    assert number(said, "How many eggs?") == 42


@pytest.mark.parametrize(
    "said",
    [
        "84/2",
        "6*7",
        "6 \\cdot 7",
        "42 hens",
        "42 or",
        "42,43",
        "42 43",
        "4 2",
        "~42",
        "42!",
        "42-0",
        "1e9999",
        "0o52",
        "4_2",
        "forty-two",
        "42 no",
        "\\frac{84}{2}",
        "It is not 42",
        "It is less than 42",
        "The total is 40 or 42",
        "half of 84",
        "the 42nd",
        "There are 42 hens",
        "3x = 42",
        "6 * 7 = 41 = 42",
        "eggs: 42 or eggs",
        "no more eggs than 42",
        "eggs != 42",
        "3\\frac{84}{2}",
        "42 dollars",
    ],
)
def test_what_is_no_single_number_is_none(said: str) -> None:
    assert number(said, "How many eggs or not? 84/2, no?") is None


@pytest.mark.parametrize(
    ("forms", "value"),
    [
        (
            (
                "\\frac12",
                "\\frac1{2}",
                "\\frac 1 2",
                "\\tfrac{ 1 }{ 2 }",
                "1 / 2",
                "½",
                "50 percent",
            ),
            "1/2",
        ),
        (("3\\frac{1}{2}", "3\\frac12", "3 1/2", "3½", "3.5", "\\frac72", "P(A) = 7/2"), "7/2"),
        (("-\\frac{1}{2}", "-½", "\\frac{-1}{2}", "-0.5"), "-1/2"),
        (("1\u202f000", "1,000", "1000", "1 000"), "1e3"),
        (("-5", "–5", "minus 5", "negative 5"), "-5.0"),
    ],
)
def test_forms_of_a_fraction_and_of_thousands_are_one_number(
    forms: tuple[str, ...], value: str
) -> None:
    right = {"question": "?", "answer": forms[0]}
    for grader in ("math", "number"):
        asked = item_of(right, COLUMNS, grader, "")
        assert [score(asked, said) for said in (*forms, value)] == [1.0] * (len(forms) + 1)
        for said in ("1", "2", "12", "1/3", "31/2", f"1-{value}", f"{value} or 1", "-9"):
            assert score(asked, said) == 0


@pytest.mark.parametrize(
    ("right", "said"),
    [
        *(("5", ".5"), (".5", "5"), ("-5", "5"), ("42", "-42"), ("42", "42%"), ("42", "<42"), ("1/3", "1:3")),
        *(("1/3", "1"), ("C", "C++"), ("C++", "C#"), ("x < 5", "x > 5"), ("yes", "!yes"), ("to be", "to")),
        *(("To be, or not to be, that is the question", "it is"), ("May 1945", "May 1945 is wrong")),
    ],
)  # fmt: skip
def test_what_stands_around_the_words_of_an_answer_belongs_to_it(right: str, said: str) -> None:
    for grader in ("exact", "contains", "f1", "number", "math"):
        if grader != "number" or number(right) is not None:
            asked = item_of({"question": "Which?", "answer": right}, COLUMNS, grader, "")
            assert (score(asked, right), score(asked, said) or 0) == (1, 0), grader


def test_a_number_of_the_question_is_not_said_again_as_the_answer() -> None:
    for said in ("Which number is 42?", "number is 42"):
        assert number(said, "Which number is 42?") is None


def test_letters_are_compared_whatever_way_their_accents_are_written() -> None:
    asked = item_of({"question": "?", "answer": "na\u00efve"}, COLUMNS, "", "")
    assert score(asked, "nai\u0308ve") == 1


def test_a_unit_is_one_that_the_question_or_a_right_formula_says() -> None:
    assert number("18 dollars", "Apples are $2. How much are nine?") == 18
    assert number("18 dollars", "How many apples?") is None
    asked = item_of({"question": "How long?", "answer": "10\\text{ cm}"}, COLUMNS, "math", "")
    assert [score(asked, said) for said in ("10 cm", "10", "10 m", "11 cm")] == [1, 1, 0, 0]


def test_a_word_in_latex_is_that_word() -> None:
    for right in ("\\text{even}", "even", "$even$"):
        for grader in ("math", "exact"):
            asked = item_of({"question": "?", "answer": right}, COLUMNS, grader, "")
            assert [score(asked, said) for said in ("even", "\\text{Even}", "$even$")] == [1, 1, 1]
            assert not score(asked, "odd") and not score(asked, "uneven")


def test_numbers_are_compared_exactly() -> None:
    assert (
        number("0.1") == number("1/10") == number("\\frac{1}{10}") == number("10%") == number(".1")
    )
    assert number("10%", "How many percent?") == 10
    assert number("1,234,567.5") == number("1234567.5") != number("1234567.50001")
    assert number("0.3333333333") != number("1/3")
    assert number("−3") == number("-3") == -3


@pytest.mark.parametrize(
    ("text", "rule", "answer"),
    [
        ("\\boxed{1} then \n\n\\boxed{2}", "auto", "2"),
        ("\\boxed{\\frac{1}{2}}", "auto", "\\frac{1}{2}"),
        ("\\boxed{7", "auto", "\\boxed{7"),
        ("Answer: 3\nNo, wait.\nAnswer: 4", "auto", "4"),
        ("**Answer:** 4", "auto", "4"),
        ("**Final answer**: 4", "auto", "4"),
        ("so the answer is\n4", "auto", "4"),
        ("long reasons\n#### 4", "auto", "4"),
        ("First 3 + 4 = 7.\n7", "auto", "7"),
        ("6\n7", "auto", ""),
        ("7\n7", "auto", "7"),
        ("\\boxed{3}", "last", "\\boxed{3}"),
        ("Answer: 3", "boxed", ""),
        ("\\boxed{3}\nfour", "marked", ""),
        (" a\nb ", "whole", "a\nb"),
    ],
)
def test_the_answer_is_found_by_the_rule(text: str, rule: str, answer: str) -> None:
    assert answer_of(text, rule) == answer


# -- data -----------------------------------------------------------------------------------------


def written(folder: Path, name: str, rows: list[dict[str, Any]]) -> str:
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


ARITHMETIC = [{"question": f"What is {n} + {n}?", "answer": 2 * n} for n in range(200)]


def test_held_out_rows_keep_their_split_whatever_stands_around_them(tmp_path: Path) -> None:
    whole = make("questions", data=written(tmp_path, "a.jsonl", ARITHMETIC))
    half = make("questions", data=written(tmp_path, "b.jsonl", ARITHMETIC[::-2]))
    splits = {split: set(whole.tasks(split)) for split in ("train", "dev", "test")}
    assert sum(map(len, splits.values())) == len(set.union(*splits.values())) == 200
    assert 20 <= len(splits["test"]) <= 60 and 8 <= len(splits["dev"]) <= 35
    assert all(set(half.tasks(split)) <= splits[split] for split in splits)
    assert whole.tasks("all")[: len(splits["train"])] == whole.tasks("train")
    with pytest.raises(ConfigError, match="no split 'exam'; there are train, dev, test, all"):
        whole.tasks("exam")


def test_the_order_is_that_of_the_seed_or_of_the_file(tmp_path: Path) -> None:
    data = written(tmp_path, "a.jsonl", ARITHMETIC)
    orders = [
        make("questions", data=data, held_out=1.0, shuffle=seed).tasks("test")
        for seed in (0, 0, 1, None)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert [asked.right[0] for asked in orders[3]] == [str(row["answer"]) for row in ARITHMETIC]


def test_files_by_split_are_left_as_they_are(tmp_path: Path) -> None:
    data = {
        "train": written(tmp_path, "a.jsonl", ARITHMETIC[:3]),
        "test": written(tmp_path, "b.jsonl", ARITHMETIC[3:5]),
    }
    scenario = make("questions", data=data)
    assert [len(scenario.tasks(split)) for split in ("train", "dev", "test")] == [3, 0, 2]
    with pytest.raises(ConfigError, match="files by split"):
        make("questions", data={"exam": data["test"]})


def test_a_file_that_is_written_anew_is_read_anew(tmp_path: Path) -> None:
    before = make("questions", data=written(tmp_path, "a.jsonl", ARITHMETIC[:5]))
    digest = before.provenance()["digest"]
    after = make("questions", data=written(tmp_path, "a.jsonl", ARITHMETIC[:6]))
    assert len(after.tasks("all")) == 6 and after.provenance()["digest"] != digest


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.csv", "a.tsv"])
def test_every_form_of_file_holds_the_same_questions(name: str, tmp_path: Path) -> None:
    import csv
    import gzip
    import io

    rows = [
        {"q": 'Which?\u2028 One, "two"', "target": "B", "options": ["x", "y"]},
        {"q": "What?", "target": "7", "options": ""},
    ]
    text = json.dumps(rows) if name == "a.json" else "".join(json.dumps(row) + "\n" for row in rows)
    if name.endswith(("csv", "tsv")):
        out = io.StringIO()
        table = csv.DictWriter(out, rows[0].keys(), delimiter="\t" if name.endswith("tsv") else ",")
        table.writeheader()
        table.writerows(rows)
        text = out.getvalue()
    content = ("\ufeff" + text).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    scenario = make(
        "questions",
        data=str(tmp_path / name),
        shuffle=None,
        held_out=1.0,
        question="q",
        answer="target",
        choices="options",
    )
    first, second = scenario.tasks("test")
    assert (first.right, first.choices, first.grader) == (("B",), ("x", "y"), "letter")
    assert (second.right, second.grader) == (("7",), "number")


def test_a_field_of_a_table_may_be_long(tmp_path: Path) -> None:
    import csv

    limit = csv.field_size_limit()
    (tmp_path / "a.csv").write_text(f"question,answer\n{'x' * 200_000},a\n")
    assert len(make("questions", data=str(tmp_path / "a.csv")).tasks("all")[0].question) == 200_000
    assert csv.field_size_limit() == limit


def test_a_question_that_is_kept_as_messages_has_their_words() -> None:
    parts = [{"type": "text", "text": "What"}, {"type": "image"}, "is 1 + 1?"]
    messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": parts}]
    asked = item_of({"question": messages, "answer": 2}, COLUMNS, "", "")
    assert asked.question == "Add.\n\nWhat\nis 1 + 1?"


@pytest.mark.parametrize(
    ("row", "letter"),
    [
        ({"choices": ["x", "y", "z"], "answer": 2}, "C"),
        ({"choices": ["x", "y", "z"], "answer": "z"}, "C"),
        ({"choices": ["2", "1", "0"], "answer": "0"}, "C"),
        ({"choices": ["2", "1", "0"], "answer": 0}, "A"),
        ({"choices": {"text": ["x", "y", "z"], "label": ["1", "2", "3"]}, "answer": "3"}, "C"),
        ({"choices": "['x', 'y', 'z']", "answer": "c"}, "C"),
        ({"choices": "{'text': ['x', 'y'], 'label': ['1', '2']}", "answer": "2"}, "B"),
        (
            {"choices": [{"label": "1", "text": "x"}, {"label": "2", "text": "y"}], "answer": "2"},
            "B",
        ),
        ({"choices": [{"key": "p", "value": "x"}, {"key": "q", "value": "y"}], "answer": "q"}, "B"),
        *(({"choices": ["x", "y"], "answer": said}, "B") for said in ("(B)", "B.", ["y"], 1.0)),
    ],
)
def test_the_right_choice_is_found_in_the_usual_forms(row: dict[str, Any], letter: str) -> None:
    assert item_of({"question": "?", **row}, COLUMNS, "", "").right == (letter,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no rows"),
        ("[1]\n", "line 1: an object"),
        ("{\n", "line 1: not JSON"),
        ('{"question": "?"}', "row 1: no column 'answer'; it has question"),
        ('{"question": "", "answer": 1}', "row 1: no text in the column 'question'"),
        ('{"question": "?", "answer": ""}', "row 1: its answer"),
        ('{"question": "?", "answer": {}}', "row 1: its answer"),
        ('{"question": "?", "answer": NaN}', "row 1: its answer"),
        ('{"question": "?", "answer": [1, 1e999]}', "row 1: its answer"),
        (
            '{"question": "?", "answer": 0, "choices": {"text": ["x", "y"], "label": 3}}',
            "labels of",
        ),
        ('{"question": "?", "answer": "E", "choices": ["a", "b"]}', "is not a choice"),
        ('{"question": "?", "answer": "x", "choices": ["x", "x", "y"]}', "is not a choice"),
        ('{"question": "?", "answer": "A", "choices": ["a", ""]}', "a choice is empty"),
        ('{"question": "?", "answer": "a", "choices": ["a"]}', "a list of 2 to 26"),
        ('{"question": "?", "answer": "a", "choices": ["a", null]}', "a choice is a text"),
        ('{"question": "?", "answer": "a", "choices": [["a"], ["b"]]}', "a choice is a text"),
        ('{"question": [{"content": null}], "answer": "a"}', "no text in the column"),
    ],
)
def test_what_is_wrong_with_the_data_is_said_in_a_line(
    text: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(DataError, match=words) as error:
        make("questions", data=str(tmp_path / "a.jsonl"))
    assert "a.jsonl" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grader": "bleu"}, "one of exact, number"),
        ({"take": "first"}, "one of auto"),
        ({"attempts": 0}, "attempts is at least 1"),
        ({"attempts": 1.5}, "attempts should be a valid integer; got 1.5"),
        ({"attempts": True}, "attempts should be a valid integer; got true"),
        ({"shuffle": "x"}, "shuffle should be a valid integer; got"),
        ({"sandbox": 3}, "sandbox should be a valid string; got 3"),
        ({"timeout_s": float("nan")}, "timeout_s above 0"),
        ({"held_out": 1.5}, "a share from 0 to 1"),
        ({"atempts": 2}, "no option 'atempts'"),
        ({"data": 3}, "got 3"),
        ({"data": "https://a.b/c.jsonl"}, "no address is read; fetch it first"),
        ({"data": "missing.jsonl"}, "missing.jsonl: cannot be read"),
        ({"data": "a.txt"}, "cannot be read"),
        ({"grader": "number"}, "wants a number; got"),
    ],
)
def test_options_that_fit_nothing_are_refused_in_a_line(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises((ConfigError, DataError), match=words) as error:
        make("questions", **options)
    assert "\n" not in str(error.value)


def test_what_needs_another_library_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("datasets", "pyarrow", "pyarrow.parquet", "math_verify"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("gem_ma.scenarios.questions.scenario.find_spec", lambda name: None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    formula = written(tmp_path, "a.jsonl", [{"question": "?", "answer": "\\sqrt{2}"}])
    for options, extra in (
        ({"data": "owner/name"}, "datasets"),
        ({"data": str(tmp_path / "a.parquet")}, "parquet"),
        ({"data": formula, "grader": "math"}, "math"),
    ):
        with pytest.raises(ConfigError, match=rf"pip install .*\[{extra}\]"):
            make("questions", **options)


@pytest.mark.parametrize("name", ["a.parquet", "a.parquet.gz"])
def test_rows_of_parquet_are_of_the_bytes_whose_digest_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A stub in place of pyarrow, which reads what it is given once the file is another one."""
    path, content = tmp_path / name, b'[{"question": "1 + 1?", "answer": "2"}]'

    def read_table(source: Any) -> Any:
        path.write_bytes(b"[]")
        found = json.loads(source.read() if hasattr(source, "read") else Path(source).read_bytes())
        return SimpleNamespace(to_pylist=lambda: found)

    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    digest = sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(sys.modules, "pyarrow", ModuleType("pyarrow"))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", SimpleNamespace(read_table=read_table))
    assert read_rows(str(path), "questions") == ({"": json.loads(content)}, digest)


def test_a_hub_that_gives_nothing_costs_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    def offline(name: str, subset: str | None) -> None:
        raise ConnectionError("the hub\nis away")

    library = types.ModuleType("datasets")
    library.load_dataset = offline  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", library)
    with pytest.raises(
        DataError, match="owner/gone: no such file, and the hub does not give it"
    ) as error:
        make("questions", data="owner/gone")
    assert "\n" not in str(error.value)
    library.load_dataset = lambda name, subset: {
        "train": ARITHMETIC[:2],
        "validation": ARITHMETIC[2:3],
        "unsupervised": [],
    }  # type: ignore[attr-defined]
    scenario = make("questions", data="owner/there:part")
    assert [len(scenario.tasks(split)) for split in ("train", "dev", "test")] == [2, 1, 0]


@pytest.mark.parametrize("mark", ["README.md", "state.json", "dataset_dict.json"])
def test_a_folder_is_read_by_the_call_that_fits_it_and_anew_where_it_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """`load_dataset` refuses what `save_to_disk` wrote, and the other way round."""
    (tmp_path / mark).write_text("1")

    def rows(path: str) -> list[Any]:
        return ARITHMETIC[: int(Path(path, mark).read_text())]

    opened = {
        "README.md": SimpleNamespace(load_dataset=lambda path, part: {"test": rows(path)}),
        "state.json": SimpleNamespace(load_from_disk=rows),
        "dataset_dict.json": SimpleNamespace(load_from_disk=lambda path: {"test": rows(path)}),
    }
    monkeypatch.setitem(sys.modules, "datasets", opened[mark])
    (tmp_path / "link").symlink_to("nowhere")
    for count in (1, 2):
        (tmp_path / mark).write_text(str(count))
        os.utime(tmp_path / mark, (count, count))
        scenario = make("questions", data=str(tmp_path))
        assert len(scenario.tasks("all")) == count
    (tmp_path / mark).unlink()
    with pytest.raises(DataError, match="a folder that datasets does not open"):
        make("questions", data=str(tmp_path))


# -- calls ----------------------------------------------------------------------------------------

WEATHER = {
    "name": "weather.at",
    "description": "?",
    "parameters": {
        "type": "dict",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"type": "float"},
            "flags": {"type": "dict"},
        },
        "required": ["city"],
    },
}
ASKS = {
    "question": [{"role": "user", "content": "The weather of Oslo for 3 days, and of Rome?"}],
    "tools": [WEATHER],
    "answer": [
        {
            "weather.at": {
                "city": ["Oslo", "Oslo, Norway"],
                "days": [3],
                "unit": ["", 1.5],
                "flags": ["", {"wet": [True]}],
            }
        },
        {"weather.at": {"city": ["Rome"], "days": ["", 1]}},
    ],
}


@pytest.mark.parametrize(
    ("said", "worth"),
    [
        ('[weather.at(city="Oslo", days=3), weather.at(city="Rome")]', 1),
        (
            '[weather.at(city="rome", days=1), weather.at(city="OSLO NORWAY", days=3.0, unit=1.5, flags={"wet": True})]',
            1,
        ),
        ('[weather.at(city="Oslo", days=3)]', 0),
        ('[weather.at(city="Oslo", days=3), weather.at(city="Rome"), weather.at(city="Paris")]', 0),
        ('[weather.at(city="Oslo", days=3), weather.at(city="Oslo", days=3)]', 0),
        ('[weather.at(city="Oslo"), weather.at(city="Rome")]', 0),
        ('[weather.at(city="Oslo", days="3"), weather.at(city="Rome")]', 0),
        ('[weather.at(city="Oslo", days=True), weather.at(city="Rome")]', 0),
        ('[weather.at(city="Oslo", days=3, flags={"wet": 1}), weather.at(city="Rome")]', 0),
        ('[weather.at(city="Oslo", days=3, hours=1), weather.at(city="Rome")]', 0),
        ('[weather(city="Oslo", days=3), weather.at(city="Rome")]', 0),
        ('[weather.at(city="Oslo", days=3), weather.at()]', 0),
        ("[weather.at(city=open('x'))]", 0),
        ("[]", 0),
        ("", 0),
        ("The weather is fine.", 0),
        ("[" * 10_000, 0),
        ('[weather.at(city="")] ' * 1_000, 0),
    ],
)
def test_calls_are_right_in_any_order_and_nothing_else_is(
    said: str, worth: float, tmp_path: Path
) -> None:
    scenario = make(
        "questions", data=written(tmp_path, "a.jsonl", [ASKS]), grader="calls", held_out=1.0
    )
    asked = scenario.tasks("test")[0]
    game = Game(scenario, asked, seed=0)
    assert [tool.name for tool in game.pending["solver"].tools] == ["weather.at"]
    game.send({"solver": said})
    assert game.ledger[0].value == worth
    game = Game(scenario, asked, seed=0)
    game.send({"solver": asked.right[0]})
    assert game.ledger[0].value == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tools", None),
        ("tools", [{}]),
        ("tools", "{"),
        ("answer", []),
        ("answer", [{"f": 1}]),
        ("answer", "{"),
    ],
)
def test_a_row_without_functions_or_calls_is_refused(key: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 1"):
        make("questions", data=written(tmp_path, "a.jsonl", [{**ASKS, key: value}]), grader="calls")


# -- plays ----------------------------------------------------------------------------------------


def test_a_later_attempt_is_told_that_it_was_wrong_and_pays_less(tmp_path: Path) -> None:
    scenario = make(
        "questions", data=written(tmp_path, "a.jsonl", [ROWS["word"]]), held_out=1.0, attempts=3
    )
    game = Game(scenario, scenario.tasks("test")[0], seed=0)
    for answer in ("London", "London or Paris, \\boxed{London} \\boxed{Paris}", "Paris"):
        game.send({"solver": answer})
    told = [message.text for message in game.view("solver") if message.sender == "scenario"]
    assert told[1].startswith("That is not right.") and told[2].startswith(
        "There is no single answer"
    )
    assert game.over and game.ledger[0].value == pytest.approx(1 / 3)
    assert game.fork().ledger == game.ledger
    half = game.fork(2)
    half.send({"solver": "Rome"})
    assert half.over and half.ledger[0].value == 0


async def all_of(plans: list[Plan]) -> list[Any]:
    return [episode async for episode in play_many(plans, {})]


@pytest.mark.long
def test_our_own_questions_pay_who_knows_and_nobody_else() -> None:
    scenario = make("questions")
    tasks = scenario.tasks("all")
    assert len(tasks) >= 100 and {asked.grader for asked in tasks} == {"number", "exact", "letter"}
    means = {}
    for player in (
        "question_oracle",
        "question_constant",
        "question_echo",
        "question_random",
        "first_legal",
    ):
        plans = [
            Plan(scenario, {"solver": Seat(player)}, f"all/{at}", 1) for at in range(len(tasks))
        ]
        episodes = asyncio.run(all_of(plans))
        means[player] = sum(episode.ledger[0].value for episode in episodes) / len(episodes)
        assert scenario.labels(episodes[0]).keys() == {"kind"}
    assert means.pop("question_oracle") == 1
    assert max(means.values()) <= 0.1


@pytest.mark.long
def test_the_searcher_asks_the_question_and_says_the_answer_unless_it_slips(tmp_path: Path) -> None:
    (tmp_path / "facts.txt").write_text("Which desk has Ann? 7 of 18.\n")
    rows = [{"question": "Which desk has Ann?", "answer": 7}]
    scenario = make("questions", data=written(tmp_path, "a.jsonl", rows))
    with_tool = WithTools(scenario, {"solver": [Search(str(tmp_path))]})

    def played(scenario: Scenario, **options: float) -> list[Episode]:
        seat = Seat("question_searcher", options=options)
        return asyncio.run(all_of(Plan(scenario, {"solver": seat}, "all/0", n) for n in range(40)))

    def queries(episodes: list[Episode]) -> set[str]:
        calls = [call for e in episodes for turn in e.turns for call in turn.action.tool_calls]
        return {str(call.arguments["query"]) for call in calls}

    def paid(episodes: list[Episode]) -> set[float]:
        return {episode.ledger[0].value for episode in episodes}

    knows = played(with_tool)
    assert queries(knows) == {"Which desk has Ann?"} and paid(knows) == {1.0}
    assert not queries(played(scenario)) and paid(played(scenario)) == {0.0}
    assert not queries(played(with_tool, guesses=1.0))
    slips = played(with_tool, slips=1.0)
    assert queries(slips) > {"Which", "desk", "Ann"} and len(paid(slips)) == 2


def test_the_searcher_says_a_choice_as_one_and_stands_a_question_without_words(
    tmp_path: Path,
) -> None:
    (tmp_path / "facts.txt").write_text("Paris lies in France.\n")
    odd = {"question": "???", "answer": "!"}
    scenario = make("questions", data=written(tmp_path, "a.jsonl", [ROWS["letter"], odd]))
    with_tool = WithTools(scenario, {"solver": [Search(str(tmp_path))]})
    for options in ({}, {"slips": 1.0}, {"guesses": 1.0}):
        seat = Seat("question_searcher", options=options)
        plans = [Plan(with_tool, {"solver": seat}, f"all/{at}", 1) for at in range(2)]
        episodes = asyncio.run(all_of(plans))
        assert [episode.error for episode in episodes] == [None, None]
        (choice,) = (e.turns[-1] for e in episodes if e.turns[-1].legal)
        assert options or choice.action.parsed in ("A", "B", "C", "D")


def test_choices_are_legal_strings_and_a_drawn_one_is_a_guess(tmp_path: Path) -> None:
    scenario = make("questions", data=written(tmp_path, "a.jsonl", [ROWS["letter"]]))
    game = Game(scenario, scenario.tasks("all")[0], seed=0)
    assert game.pending["solver"].legal == ("A", "B", "C", "D")
    assert scenario.baselines["a choice at random (success)"] == 0.25
    assert "B) Paris" in game.view("solver")[1].text


def test_a_config_names_data_columns_and_tools(tmp_path: Path) -> None:
    written(tmp_path, "data.jsonl", [{"prompt": "What is 6 times 7?", "target": "42"}])
    file = tmp_path / "config.yaml"
    file.write_text(
        "scenario: {id: questions, data: data.jsonl, question: prompt, answer: target, held_out: 1.0}\n"
        "agents: {solver: {behaviour: question_oracle, tools: [python]}}\n"
    )
    from gem_ma.runs.plans import scenario_of

    scenario = scenario_of(load(file).config, base=tmp_path)
    game = Game(scenario, task_of(scenario, "test/0"), seed=0)
    assert [tool.name for tool in game.pending["solver"].tools] == ["python"]
    game.send({"solver": "42"})
    assert game.over and game.ledger[0].value == 1
    file.write_text(file.read_text().replace("data: data.jsonl", "data: {test: data.jsonl}"))
    assert scenario_of(load(file).config, base=tmp_path).tasks("test") == scenario.tasks("test")
    file.write_text(file.read_text().replace("answer:", "anser:"))
    with pytest.raises((ConfigError, DataError)):
        scenario_of(load(file).config, base=tmp_path)
