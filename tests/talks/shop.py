"""The small shop of the labelled talks: customers, products, orders, and short names for all of
them."""

from __future__ import annotations

from typing import Any

# short name -> (product, item id, price, options)
VARIANTS: dict[str, tuple[str, str, float, dict[str, str]]] = {
    "tent_green": (
        "Camping Tent",
        "4410072201",
        189.0,
        {"capacity": "2 persons", "color": "green", "season": "summer"},
    ),
    "tent_orange": (
        "Camping Tent",
        "4410072202",
        199.5,
        {"capacity": "2 persons", "color": "orange", "season": "summer"},
    ),
    "tent_big": (
        "Camping Tent",
        "4410072203",
        264.75,
        {"capacity": "4 persons", "color": "green", "season": "all-season"},
    ),
    "mixer_red": (
        "Stand Mixer",
        "4410072301",
        312.4,
        {"color": "red", "bowl": "4 liter", "power": "500 W"},
    ),
    "mixer_black": (
        "Stand Mixer",
        "4410072302",
        298.15,
        {"color": "black", "bowl": "4 liter", "power": "500 W"},
    ),
    "mixer_strong": (
        "Stand Mixer",
        "4410072303",
        371.9,
        {"color": "black", "bowl": "6 liter", "power": "900 W"},
    ),
    "rug_small": ("Wool Rug", "4410072401", 88.2, {"size": "120x170 cm", "pattern": "plain"}),
    "rug_large": ("Wool Rug", "4410072402", 154.6, {"size": "200x290 cm", "pattern": "plain"}),
    "rug_striped": ("Wool Rug", "4410072403", 97.35, {"size": "120x170 cm", "pattern": "striped"}),
    "clock_oak": ("Wall Clock", "4410072501", 45.9, {"frame": "oak", "dial": "roman numerals"}),
    "clock_steel": ("Wall Clock", "4410072502", 52.3, {"frame": "steel", "dial": "roman numerals"}),
    "clock_plain": ("Wall Clock", "4410072503", 49.1, {"frame": "oak", "dial": "no numerals"}),
    "scarf_blue": ("Silk Scarf", "4410072601", 39.95, {"color": "blue", "length": "long"}),
    "scarf_rust": ("Silk Scarf", "4410072602", 41.5, {"color": "rust", "length": "long"}),
    "drill_12": ("Cordless Drill", "4410072701", 129.99, {"voltage": "12 V", "case": "soft bag"}),
    "drill_18": ("Cordless Drill", "4410072702", 174.25, {"voltage": "18 V", "case": "hard case"}),
    "pan_24": ("Frying Pan", "4410072801", 34.8, {"diameter": "24 cm", "coating": "ceramic"}),
    "pan_28": ("Frying Pan", "4410072802", 42.65, {"diameter": "28 cm", "coating": "ceramic"}),
    "phones_over": (
        "Wireless Headphones",
        "4410072901",
        159.0,
        {"type": "over-ear", "color": "black", "noise cancelling": "yes"},
    ),
    "phones_white": (
        "Wireless Headphones",
        "4410072902",
        172.5,
        {"type": "over-ear", "color": "white", "noise cancelling": "yes"},
    ),
    "phones_in": (
        "Wireless Headphones",
        "4410072903",
        98.4,
        {"type": "in-ear", "color": "black", "noise cancelling": "no"},
    ),
    "phones_small": (
        "Wireless Headphones",
        "4410072904",
        101.25,
        {"type": "in-ear", "color": "white", "noise cancelling": "no"},
    ),
    "shoes_9": (
        "Running Shoes",
        "4410073001",
        118.6,
        {"size": "9", "color": "grey", "sole": "rubber"},
    ),
    "shoes_10": (
        "Running Shoes",
        "4410073002",
        121.35,
        {"size": "10", "color": "grey", "sole": "rubber"},
    ),
    "shoes_red": (
        "Running Shoes",
        "4410073003",
        109.9,
        {"size": "10", "color": "red", "sole": "EVA"},
    ),
    "shoes_11": (
        "Running Shoes",
        "4410073004",
        124.0,
        {"size": "11", "color": "grey", "sole": "rubber"},
    ),
    "bottle_500": (
        "Water Bottle",
        "4410073101",
        21.75,
        {"capacity": "500 ml", "material": "steel", "color": "teal"},
    ),
    "bottle_750": (
        "Water Bottle",
        "4410073102",
        26.4,
        {"capacity": "750 ml", "material": "steel", "color": "teal"},
    ),
    "bottle_glass": (
        "Water Bottle",
        "4410073103",
        19.2,
        {"capacity": "750 ml", "material": "glass", "color": "clear"},
    ),
    "bottle_1000": (
        "Water Bottle",
        "4410073104",
        31.05,
        {"capacity": "1000 ml", "material": "steel", "color": "black"},
    ),
    "chair_mesh": (
        "Office Chair",
        "4410073201",
        214.3,
        {"back": "mesh", "armrests": "fixed", "color": "black"},
    ),
    "chair_leather": (
        "Office Chair",
        "4410073202",
        389.99,
        {"back": "leather", "armrests": "adjustable", "color": "black"},
    ),
    "chair_grey": (
        "Office Chair",
        "4410073203",
        241.8,
        {"back": "mesh", "armrests": "adjustable", "color": "grey"},
    ),
    "lamp_usb": (
        "Desk Lamp",
        "4410073301",
        54.15,
        {"power": "USB", "brightness": "medium", "color": "white"},
    ),
    "lamp_battery": (
        "Desk Lamp",
        "4410073302",
        47.6,
        {"power": "battery", "brightness": "low", "color": "black"},
    ),
    "lamp_ac": (
        "Desk Lamp",
        "4410073303",
        63.85,
        {"power": "AC adapter", "brightness": "high", "color": "white"},
    ),
    "bag_grey": (
        "Laptop Backpack",
        "4410073401",
        84.2,
        {"screen": "15 inch", "material": "nylon", "color": "grey"},
    ),
    "bag_black": (
        "Laptop Backpack",
        "4410073402",
        139.45,
        {"screen": "17 inch", "material": "leather", "color": "black"},
    ),
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
