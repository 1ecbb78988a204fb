"""The retail store: the benchmark's own answers replayed, its rules worked out by hand on a tiny
shop, and nothing ever raised."""

from __future__ import annotations

import json
import random
import time
import warnings
from typing import Any

import pytest
from gem_ma.scenarios.service_desk.desk.calculator import calculate
from gem_ma.scenarios.service_desk.desk.overlay import Base, literal, tau1_hash
from gem_ma.scenarios.service_desk.retail import RetailStore
from gem_ma.scenarios.service_desk.retail.store.schemas import TOOLS
from gem_ma.scenarios.service_desk.retail.store.tools import TAU1
from hypothesis import given, settings
from hypothesis import strategies as st

from gem_ma.kernel.errors import ConfigError
from tests.retail_data import (
    ADDRESS,
    CANCEL,
    EXCHANGE,
    MODIFY,
    MOVE,
    PAYMENT,
    RETURN,
    TAU,
    USER_MOVE,
    ask,
    balance,
    needs_sample,
    needs_tau,
    read,
    swap,
    tiny,
)

INITIAL = "5a4b2cb59f4d12dea7e4adff24a7f8fada510ead49372ea4a729a82bbb5f49b5"
REASON = "no longer needed"
BY_EMAIL, BY_NAME = "find_user_id_by_email", "find_user_id_by_name_zip"


# -- the benchmark's own answers -----------------------------------------------------------------


@pytest.mark.long
@needs_sample
def test_every_line_of_the_public_sample_replays_to_the_same_text_and_hash() -> None:
    store, last, lines = RetailStore.load(TAU), None, 0
    for row in map(json.loads, (TAU / "sample_replay.jsonl").read_text("utf-8").splitlines()):
        group = (row["kind"], row.get("split"), row.get("task"), row.get("ep"))
        if group != last:
            store.reset()
        last, lines = group, lines + 1
        assert store.call(row["tool"], row["kwargs"]) == row["obs"], row
        assert store.digest() == row["hash"], row
    assert lines > 300


@needs_tau
def test_untouched_data_have_the_known_hash_and_reset_gives_it_back() -> None:
    store = RetailStore.load(TAU)
    assert store.digest() == INITIAL
    assert not ask(store, USER_MOVE, "noah_brown_6181", **ADDRESS).startswith("Error")
    assert store.digest() != INITIAL
    store.reset()
    assert store.digest() == INITIAL


@pytest.mark.long
@needs_tau
def test_stores_share_one_base_and_never_see_each_others_writes() -> None:
    one, two = RetailStore.load(TAU), RetailStore.load(TAU)
    assert one.overlay.base is two.overlay.base
    rng = random.Random(5)
    orders, users = list(one.overlay.base.tables["orders"]), list(one.overlay.base.tables["users"])
    for _ in range(300):
        ask(one, CANCEL, rng.choice(orders), REASON)
        ask(one, USER_MOVE, rng.choice(users), **ADDRESS)
    assert one.digest() != INITIAL
    assert two.digest() == INITIAL
    assert tau1_hash(one.overlay.base.tables) == INITIAL


def test_hash_of_the_reference_value_is_the_known_one() -> None:
    value = {"b": [1, 2.5, "a'b", True, None], "a": {}, "c": [{"x": "é"}]}
    assert (
        literal(value)
        == "(('a', ()), ('b', (1, 2.5, \"a'b\", True, None)), ('c', ((('x', 'é'),),)))"
    )
    assert tau1_hash(value) == "3cddf69208f92c6abf08eafedc0a1e8714a539ad5350d226e2daca957aa8dcc8"


@pytest.mark.parametrize(
    "tables",
    [
        {"a": {}},
        {"a": {"k": {"x": 1}}},
        {"b": {"k": {}}, "a": {"k": {"y": []}, "j": {"z": "ü\ud800"}}},
    ],
)
def test_incremental_digest_equals_the_hash_of_the_whole(tables: Any) -> None:
    assert Base(tables).digest({}) == tau1_hash(tables)


