"""The small shop of the labelled talks: customers, products, orders, and short names for all of
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

# short name -> (product, item id, price, options)
VARIANTS: dict[str, tuple[str, str, float, dict[str, str]]] = {
    name: tuple(row)
    for name, row in yaml.safe_load(
        (Path(__file__).parent / "variants.yaml").read_text("utf-8")
    ).items()
}
PRODUCT_IDS = {
    "tent": "7300451001",
    "mixer": "7300451002",
    "rug": "7300451003",
    "clock": "7300451004",
    "scarf": "7300451005",
    "drill": "7300451006",
    "pan": "7300451007",
    "phones": "7300451008",
    "shoes": "7300451009",
    "bottle": "7300451010",
    "chair": "7300451011",
    "lamp": "7300451012",
    "bag": "7300451013",
}
SOLD_OUT = frozenset(("clock_plain", "shoes_11"))
CUSTOMERS: dict[str, dict[str, Any]] = {
    "mara": {
        "id": "mara_quinn_4127", "name": ("Mara", "Quinn"), "email": "mara.quinn@example.com", "at": "alder",
        "pays": {"cc": ("credit_card", "5512871", "visa", "4417"), "pp": ("paypal", "8830142"), "gc": ("gift_card", "2071993", 40)},
    },
    "theo": {
        "id": "theo_brandt_9903", "name": ("Theo", "Brandt"), "email": "theo.brandt@example.com", "at": "harbor",
        "pays": {"cc": ("credit_card", "7781034", "mastercard", "0926"), "pp": ("paypal", "4410265")},
    },
    "lena": {
        "id": "lena_okafor_3316", "name": ("Lena", "Okafor"), "email": "lena.okafor@example.com", "at": "vine",
        "pays": {"cc": ("credit_card", "6604518", "visa", "7350"), "gc": ("gift_card", "9120447", 500)},
    },
    "priya": {
        "id": "priya_raman_7702", "name": ("Priya", "Raman"), "email": "priya.raman@example.com", "at": "cedar",
        "pays": {"cc": ("credit_card", "3390172", "visa", "3391"), "pp": ("paypal", "5520918"), "gc": ("gift_card", "6041127", 25)},
    },
    "joao": {
        "id": "joao_falcao_5518", "name": ("João", "Falcão"), "email": "joao.falcao@example.com", "at": "palm",
        "pays": {"cc": ("credit_card", "1180265", "mastercard", "1188"), "pp": ("paypal", "7719340")},
    },
    "wes": {
        "id": "wesley_hart_2065", "name": ("Wesley", "Hart"), "email": "wes.hart@example.com", "at": "elm",
        "pays": {
            "cc": ("credit_card", "6620871", "mastercard", "6620"),
            "cc2": ("credit_card", "9043518", "visa", "9043"),
            "gc": ("gift_card", "3308854", 180),
        },
    },
}  # fmt: skip
ADDRESSES = {
    "alder": ("12 Alder Court", "", "Columbus", "OH", "43085"),
    "harbor": ("803 Harbor Street", "Apt 5", "Portland", "OR", "97205"),
    "vine": ("266 Vine Avenue", "Suite 31", "Savannah", "GA", "31401"),
    "birch": ("48 Birch Road", "", "Dayton", "OH", "45402"),
    "mill": ("91 Mill Lane", "Unit 7", "Boise", "ID", "83702"),
    "pearl": ("5 Pearl Place", "Floor 2", "Denver", "CO", "80202"),
    "cedar": ("1490 Cedar Avenue", "Apt 12B", "Austin", "TX", "78701"),
    "palm": ("77 Palm Way", "", "Miami", "FL", "33130"),
    "elm": ("310 Elm Street", "Suite 4", "Chicago", "IL", "60611"),
    "maple": ("2208 Maple Drive", "", "Raleigh", "NC", "27601"),
    "lake": ("19 Lake View Terrace", "Apt 3C", "Seattle", "WA", "98109"),
}
# number -> (customer, status, paid with, items)
ORDERS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "1000311": ("mara", "pending", "cc", ("tent_green", "pan_24")),
    "1000322": ("mara", "delivered", "pp", ("mixer_red", "rug_small", "clock_oak")),
    "1000333": ("mara", "pending", "pp", ("drill_12",)),
    "1000344": ("mara", "processed", "cc", ("scarf_blue",)),
    "1000411": ("theo", "delivered", "cc", ("clock_oak", "scarf_blue")),
    "1000422": ("theo", "pending", "cc", ("rug_small",)),
    "1000433": ("theo", "pending", "pp", ("mixer_black", "pan_28")),
    "1000511": ("lena", "delivered", "gc", ("tent_orange", "drill_18")),
    "1000522": ("lena", "pending", "cc", ("scarf_rust", "clock_steel")),
    "1000533": ("lena", "delivered", "cc", ("pan_24", "rug_striped")),
    "1000544": ("lena", "cancelled", "cc", ("mixer_red",)),
    "1000611": ("priya", "pending", "cc", ("shoes_9", "bottle_500", "lamp_usb")),
    "1000622": ("priya", "delivered", "cc", ("phones_over", "chair_mesh")),
    "1000633": ("priya", "delivered", "pp", ("bottle_750", "bag_grey", "lamp_battery")),
    "1000644": ("priya", "processed", "pp", ("shoes_10",)),
    "1000711": ("joao", "delivered", "cc", ("shoes_9", "phones_in")),
    "1000722": ("joao", "pending", "pp", ("chair_mesh", "lamp_ac")),
    "1000733": ("joao", "pending", "cc", ("bag_black",)),
    "1000811": ("wes", "pending", "cc", ("chair_leather",)),
    "1000822": ("wes", "pending", "cc2", ("phones_small", "bottle_1000", "bottle_500")),
    "1000833": ("wes", "delivered", "cc", ("lamp_ac", "bag_grey", "shoes_red")),
    "1000844": ("wes", "cancelled", "gc", ("lamp_usb",)),
    "1000855": ("wes", "delivered", "cc2", ("phones_white",)),
}


def address(key: str) -> dict[str, str]:
    """An address of the shop."""
    first, second, city, state, code = ADDRESSES[key]
    return {
        "address1": first,
        "address2": second,
        "city": city,
        "country": "USA",
        "state": state,
        "zip": code,
    }


def method(customer: str, key: str) -> str:
    """The id of a payment method."""
    kind, number = CUSTOMERS[customer]["pays"][key][:2]
    return f"{kind}_{number}"


def tables() -> dict[str, dict[str, Any]]:
    """Users, orders and products as a data folder holds them."""
    users = {one["id"]: _user(key, one) for key, one in CUSTOMERS.items()}
    orders = {f"#W{number}": _order(number) for number in ORDERS}
    products: dict[str, Any] = {}
    for short, (name, item_id, price, options) in VARIANTS.items():
        number = PRODUCT_IDS[short.split("_")[0]]
        product = products.setdefault(number, {"name": name, "product_id": number, "variants": {}})
        there = short not in SOLD_OUT
        product["variants"][item_id] = {
            "item_id": item_id,
            "options": options,
            "available": there,
            "price": price,
        }
    return {"users": users, "orders": orders, "products": products}


def _user(key: str, one: dict[str, Any]) -> dict[str, Any]:
    methods: dict[str, Any] = {}
    for pay, (kind, _, *more) in one["pays"].items():
        number = method(key, pay)
        extra = (
            {"brand": more[0], "last_four": more[1]}
            if kind == "credit_card"
            else {"balance": more[0]}
            if more
            else {}
        )
        methods[number] = {"source": kind, **extra, "id": number}
    first, last = one["name"]
    mine = [f"#W{number}" for number, (owner, *_) in ORDERS.items() if owner == key]
    return {
        "name": {"first_name": first, "last_name": last},
        "address": address(one["at"]),
        "email": one["email"],
        "payment_methods": methods,
        "orders": mine,
    }


def _order(number: str) -> dict[str, Any]:
    owner, status, pay, shorts = ORDERS[number]
    items = []
    for short in shorts:
        name, item_id, price, options = VARIANTS[short]
        product_id = PRODUCT_IDS[short.split("_")[0]]
        items.append(
            {
                "name": name,
                "product_id": product_id,
                "item_id": item_id,
                "price": price,
                "options": options,
            }
        )
    amount = round(sum(item["price"] for item in items), 2)
    paid = {
        "transaction_type": "payment",
        "amount": amount,
        "payment_method_id": method(owner, pay),
    }
    return {
        "order_id": f"#W{number}",
        "user_id": CUSTOMERS[owner]["id"],
        "address": address(CUSTOMERS[owner]["at"]),
        "items": items,
        "fulfillments": [],
        "status": status,
        "payment_history": [paid],
    }
