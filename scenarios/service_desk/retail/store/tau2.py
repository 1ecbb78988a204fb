"""The database of tau2-bench's retail desk: typed records, their order of fields, and the hash of
the whole.

`as_tau2` makes it out of tables of tau-bench's form (the benchmark's own, or those of a
generated shop) and out of itself. Every record holds all its fields: user ids stand in the
users, what an order does not have is null, money is always a float.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from gem_ma.scenarios.service_desk.desk.overlay import Base, Overlay, Slot, Tables
from gem_ma.scenarios.service_desk.desk.shapes import (
    Optional,
    Shape,
    ShapeError,
    flag,
    keyed,
    kind,
    listed,
    number,
    record,
    text,
)

from gem_ma.kernel.errors import DataError


def as_tau2(tables: Tables, where: str = "") -> dict[str, dict[str, Any]]:
    """The typed tables; nothing is shared with what was given, and fields that the type does not
    know are left out.

    Raises DataError naming table, record and field where a value has another type, and `where`
    the tables come from.
    """
    try:
        return {name: typed(name, tables.get(name)) for name in SHAPES}
    except ShapeError as fault:
        raise DataError(f"retail data: {f'{where}: ' if where else ''}{fault}") from None


def typed_base(base: Base, where: str = "") -> Base:
    """The typed tables of a base as a base of their own, made once; `as_tau2` says what it
    raises."""
    found: Base = base.derived("tau2", lambda tables: Base(as_tau2(tables, where)))
    return found


def typed(table: str, rows: Any) -> dict[str, Any]:
    """The typed records of one table. Raises ShapeError."""
    if not isinstance(rows, Mapping):
        raise ShapeError(f"{table}: expected an object of {table} by id, got {kind(rows)}")
    shape = SHAPES[table]
    return {
        key: shape(f"{table}[{json.dumps(key)}]", _named(table, key, row))
        for key, row in rows.items()
    }


def tau2_hash(tables: Tables) -> str:
    """tau2-bench's SHA-256 of a typed database, in hex."""
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()


def digest(data: Overlay) -> str:
    """`tau2_hash` of a database as it stands; only changed records are written anew."""
    image, places = data.base.derived("tau2 image", _image)
    sha, view, place = hashlib.sha256(), memoryview(image), 0
    for (start, end), slot in sorted((places[slot], slot) for slot in data.touched()):
        sha.update(view[place:start])
        sha.update(json.dumps(data.record(*slot), sort_keys=True).encode())
        place = end
    sha.update(view[place:])
    return sha.hexdigest()


def _image(tables: Tables) -> tuple[bytes, dict[Slot, tuple[int, int]]]:
    """The text that is hashed, and where in it each record stands."""
    image, places = bytearray(b"{"), {}
    for row, name in enumerate(sorted(tables)):
        image += f"{', ' if row else ''}{json.dumps(name)}: {{".encode()
        for place, key in enumerate(sorted(tables[name])):
            image += f"{', ' if place else ''}{json.dumps(key)}: ".encode()
            start = len(image)
            image += json.dumps(tables[name][key], sort_keys=True).encode()
            places[(name, key)] = (start, len(image))
        image += b"}"
    return bytes(image + b"}"), places


# -- types ---------------------------------------------------------------------------------------

METHODS = {
    "credit_card": record(source=text, id=text, brand=text, last_four=text),
    "paypal": record(source=text, id=text),
    "gift_card": record(source=text, id=text, balance=number),
}
ADDRESS = ("address1", "address2", "city", "country", "state", "zip")


def _method(where: str, value: Any) -> dict[str, Any]:
    source = value.get("source") if isinstance(value, Mapping) else None
    if not isinstance(source, str) or source not in METHODS:
        raise ShapeError(
            f"{where}: expected a payment method whose source is {', '.join(METHODS)}; got"
            f" {json.dumps(source, default=str)[:40]}"
        )
    return METHODS[source](where, value)


_ADDRESS = record(**dict.fromkeys(ADDRESS, text))
_ITEM = record(name=text, product_id=text, item_id=text, price=number, options=keyed(text))
_PAYMENT = record(transaction_type=text, amount=number, payment_method_id=text)
_IDS = listed(text)

SHAPES: dict[str, Shape] = {
    "users": record(
        user_id=text,
        name=record(first_name=text, last_name=text),
        address=_ADDRESS,
        email=text,
        payment_methods=keyed(_method),
        orders=_IDS,
    ),
    "orders": record(
        order_id=text,
        user_id=text,
        address=_ADDRESS,
        items=listed(_ITEM),
        status=text,
        fulfillments=listed(record(tracking_id=_IDS, item_ids=_IDS)),
        payment_history=listed(_PAYMENT),
        cancel_reason=Optional(text),
        exchange_items=Optional(_IDS),
        exchange_new_items=Optional(_IDS),
        exchange_payment_method_id=Optional(text),
        exchange_price_difference=Optional(number),
        return_items=Optional(_IDS),
        return_payment_method_id=Optional(text),
    ),
    "products": record(
        name=text,
        product_id=text,
        variants=keyed(record(item_id=text, options=keyed(text), available=flag, price=number)),
    ),
}


def _named(table: str, key: str, row: Any) -> Any:
    """The row; a user of tau-bench's form with its id in it."""
    if table != "users" or not isinstance(row, Mapping):
        return row
    return {"user_id": key, **row}
