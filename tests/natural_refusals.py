"""Refusals as a model writes them, by the reason that is due; and texts that name reasons at
random."""

from __future__ import annotations

NATURAL: dict[str, tuple[str, ...]] = {
    "order_status": (
        "I'm sorry, but this order has already been delivered, so I can't cancel it.",
        (
            "I've checked order #W1, and unfortunately it's already on its way to you."
            " Cancellations are only possible while an order is pending."
        ),
        (
            "It looks like the order was processed yesterday, which means I'm no longer able to"
            " change the address."
        ),
        "Since order #W1 hasn't been delivered yet, a return isn't possible at this point.",
        "The order shows as **cancelled**, so there is nothing I can do with the items any more.",
        (
            "I'm afraid we've passed the point where this order could be modified - it shipped"
            " already."
        ),
        (
            "Unfortunately, order #W1 is no longer pending, and I can only change the payment of"
            " pending orders."
        ),
        "That one's too far along: it's being processed, so the address can't be updated.",
        (
            "Returns only apply once an order was delivered, and yours is still in transit. I won't"
            " be able to process it."
        ),
    ),
    "not_yours": (
        "That order isn't linked to your account, so I can't make any changes to it.",
        "I'm sorry, but I can only help with your own orders, and #W1 belongs to another customer.",
        (
            "For privacy reasons I'm unable to act on an order that was placed by someone else,"
            " even for a friend."
        ),
        (
            "Your friend would need to contact us directly. I can't cancel an order under another"
            " person's account."
        ),
        "Order #W1 doesn't appear under your profile, so I'm not able to touch it.",
        (
            "I can see that this order isn't one of yours. Unfortunately I can't process a return"
            " for it."
        ),
    ),
    "unavailable": (
        "We don't seem to have that combination right now.",
        "Unfortunately, the blue one in size large is out of stock at the moment.",
        (
            "I looked through all the variants, and the one you'd like is currently unavailable, so"
            " I can't make this exchange."
        ),
        "I'm sorry, that version is sold out.",
        (
            "We do carry it in red, but there's none left in green. I can't switch it to green for"
            " you."
        ),
        "There isn't a matching option in stock that I could exchange it for.",
        "Sadly, that exact configuration isn't available just now.",
        "We've run out of the wooden ones, so this swap won't be possible.",
    ),
    "product_type": (
        "Exchanges only work within the same product, so I can't swap your lamp for a kite.",
        (
            "I'm afraid a Desk Lamp can't be turned into a Toolbox: an item can only be replaced by"
            " another option of itself."
        ),
        (
            "That would be an entirely different product, and I'm not able to do that kind of"
            " exchange."
        ),
        "Unfortunately we can't exchange across product types.",
        "A rug isn't a variant of the curtain you ordered, so I can't modify the order that way.",
        "I can change the colour or the size, but not to another item altogether.",
    ),
    "cancel_reason": (
        "That's not an accepted reason for cancelling.",
        (
            "Unfortunately, finding it cheaper elsewhere isn't one of the reasons we can accept for"
            " a cancellation."
        ),
        (
            "We can only cancel if it's no longer needed or was ordered by mistake, so I can't"
            " cancel it for this."
        ),
        "I'm sorry, I can't process a cancellation on those grounds.",
        (
            "I understand, but a slow delivery isn't a valid reason, so I won't be able to cancel"
            " the order."
        ),
        "Cancellation isn't possible for that reason, I'm afraid.",
    ),
    "payment_method": (
        "That card isn't on file in your account, so I can't use it for this order.",
        "I'm sorry, refunds can only go back to the original payment method or to a gift card.",
        (
            "I don't see a credit card ending in 1234 in your profile, which means I can't switch"
            " the payment to it."
        ),
        (
            "Unfortunately the refund can't be sent to your PayPal account, since you didn't pay"
            " with it."
        ),
        "I can't put the money on that card: it wasn't used for this purchase.",
        "Your profile doesn't list that payment method, so I'm unable to charge it.",
    ),
    "balance": (
        "Your gift card has only $400 left, which isn't enough.",
        "I'm sorry, the balance on that gift card doesn't cover the order.",
        (
            "With $54.00 on the card and a total of $310.25, it's insufficient, so I can't move the"
            " payment to it."
        ),
        "Unfortunately your gift card falls short: it holds $83 and the order costs $512.",
        "The gift card won't stretch that far - there's just $20 remaining.",
        "I can't do that, as the amount due is more than what is on the gift card.",
    ),
    "once": (
        "The items of this order were already exchanged, and that can only be done once.",
        "I'm sorry, we've used the one change that this order allows, so I can't make another.",
        "Since an exchange has been requested for this order, no further exchange is possible.",
        "Unfortunately I can't modify the items a second time.",
        (
            "That order was just modified, and after that it's locked for more changes, so I can't"
            " add this one."
        ),
    ),
}
# of which none is due to more than one reason, and all name three or more
SCATTERED: tuple[str, ...] = (
    (
        "I can't do that: the order was already delivered, it doesn't belong to your account, and"
        " the item is sold out."
    ),
    (
        "Unfortunately this isn't possible. Either way, the item is out of stock, that reason is"
        " not accepted and your balance doesn't cover it."
    ),
    (
        "That's not possible since its status is not pending; it is not one of yours; it is a"
        " different product; the card is not on file."
    ),
    (
        "I'm sorry. It's a different product type.\nThe item is sold out.\nThis reason is not"
        " accepted.\nThe order has already shipped."
    ),
    (
        "No, sorry: sold out, not on file, insufficient balance, changed only once, and the order"
        " has already been delivered."
    ),
)