def test_incremental_digest_after_writes_equals_the_hash_of_the_whole() -> None:
    store = tiny()
    ask(store, CANCEL, "#W3", REASON)
    ask(store, USER_MOVE, "bob_lee_2", **{**ADDRESS, "zip": ["x", 5, 5.0, None, True]})
    tables = {
        name: {key: store.overlay.record(name, key) for key in table}
        for name, table in store.overlay.base.tables.items()
    }
    assert store.digest() == tau1_hash(tables)


# -- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ((BY_EMAIL, "ANN@Example.com"), "ann_lee_1"),
        ((BY_NAME, "bob", "LEE", "04200"), "bob_lee_2"),
        ((BY_NAME, "bob", "LEE", 4200), "Error: user not found"),
        ((BY_NAME, "zed", None, 1), "Error: user not found"),
        ((BY_NAME, "bob", None, 1), "Error: 'NoneType' object has no attribute 'lower'"),
        ((BY_EMAIL, 7), "Error: 'int' object has no attribute 'lower'"),
    ],
)
def test_finding_users_folds_names_and_compares_the_zip_exactly(asked: Any, answer: str) -> None:
    assert ask(tiny(), *asked) == answer


def test_a_changed_zip_is_what_the_search_compares() -> None:
    store = tiny()
    ask(store, USER_MOVE, "ann_lee_1", **ADDRESS)
    assert ask(store, BY_NAME, "Ann", "Lee", "05000") == "ann_lee_1"
    assert ask(store, BY_NAME, "Ann", "Lee", "04100") == "Error: user not found"


def test_product_types_are_sorted_and_thinking_and_transfer_answer_anything() -> None:
    store = tiny()
    assert store.call("list_all_product_types", {}) == '{"Kite": "P1", "Lantern": "P2"}'
    assert store.call("think", {"thought": {"a": [1]}}) == ""
    assert store.call("transfer_to_human_agents", {"summary": None}) == "Transfer successful"


# -- writing -------------------------------------------------------------------------------------


def test_cancelling_refunds_each_row_and_credits_the_gift_card() -> None:
    store = tiny()
    assert ask(store, CANCEL, "#W3", "lost") == "Error: invalid reason"
    order = read(store, CANCEL, "#W3", REASON)
    assert list(order)[-1] == "cancel_reason"
    assert (order["status"], order["payment_history"][1]) == (
        "cancelled",
        {"transaction_type": "refund", "amount": 5.0, "payment_method_id": "gift_card_1"},
    )
    assert balance(store) == 55.0
    assert ask(store, CANCEL, "#W3", REASON) == "Error: non-pending order cannot be cancelled"


def test_cancelling_after_a_change_of_payment_makes_money_as_the_benchmark_does() -> None:
    store = tiny()
    ask(store, PAYMENT, "#W3", "paypal_1")
    assert balance(store) == 55.0
    ask(store, CANCEL, "#W3", REASON)
    assert balance(store) == 65.0  # row 0 and the refund row are both refunded
    assert len(read(store, "get_order_details", "#W3")["payment_history"]) == 6


def test_items_change_pair_by_pair_and_the_first_that_carries_the_id_is_meant() -> None:
    store = tiny()
    change = (MODIFY, "#W1", ["I1", "I2"], ["I2", "I3"], "paypal_1")
    order = read(store, *change)
    assert [item["item_id"] for item in order["items"]] == ["I3", "I2"]
    assert order["status"] == "pending (item modified)"
    row = order["payment_history"][1]
    assert row["transaction_type"] == "payment"
    assert row["amount"] == 0 + (20.2 - 10.1) + (40.4 - 20.2)
    assert ask(store, *change) == "Error: non-pending order cannot be modified"


def test_the_stored_amount_of_a_change_keeps_its_float_noise() -> None:
    store = tiny()
    row = read(store, MODIFY, "#W1", ["I2"], ["I1"], "gift_card_1")["payment_history"][1]
    assert (row["transaction_type"], row["amount"]) == ("refund", abs(10.1 - 20.2))
    assert balance(store) == 60.1


