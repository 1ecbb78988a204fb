"""What the careful assistant reads in a customer's words, in many styles; the expected readings
are written by hand."""

from __future__ import annotations

from typing import Any

import pytest
from gem_ma.scenarios.service_desk.agents import retail_details as details
from gem_ma.scenarios.service_desk.agents import retail_items as items
from gem_ma.scenarios.service_desk.agents import retail_reading as reading
from gem_ma.scenarios.service_desk.agents.retail_choice import choose

from tests.retail_data import ADDRESS


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Hi there!", []),
        ("Thanks, that is all.", []),
        ("Yes, please go ahead.", []),
        (
            "I'd like to cancel my order #W1234567, I don't need it any more.",
            [("cancel", "#W1234567")],
        ),
        ("Could you please cancel order #W1234567?", [("cancel", "#W1234567")]),
        ("My e-mail address is ann@example.com. I need to send back the kite.", [("return", "")]),
        (
            "I want to swap the lantern in #W1 for a blue one. Use my PayPal for the difference.",
            [("swap", "#W1")],
        ),
        ("Can I exchange the kite for a larger one? It is in #W22.", [("swap", "#W22")]),
        (
            "Please change the shipping address of order #W3 to 4 Old Quay, Saltmarsh, ME 04122.",
            [("address", "#W3")],
        ),
        ("I moved. Please update my default address.", [("address", "")]),
        ("I would rather pay for #W5 with my gift card.", [("payment", "#W5")]),
        ("Please change the payment method of #W5 to PayPal.", [("payment", "#W5")]),
        ("How much did I pay for order #W9?", [("question", "#W9")]),
        ("Can you tell me the tracking number of #W9?", [("question", "#W9")]),
        ("I want to know how many kites are available.", [("question", "")]),
        (
            "How many kites are there right now? Also, please return the lantern of #W4.",
            [("question", ""), ("return", "#W4")],
        ),
        (
            "Please cancel #W1. It was ordered by mistake. Then return the kite from #W2.",
            [("cancel", "#W1"), ("return", "#W2")],
        ),
        (
            "I want to return the kite from #W2. The refund should go to my gift card.",
            [("return", "#W2")],
        ),
        ("What is the balance of my gift card?", [("question", "")]),
    ],
)
def test_requests_of_a_message(text: str, found: list[tuple[str, str]]) -> None:
    assert [(request.kind, request.order_id) for request in reading.requests(text)] == found


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("it was an accident", "ordered by mistake"),
        ("I ordered it by mistake", "ordered by mistake"),
        ("I no longer need it", "no longer needed"),
        ("I don't need this any more", "no longer needed"),
        ("because I found it cheaper elsewhere.", "I found it cheaper elsewhere"),
        ("please cancel it", ""),
    ],
)
def test_reason_to_cancel(text: str, meant: str) -> None:
    assert details.reason(text) == meant


METHODS: dict[str, Any] = {
    "paypal_1": {"source": "paypal"},
    "gift_card_2": {"source": "gift_card", "balance": 20},
    "credit_card_3": {"source": "credit_card", "brand": "visa", "last_four": "0042"},
    "credit_card_4": {"source": "credit_card", "brand": "mastercard", "last_four": "9999"},
}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("with my PayPal account", "paypal_1"),
        ("put it on the gift card please", "gift_card_2"),
        ("use paypal_1", "paypal_1"),
        ("use paypal_7", ""),
        ("my credit card ending in 9999", "credit_card_4"),
        ("the card ending in 1111", ""),
        ("my visa", "credit_card_3"),
        ("my credit card", None),
        ("whatever you like", None),
        ("not the gift card, use PayPal", "paypal_1"),
    ],
)
def test_payment_method(text: str, meant: str | None) -> None:
    assert details.method(text, METHODS) == meant


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "to 12 Mill Bank, Flat 7, Copper Bend, MT 59601, USA.",
            ("12 Mill Bank", "Flat 7", "Copper Bend", "MT", "USA", "59601"),
        ),
        (
            "to 12 Mill Bank, Copper Bend, MT 59601",
            ("12 Mill Bank", "", "Copper Bend", "MT", "USA", "59601"),
        ),
        (
            "address1: 1 A; address2: ; city: B; state: C; country: D; zip: 1.",
            ("1 A", "", "B", "C", "D", "1"),
        ),
        ("my new flat", ()),
    ],
)
def test_address(text: str, parts: tuple[str, ...]) -> None:
    assert details.address(text) == dict(zip(ADDRESS, parts, strict=False))


