"""The sentences of a customer's situation, by what they say. The last one of each key is for the
split `shift` only.

Every sentence begins with two words that are not fields, and holds one full stop, at its end: so a
text can be read back, see `service.reading.sentences`.
"""

from __future__ import annotations

SENTENCES: dict[str, tuple[str, ...]] = {
    "who_both": (
        "Your name is {name}, your e-mail address is {email} and your postal code is {zip}.",
        "You are {name}; your e-mail address is {email}, your postal code {zip}.",
        "You go by {name}, have the e-mail address {email} and live in the postal area {zip}.",
        "You write as {name}, with the e-mail address {email} and the postal code {zip}.",
    ),
    "who_email": (
        "Your name is {name} and your e-mail address is {email}.",
        "You are {name}, and {email} is your e-mail address.",
        "You are called {name} and can be reached at {email}.",
        "You write as {name} with the e-mail address {email}.",
    ),
    "who_zip": (
        "Your name is {name} and your postal code is {zip}.",
        "You are {name}, living in the postal area {zip}.",
        "You are called {name} and your postal code is {zip}.",
        "You write as {name} from the postal area {zip}.",
    ),
    "forgot_email": (
        "You no longer know which e-mail address you gave to the shop.",
        "The e-mail address of your account has slipped your mind.",
        "You have several e-mail addresses and cannot tell which one the shop has.",
        "Which e-mail address belongs to the account is beyond you.",
    ),
    "forgot_zip": (
        "You have moved a few times and are not sure which postal code the shop has.",
        "The postal code in your account is something you cannot recall.",
        "You cannot say which postal code is in your account.",
        "Which postal code the shop holds is beyond you.",
    ),
    "forgot_order": (
        "You do not have the number of {order} at hand.",
        "The number of {order} is lost; you only know what you bought.",
        "You have deleted the mail with the number of {order}.",
        "As for {order}, its number is unknown to you.",
    ),
    "cancel": (
        "You want to cancel {order}; if asked why: {reason}.",
        "You would like {order} to be cancelled, and the reason you give is: {reason}.",
        "You have decided against {order} and want it cancelled (reason: {reason}).",
        "Your aim is to get rid of {order} before it is sent, your reason being: {reason}.",
    ),
    "cancel_any": (
        "You want to cancel {order}, and it is all the same to you which reason is noted.",
        "You would like {order} to be cancelled and do not care what reason is given.",
        "You have decided against {order}; any reason will do for you.",
        "Your aim is to get rid of {order} before it is sent, for whatever reason they like.",
    ),
    "return": (
        "You want to return something from {order}: {items}.",
        "You want to send back these items of {order}: {items}.",
        "You are not happy with part of {order} and want to give back the following: {items}.",
        "Your aim is to hand back, out of {order}, this: {items}.",
    ),
    "refund": (
        "The refund should go to {method}.",
        "You expect the money on {method}.",
        "You want the money back on {method}.",
        "What is repaid must arrive at {method}.",
    ),
    "refund_any": (
        "You do not mind by which way the money comes back.",
        "Any way of refund that the shop allows suits you.",
        "How the money is returned is up to the shop.",
        "What is repaid may arrive wherever the shop allows.",
    ),
    "exchange": (
        "You want to exchange something from {order}: {items}.",
        "You would like an exchange within {order}: {items}.",
        "You hope to get an exchange for this part of {order}: {items}.",
        "Your aim is an exchange out of {order}, namely {items}.",
    ),
    "modify": (
        "You want to change items of {order}: {items}.",
        "You would like other versions of what is in {order}: {items}.",
        "You picked the wrong versions for {order} and want to change this: {items}.",
        "Your aim is a change within {order}, namely {items}.",
    ),
    "exchange_other": (
        "You want to exchange this item of {order} for a {product}: {items}.",
        "You would like a {product} in exchange for this item of {order}: {items}.",
        "You hope to exchange one thing from {order}, namely {items}, for a {product}.",
        "Your aim is to exchange, for a {product}, this out of {order}: {items}.",
    ),
    "modify_other": (
        "You want a {product} in place of this item of {order}: {items}.",
        "You would rather have a {product} than this item of {order}: {items}.",
        "You hope to change one thing in {order}, namely {items}, to a {product}.",
        "Your aim is to change, to a {product}, this in {order}: {items}.",
    ),
    "difference": (
        "Any difference in price goes over {method}.",
        "If the price differs, use {method} for it.",
        "You settle what the price differs by with {method}.",
        "What it costs more or less is for {method}.",
    ),
    "address": (
        "You want {order} to go to another address: {address}.",
        "You want the address of {order} changed to {address}.",
        "You will be elsewhere and need {order} sent to {address}.",
        "Your aim is to have {order} delivered at {address}.",
    ),
    "default_address": (
        "You want the default address of your account to be {address}.",
        "You have moved, so your account should have this address: {address}.",
        "You would like your account to show a new home address: {address}.",
        "Your aim is to have {address} as the address of your account.",
    ),
    "payment": (
        "You want {order} to be paid with {method} instead.",
        "You would rather pay for {order} with {method}.",
        "You have second thoughts about how {order} is paid and want it charged to {method}.",
        "Your aim is to move the payment of {order} to {method}.",
    ),
    "amount_paid": (
        "You want to know how much you paid for {order} in total.",
        "You wonder what {order} cost you altogether.",
        "You ask for the total that you paid for {order}.",
        "Your question is what sum {order} came to.",
    ),
    "tracking_number": (
        "You want to know the tracking number of {order}.",
        "You need the number by which {order} can be tracked.",
        "You ask how {order} can be tracked, and want the number for it.",
        "Your question is which tracking number belongs to {order}.",
    ),
    "variant_count": (
        "You want to know how many variants of the {product} are available right now.",
        "You wonder in how many versions the {product} can be had at the moment.",
        "You ask for the number of available variants of the {product}.",
        "Your question is how many kinds of {product} can be bought today.",
    ),
    "total_refund": (
        "You want to know how much money you would get back for these items of {order}: {items}.",
        (
            "You wonder what would be refunded in total if you gave back, out of {order}, this:"
            " {items}."
        ),
        "You ask what sum a return of these items of {order} would bring you: {items}.",
        "Your question is how much a return out of {order} would be worth, namely of {items}.",
    ),
    "price_difference": (
        "You want to know the price difference of a swap in {order}: {items}.",
        "You wonder by how much the price would differ for a swap in {order}: {items}.",
        "You ask what difference in price there is for this swap in {order}: {items}.",
        "Your question is how far the prices lie apart for a swap in {order}: {items}.",
    ),
    "cheapest_variant": (
        "You want to know what the cheapest available {product} costs.",
        "You wonder at what price the least expensive {product} in stock is sold.",
        "You ask for the lowest price of a {product} that can be had right now.",
        "Your question is how little one can pay for a {product} today.",
    ),
    "gift_balance": (
        "You want to know how much is left on your gift card.",
        "You wonder what the balance of your gift card is.",
        "You ask how much money your gift card still holds.",
        "Your question is what your gift card is worth now.",
    ),
    "human": (
        "You need {matter} for {order}, which only a human can settle.",
        "You want somebody from the staff to arrange {matter} for {order}.",
        "You expect to be handed over to a human, since you need {matter} for {order}.",
        "Your aim is to reach a human about {matter} for {order}.",
    ),
    "friend": (
        "The order is that of {friend}.",
        "It was {friend} who placed this order.",
        "You say openly that the order is that of {friend}.",
        "This order was placed by {friend}.",
    ),
    "mind": (
        "Once you are asked to confirm that, you change your mind.",
        "When it comes to confirming that, you think again.",
        "You reconsider as soon as this is about to be confirmed.",
        "At the moment of saying yes you find you want something else.",
    ),
    "accept": (
        "If that cannot be done, you accept it.",
        "You take no for an answer here if there is a reason.",
        "Should that be impossible, so be it.",
        "A reasoned refusal of this is fine with you.",
    ),
    "otherwise": (
        "If that cannot be done, you have another request.",
        "Should that be impossible, you want something else instead.",
        "You have a second choice in case that is refused.",
        "A refusal of this leads you to the next wish.",
    ),
}
TOPICS = (
    "cancel",
    "cancel_any",
    "return",
    "exchange",
    "modify",
    "exchange_other",
    "modify_other",
    "address",
    "default_address",
    "payment",
)
STARTS = (
    *TOPICS,
    "human",
    *(
        "amount_paid",
        "tracking_number",
        "variant_count",
        "total_refund",
        "price_difference",
        "cheapest_variant",
        "gift_balance",
    ),
)
LINKS = ("Besides", "Apart from that", "In addition", "Then")