def test_checks_of_a_change_of_items_come_in_their_order() -> None:
    store = tiny()
    for order_id, old, new, method, told in (
        ("#W0", ["I9"], [], "x", "order not found"),
        ("#W2", ["I9"], [], "x", "non-pending order cannot be modified"),
        ("#W1", ["I1", "I1"], [], "x", "I1 not found"),
        ("#W1", ["I1"], [], "x", "the number of items to be exchanged should match"),
        ("#W1", ["I1"], ["I7"], "x", "new item I7 not found or available"),
        ("#W1", ["I1"], ["I5"], "x", "new item I5 not found or available"),
        ("#W1", ["I1"], ["I4"], "x", "payment method not found"),
        ("#W1", ["I1"], ["I4"], "gift_card_1", POOR),
        ("#W1", "I1", ["I2", "I3"], "paypal_1", "I not found"),
        ("#W1", [1], ["I2"], "paypal_1", "1 not found"),
        ("#W1", {"I1": 1}, ["I2"], "paypal_1", "'dict' object has no attribute 'count'"),
        ("#W1", None, ["I2"], "paypal_1", "'NoneType' object is not iterable"),
        ("#W1", ["I1"], 5, "paypal_1", "object of type 'int' has no len()"),
        (["#W1"], ["I1"], ["I2"], "paypal_1", UNHASHABLE),
    ):
        assert ask(store, MODIFY, order_id, old, new, method) == f"Error: {told}"
    assert ask(store, MODIFY, "#W1", ["I1"], [["I2"]], "paypal_1").startswith("Error: ")
    assert store.digest() == tiny().digest()


POOR = "insufficient gift card balance to pay for the new item"
UNHASHABLE = ""
try:
    {}[[]]  # type: ignore[index]  # the running Python's own words
except TypeError as _error:
    UNHASHABLE = str(_error)


@pytest.mark.parametrize("nothing", [[], "", {}])
def test_empty_ids_of_any_kind_change_the_status_and_store_a_whole_zero(nothing: Any) -> None:
    store = tiny()
    text = ask(store, MODIFY, "#W1", nothing, nothing, "paypal_1")
    assert '{"transaction_type": "refund", "amount": 0, "payment_method_id": "paypal_1"}' in text
    text = ask(store, EXCHANGE, "#W2", nothing, nothing, "paypal_1")
    assert (
        '"exchange_items": [], "exchange_new_items": [], "exchange_payment_method_id": "paypal_1",'
        ' "exchange_price_difference": 0}' in text
    )


def test_an_exchange_sorts_its_lists_rounds_the_price_and_moves_no_money() -> None:
    store = tiny()
    order = read(store, EXCHANGE, "#W2", ["I7", "I1", "I1"], ["I8", "I3", "I1"], "gift_card_1")
    assert list(order)[-4:] == [
        "exchange_items",
        "exchange_new_items",
        "exchange_payment_method_id",
        "exchange_price_difference",
    ]
    assert (order["exchange_items"], order["exchange_new_items"]) == (
        ["I1", "I1", "I7"],
        ["I1", "I3", "I8"],
    )
    assert order["exchange_price_difference"] == 31.3
    assert (balance(store), len(order["payment_history"])) == (50, 1)


def test_a_return_checks_the_method_before_the_items() -> None:
    store = tiny()
    for order_id, items, method, told in (
        ("#W1", ["I1"], "paypal_1", "non-delivered order cannot be returned"),
        ("#W2", ["I9"], "paypal_9", "payment method not found"),
        ("#W2", ["I9"], "credit_card_1", ELSEWHERE),
        ("#W2", ["I1", "I1", "I1"], "gift_card_1", "some item not found"),
    ):
        assert ask(store, RETURN, order_id, items, method) == f"Error: {told}"
    order = read(store, RETURN, "#W2", ["I7", "I1"], "gift_card_1")
    assert (order["status"], order["return_items"], order["return_payment_method_id"]) == (
        "return requested",
        ["I1", "I7"],
        "gift_card_1",
    )


ELSEWHERE = "payment method should be either the original payment method or a gift card"
SAME = "the new payment method should be different from the current one"


