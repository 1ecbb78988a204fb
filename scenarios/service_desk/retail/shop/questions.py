"""Requests that an answer serves. Each question is a function of the data, so that its answer
can be worked out again at any time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gem_ma.scenarios.service_desk.desk.overlay import Overlay
from gem_ma.scenarios.service_desk.desk.task import GoldCall, Wish
from gem_ma.scenarios.service_desk.retail.domain.telling import by_name
from gem_ma.scenarios.service_desk.retail.shop.scene import (
    Part,
    Record,
    Scene,
    candidates,
    look,
    look_up,
)

Answer = Callable[[Overlay, str, Wish], str]  # (data, user id, wish) -> the value to be told


@dataclass(frozen=True, slots=True)
class Question:
    """How one kind of question is drawn (its arguments, words and reads), put and answered."""

    draw: Callable[[Scene], tuple[dict[str, Any], dict[str, Any], tuple[GoldCall, ...]] | None]
    answer: Answer
    # Several, so that no one sentence is the mark of an intent.
    texts: tuple[str, ...]  # fields are those of `words`


def ask(scene: Scene, intent: str) -> Part | None:
    """A question of this intent; None where the customer has none."""
    question = QUESTIONS[intent]
    drawn = question.draw(scene)
    if drawn is None:
        return None
    arguments, words, reads = drawn
    text = scene.rng.choice(question.texts).format(
        **{name: in_words(value) for name, value in words.items()}
    )
    # The answer needs the wish first: it is worked out from its arguments.
    wish = Wish("question", arguments, words, text=text, intent=intent)
    answer = question.answer(scene.data, scene.user_id, wish)
    return (
        # An empty answer is not a question, such as the tracking number of an order that was never
        # sent.
        Part(Wish("question", arguments, words, text=text, intent=intent, outputs=(answer,)), reads)
        if answer
        else None
    )


def in_words(value: Any) -> str:
    """Items as a customer lists them; any other words as they are."""
    if not isinstance(value, tuple):
        return str(value)
    listed = (
        f"{item.name} ({by_name(item.options)})"
        + (f" for one with ({by_name(item.wanted)})" if item.wanted else "")
        for item in value
    )
    return " + ".join(listed)


def _of_order(*statuses: str) -> Callable[[Scene], Any]:
    def draw(scene: Scene) -> Any:
        # `question` shares an order with no other request, so no write of the talk changes the
        # answer.
        order = scene.order("question", *statuses)
        return order and (*scene.asked(order), (look(order),))

    return draw


def _of_product(scene: Scene) -> Any:
    product = scene.data.record(
        "products", scene.rng.choice(list(scene.data.base.tables["products"]))
    )
    reads = (
        GoldCall("list_all_product_types", {}),
        GoldCall("get_product_details", {"product_id": product["product_id"]}),
    )
    return {}, {"product": product["name"]}, reads


def _of_items(scene: Scene) -> Any:
    # Delivered, since the wish is a refund, and several items, since one would need no sum.
    order = scene.order("question", "delivered", fits=lambda order: len(order["items"]) > 1)
    if order is None:
        return None
    items = scene.rng.sample(order["items"], scene.rng.randint(2, min(3, len(order["items"]))))
    # In the solution, since a sum counts as founded only where a result showed it.
    total = GoldCall(
        "calculate", {"expression": " + ".join(f"{item['price']:.2f}" for item in items)}
    )
    return (*scene.asked(order, items), (look(order), total))


def _of_swap(scene: Scene) -> Any:
    order = scene.order("question", "delivered", "pending")
    if order is None:
        return None
    item = scene.rng.choice(order["items"])
    variants = scene.variants(item)
    if not variants:
        return None
    new = scene.rng.choice(variants)
    difference = GoldCall(
        "calculate",
        {
            # The larger price first: the difference is told without a sign.
            "expression": " - ".join(
                f"{price:.2f}" for price in sorted((item["price"], new.price), reverse=True)
            )
        },
    )
    return (*scene.asked(order, [item], [new]), (look(order), *look_up([item]), difference))


def _of_gift_card(scene: Scene) -> Any:
    # With two cards `my gift card` would not say which one.
    return None if len(_gift_cards(scene.user)) != 1 else ({}, {}, ())


def _gift_cards(user: Record) -> list[Record]:
    return [
        method for method in user["payment_methods"].values() if method["source"] == "gift_card"
    ]


# -- answers -------------------------------------------------------------------------------------


def _amount_paid(data: Overlay, user_id: str, wish: Wish) -> str:
    history = data.record("orders", wish.arguments["order_id"])["payment_history"]
    # The first row is the payment; later ones are moves and refunds.
    return f"{history[0]['amount']:.2f}"


def _tracking_number(data: Overlay, user_id: str, wish: Wish) -> str:
    sent = data.record("orders", wish.arguments["order_id"])["fulfillments"]
    return str(sent[0]["tracking_id"][0]) if sent else ""


def _total_refund(data: Overlay, user_id: str, wish: Wish) -> str:
    prices = {
        item["item_id"]: item["price"]
        for item in data.record("orders", wish.arguments["order_id"])["items"]
    }
    return f"{sum(prices[item_id] for item_id in wish.arguments['item_ids']):.2f}"


def _price_difference(data: Overlay, user_id: str, wish: Wish) -> str:
    # One item and one new one, as `_of_swap` draws them.
    old, new = wish.arguments["item_ids"][0], wish.arguments["new_item_ids"][0]
    item = next(
        item
        for item in data.record("orders", wish.arguments["order_id"])["items"]
        if item["item_id"] == old
    )
    price = data.record("products", item["product_id"])["variants"][new]["price"]
    # No difference is not a question: `0.00` would be right for any swap of equal price.
    return f"{abs(price - item['price']):.2f}" if price != item["price"] else ""


def _product(data: Overlay, wish: Wish) -> str:
    return next(
        key
        for key, product in data.base.tables["products"].items()
        if product["name"] == wish.words["product"]
    )


def _variant_count(data: Overlay, user_id: str, wish: Wish) -> str:
    return str(len(candidates(data, _product(data, wish))))


def _cheapest_variant(data: Overlay, user_id: str, wish: Wish) -> str:
    return f"{min(entry.price for entry in candidates(data, _product(data, wish))):.2f}"


def _gift_balance(data: Overlay, user_id: str, wish: Wish) -> str:
    return f"{_gift_cards(data.record('users', user_id))[0]['balance']:.2f}"


QUESTIONS: dict[str, Question] = {
    "amount_paid": Question(
        _of_order(),
        _amount_paid,
        (
            "How much did I pay for {order} in total?",
            "How much money did {order} cost me in total?",
        ),
    ),
    "tracking_number": Question(
        _of_order("processed", "delivered"),
        _tracking_number,
        ("What is the tracking number of {order}?", "Which tracking number does {order} have?"),
    ),
    "variant_count": Question(
        _of_product,
        _variant_count,
        (
            "How many variants of the {product} are available right now?",
            "How many different versions of the {product} are available at the moment?",
        ),
    ),
    "total_refund": Question(
        _of_items,
        _total_refund,
        (
            "How much would be refunded if I returned these items of {order}: {items}?",
            (
                "How much money would I get back for these items of {order} if I returned them:"
                " {items}?"
            ),
        ),
    ),
    "price_difference": Question(
        _of_swap,
        _price_difference,
        (
            "What is the price difference if I swap this item of {order}: {items}?",
            "How much is the difference in price for this swap in {order}: {items}?",
        ),
    ),
    "cheapest_variant": Question(
        _of_product,
        _cheapest_variant,
        (
            "What is the price of the cheapest {product} available right now?",
            "How much does the cheapest available {product} cost?",
        ),
    ),
    "gift_balance": Question(
        _of_gift_card,
        _gift_balance,
        (
            "How much is left on my gift card?",
            "What is the balance of the gift card in my account?",
        ),
    ),
}