def _variant(number: int, price: float, available: bool = True, **options: str) -> dict[str, Any]:
    return {
        "item_id": f"100000000{number}",
        "options": options,
        "available": available,
        "price": price,
    }


KITES = [
    _variant(1, 10.0, colour="red", line="30 m"),
    _variant(2, 20.0, colour="blue", line="30 m"),
    _variant(3, 30.0, colour="blue", line="60 m"),
    _variant(4, 5.0, colour="green", line="60 m"),
    _variant(5, 1.0, False, colour="red", line="60 m"),
]
KITE = {
    "name": "Kite",
    "product_id": "K",
    "variants": {variant["item_id"]: variant for variant in KITES},
}


def _held(variant: dict[str, Any], name: str = "Kite") -> dict[str, Any]:
    return {"name": name, "product_id": name, **variant}


ORDER = {
    "items": [
        _held(KITES[0]),
        _held(KITES[1]),
        _held(_variant(9, 9.0, colour="red", glass="clear"), "Lantern"),
    ]
}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("the lantern", [2]),
        ("the red kite and the lantern", [0, 2]),
        (
            (
                "both kites: the kite (colour: blue; line: 30 m) and the kite (colour: red; line:"
                " 30 m)"
            ),
            [1, 0],
        ),
        ("everything", [0, 1, 2]),
        ("item 1000000002", [1]),
        ("the lamp", []),
    ],
)
def test_items_of_an_order(text: str, meant: list[int]) -> None:
    named, unclear = items.items(text, ORDER)
    assert [one.item["item_id"] for one in named] == [
        ORDER["items"][place]["item_id"] for place in meant
    ] and not unclear


def test_a_product_that_is_wanted_instead_is_no_item_to_give_up() -> None:
    named, _ = items.items("the red kite for a Lantern", ORDER)
    assert [one.item["name"] for one in named] == ["Kite"] and "Lantern" in named[0].into


@pytest.mark.parametrize(
    ("text", "described"),
    [
        (
            "return from the order with a Kite and a Lantern: Kite (colour: red)",
            "Kite and a Lantern",
        ),
        ("change the address of the order with a Kite to: address1: 1 A", "Kite"),
        ("cancel order #W1", ""),
    ],
)
def test_an_order_told_by_what_is_in_it(text: str, described: str) -> None:
    assert details.order_described(text) == described
    assert [
        one.item["name"]
        for one in items.items("from the order with a Lantern: the red kite", ORDER)[0]
    ] == ["Kite"]


def test_an_item_that_could_be_two_is_asked_about() -> None:
    named, unclear = items.items("the kite", ORDER)
    assert (
        not named
        and unclear.startswith("Which Kite do you mean?")
        and "red" in unclear
        and "blue" in unclear
    )


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("the red kite for a blue one", 20.0),  # what is not named stays
        ("the red kite for one with (colour: blue; line: 60 m)", 30.0),
        ("the red kite to the cheapest one", 5.0),
        ("the red kite for the most expensive one", 30.0),
        # there is no green one with 30 m, and only one green
        ("the red kite for a green one", 5.0),
        ("the red kite for item 1000000003", 30.0),
        ("the red kite for the cheapest blue one", 20.0),
        ("the red kite for a blue one, preferably 60 m", 30.0),
        # none is green with 30 m
        ("the red kite for one with 30 m, preferably green, next blue", 20.0),
    ],
)
def test_the_variant_that_is_wanted(text: str, price: float) -> None:
    named, _ = items.items(text, ORDER)
    chosen = choose(named[0], KITE, (text,))
    assert not isinstance(chosen, str) and chosen["price"] == price


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("the red kite for another one", "Which options should the new Kite have?"),
        ("the red kite for item 1000000005", "I am sorry, Kite 1000000005 is not available."),
        ("the blue kite with everything the same but colour green", "is not available"),
    ],
)
def test_a_wish_that_no_variant_fits_is_asked_about_or_refused(text: str, said: str) -> None:
    named, _ = items.items(text, ORDER)
    assert said in str(choose(named[0], KITE, (text,)))


def test_a_value_inside_a_longer_one_is_not_named() -> None:
    values = {"grinder": ("steel", "carbon steel"), "size": ("1", "1.5")}
    assert items.named_values(values, "with carbon steel and 1.5") == {
        "grinder": ["carbon steel"],
        "size": ["1.5"],
    }