def test_changing_the_payment_pays_anew_and_refunds_the_old_method() -> None:
    store = tiny()
    assert ask(store, PAYMENT, "#W1", "paypal_1") == f"Error: {SAME}"
    assert ask(store, PAYMENT, "#W1", "paypal_9") == "Error: payment method not found"
    assert ask(store, PAYMENT, "#W3", "gift_card_1") == f"Error: {SAME}"
    order = read(store, PAYMENT, "#W1", "gift_card_1")
    assert [
        (row["transaction_type"], row["payment_method_id"]) for row in order["payment_history"]
    ] == [
        ("payment", "paypal_1"),
        ("payment", "gift_card_1"),
        ("refund", "paypal_1"),
    ]
    assert (order["status"], balance(store)) == ("pending", 19.7)
    assert (
        ask(store, PAYMENT, "#W1", "credit_card_1")
        == "Error: there should be exactly one payment for a pending order"
    )


def test_a_new_address_has_the_benchmarks_key_order_and_keeps_what_it_is_given() -> None:
    store = tiny()
    assert list(read(store, MOVE, "#W1", **ADDRESS)["address"]) == list(ADDRESS)
    given_list: list[Any] = ["a"]
    ask(store, USER_MOVE, "bob_lee_2", **{**ADDRESS, "city": given_list})
    before = store.digest()
    given_list.append("b")
    assert store.digest() == before
    assert '"city": ["a"]' in ask(store, "get_user_details", "bob_lee_2")


# -- the call protocol ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        (CANCEL, {"order_id": "#W1"}, "missing 1 required positional argument: 'reason'"),
        (
            USER_MOVE,
            {"city": "x", "zip": "y"},
            "missing 5 required positional arguments: 'user_id', 'address1', 'address2', 'state',"
            " and 'country'",
        ),
        (
            BY_NAME,
            {"zip": 1},
            "missing 2 required positional arguments: 'first_name' and 'last_name'",
        ),
        ("think", {"x": 1}, "got an unexpected keyword argument 'x'"),
    ],
)
def test_wrong_arguments_are_answered_in_the_words_of_python(
    name: str, arguments: dict[str, Any], told: str
) -> None:
    tool = "".join(map(str.capitalize, name.split("_")))
    assert tiny().call(name, arguments) == f"Error: {tool}.invoke() {told}"


def test_an_unknown_tool_is_named_and_data_that_are_given_twice() -> None:
    assert (
        tiny()
        .call("think", {"thought": 1, "data": 2})
        .endswith("Think.invoke() got multiple values for keyword argument 'data'")
    )
    assert tiny().call("Think", {"thought": 1}) == "Unknown action Think"
    assert tiny().call("", {}) == "Unknown action "


def test_binding_agrees_with_pythons_own_on_a_function_of_the_same_name() -> None:
    def function(data: Any, order_id: Any, reason: Any) -> str:
        return ""

    function.__qualname__ = "CancelPendingOrder.invoke"
    store = tiny()
    for call in (
        {},
        {"order_id": 1},
        {"reason": 1},
        {"x": 1},
        {"order_id": 1, "y": 2, "x": 3},
        {"order_id": 1, "reason": 2, "": 0},
    ):
        with pytest.raises(TypeError) as raised:
            function(data=None, **call)  # type: ignore[arg-type]  # wrong on purpose
        assert store.call("cancel_pending_order", call) == f"Error: {raised.value}"


ODD = [
    *(None, True, -1, float("inf"), 10**5000, "", "é漢", b"x", {1, 2}, object(), lambda: 0),
    *([], ["I1"], [["I1"]], [None], {}, {"a": 1}, ()),
]


@pytest.mark.parametrize("semantics", ["tau1", "fixed"])
def test_no_odd_argument_and_no_odd_name_ever_raises_or_spoils_the_store(semantics: str) -> None:
    store = tiny(semantics)
    deep: Any = "x"
    for _ in range(3000):
        deep = [deep]
    loop: list[Any] = []
    loop.append(loop)
    for name in [*TAU1, None, 5, [], "nope", "end_conversation"]:
        arguments = TAU1[name].arguments if isinstance(name, str) and name in TAU1 else ("x",)
        for value in [*ODD, deep, loop]:
            for call in (
                value,
                dict.fromkeys(arguments, value),
                {**ADDRESS, "order_id": "#W1", "user_id": "ann_lee_1", "city": value},
            ):
                assert isinstance(store.call(name, call), str)  # type: ignore[arg-type]  # wrong on purpose
            for odd in arguments:
                whole = {
                    "order_id": "#W1",
                    "item_ids": ["I1"],
                    "new_item_ids": ["I2"],
                    "payment_method_id": "paypal_1",
                    **ADDRESS,
                    "user_id": "ann_lee_1",
                }
                known = {key: entry for key, entry in whole.items() if key in arguments}
                assert isinstance(store.call(name, {**known, odd: value}), str)  # type: ignore[arg-type]
    assert len(store.digest()) == 64
    assert json.loads(store.call("get_user_details", {"user_id": "ann_lee_1"}))
    store.reset()
    assert store.digest() == tiny().digest()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["#W1", "#W2", "#W3", "I1", "I2", "paypal_1", "gift_card_1"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.longest
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_calls_never_raise_and_a_refused_call_changes_nothing(data: st.DataObject) -> None:
    store = tiny(data.draw(st.sampled_from(["tau1", "fixed"])))
    for _ in range(3):
        name = data.draw(st.sampled_from(list(TAU1)))
        call = {argument: data.draw(JSON) for argument in TAU1[name].arguments}
        before = store.digest()
        answer = store.call(name, call)
        assert isinstance(answer, str)
        if answer.startswith("Error: ") or not store.mutates(name):
            assert store.digest() == before


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(TAU1)), st.integers(0, 10**6)), max_size=8))
def test_the_same_calls_give_the_same_answers_after_a_reset_and_on_a_copy(
    calls: list[tuple[str, int]],
) -> None:
    values = [
        "#W1",
        "#W2",
        "#W3",
        "ann_lee_1",
        "no longer needed",
        ["I1"],
        ["I2"],
        ["I1", "I2"],
        "paypal_1",
        "gift_card_1",
        "1+1",
    ]
    prepared = [
        (
            name,
            {
                key: values[(seed + 7 * at) % len(values)]
                for at, key in enumerate(TAU1[name].arguments)
            },
        )
        for name, seed in calls
    ]
    store = tiny()
    first = [store.call(*call) for call in prepared], store.digest()
    store.reset()
    twin = store.copy()
    assert ([store.call(*call) for call in prepared], store.digest()) == first
    assert twin.digest() == tiny().digest()


def test_unknown_semantics_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="tau1, fixed, tau2"):
        tiny("tau3")


def test_schemas_name_the_tools_and_arguments_of_the_functions_in_order_of_their_names() -> None:
    assert [tool.name for tool in TOOLS] == sorted(TAU1)
    for tool in TOOLS:
        assert (
            tuple(tool.parameters["properties"])
            == TAU1[tool.name].arguments
            == tuple(tool.parameters["required"])
        )
        assert tool.description


@needs_tau
def test_schemas_agree_with_the_benchmarks_in_names_types_and_enums() -> None:
    theirs = json.loads((TAU / "tool_schemas.json").read_text("utf-8"))["tools"]
    for tool in TOOLS:
        ours = {"name": tool.name, "parameters": _bare(tool.parameters)}
        assert ours == theirs[tool.name]


def _bare(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _bare(value) for key, value in schema.items() if key != "description"}
    return schema


# -- the calculator ------------------------------------------------------------------------------

SUMS = {
    "0.1+0.2": "0.3",
    "(1+2)*3": "9.0",
    " 2 ** 10": "1024.0",
    "2**-3**2": "0.0",
    "-2**2": "-4.0",
    "7//2": "3.0",
    "-7//2": "-4.0",
    "-0.0": "-0.0",
    "2.675*1": "2.67",
    "1000000*1000000*1000000": "1e+18",
    "9" * 400 + ".": "inf",
    "9" * 400 + ".*0": "nan",
    "1/10**400": "0.0",
    "0" * 5000: "0.0",
    "9**999//9**998": "9.0",
    "1/0": "Error: division by zero",
    "1.0//0": "Error: float floor division by zero",
    "0**-1": "Error: 0.0 cannot be raised to a negative power",
    "10**400": "Error: int too large to convert to float",
    "2.0**10000": "Error: (34, 'Numerical result out of range')",
    "(-8)**0.5": "Error: float() argument must be a string or a real number, not 'complex'",
    "()": "Error: float() argument must be a string or a real number, not 'tuple'",
    "...": "Error: float() argument must be a string or a real number, not 'ellipsis'",
    "1(2)": "Error: 'int' object is not callable",
    "1.5(1/0)": "Error: division by zero",
    "1(*2)": "Error: 1 argument after * must be an iterable, not int",
    "1(**2)": "Error: 1 argument after ** must be a mapping, not int",
    "()(*())": "Error: 'tuple' object is not callable",
    "()*1.5": "Error: can't multiply sequence by non-int of type 'float'",
    "-()": "Error: bad operand type for unary -: 'tuple'",
    "1 2": "Error: invalid syntax (<string>, line 1)",
    "": "Error: invalid syntax (<string>, line 0)",
    " ": "Error: invalid syntax (<string>, line 0)",
    "2*(3": "Error: '(' was never closed (<string>, line 1)",
    "1e400": "Error: invalid characters in expression",
    "٣": "Error: invalid characters in expression",
    "1\n": "Error: invalid characters in expression",
    "__import__('os')": "Error: invalid characters in expression",
}


@pytest.mark.parametrize("expression", SUMS)
def test_sums_and_their_errors_are_pythons(expression: str) -> None:
    assert calculate(expression) == SUMS[expression]


ENDLESS = [
    "9**9**9**9",
    "(9**9**9)*0",
    "9**9**9-9**9**9",
    "(((2**999)**99)**99)**99",
    "7**70000*" * 2000 + "1",
    "9**60000//9**30000+" * 400 + "1",
    "1+" * 30000 + "1",
    "-" * 50000 + "1",
    "1()" * 20000,
    "(" * 5000,
    "((" * 99 + "1" + "))" * 99,
    "1" * 10**6,
]


@pytest.mark.parametrize("expression", ENDLESS, ids=range(len(ENDLESS)))
def test_no_sum_hangs(expression: str) -> None:
    start = time.perf_counter()
    assert isinstance(tiny().call("calculate", {"expression": expression}), str)
    assert time.perf_counter() - start < 5


def test_long_sums_are_added_up_without_recursion() -> None:
    assert calculate("+".join(["1"] * 1500)) == "1500.0"


def test_warnings_of_the_compiler_stay_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert calculate("1(2)") == "Error: 'int' object is not callable"


@pytest.mark.parametrize("value", [None, 5, ["1", "+"], {"1": 2}])
def test_what_is_no_text_is_answered_as_an_error(value: Any) -> None:
    assert tiny().call("calculate", {"expression": value}).startswith("Error: ")


# -- the rules of our own world ------------------------------------------------------------------


def test_fixed_rules_validate_first_and_refuse_what_changes_nothing() -> None:
    store = tiny("fixed")
    nothing = swap("#W1", [], [])
    for name, arguments, told in (
        ("think", {}, "invalid_arguments: think needs thought"),
        ("think", {"thought": 5}, "invalid_arguments: thought is a string, got int"),
        ("think", None, "invalid_arguments: arguments are an object, got NoneType"),
        (MODIFY, {**nothing, "item_ids": "I1"}, "invalid_arguments: item_ids is a list of strings"),
        (MODIFY, nothing, "no item given"),
        (MODIFY, swap("#W1", ["I1"], ["I1"]), "the new item I1 is the old item"),
    ):
        assert store.call(name, arguments) == f"Error: {told}"
    assert store.digest() == tiny("fixed").digest()


def test_fixed_rules_round_amounts_keep_pairs_and_refund_the_net() -> None:
    store = tiny("fixed")
    order = read(store, MODIFY, "#W1", ["I2"], ["I3"], "paypal_1")
    assert order["payment_history"][1]["amount"] == 20.2
    order = read(store, EXCHANGE, "#W2", ["I7", "I1"], ["I8", "I3"], "paypal_1")
    assert order["exchange_pairs"] == [["I1", "I3"], ["I7", "I8"]]
    ask(store, PAYMENT, "#W3", "paypal_1")
    assert read(store, CANCEL, "#W3", REASON)["payment_history"][3:] == [
        {"transaction_type": "refund", "amount": 5.0, "payment_method_id": "paypal_1"}
    ]
    assert balance(store) == 55.0
