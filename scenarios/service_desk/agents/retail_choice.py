"""Which variant a customer means by words such as `the same in teal` or `the cheapest one that
is waterproof`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gem_ma.scenarios.service_desk.agents.retail_items import Named, named_values, where

Record = Mapping[str, Any]
# Words that rank, from the cheapest on.
_CHEAP = re.compile(r"\b(?:cheapest|least expensive|lowest price|lowest-priced|most affordable)\b")
_DEAR = re.compile(r"\b(?:most expensive|dearest|highest price|priciest|top of the range)\b")
_ANY = re.compile(
    r"\b(?:any|whatever|whichever|does(?:n't| not) matter|do(?:n't| not) (?:care|mind)|no"
    r" preference)\b"
)
_SAME = re.compile(
    r"\b(?:same|keep|identical|otherwise|unchanged|everything else|the rest|similar|apart from"
    r" that)\b"
)
# What follows is only liked: it narrows the choice and never empties it.
_SOFT = re.compile(
    r"\b(?:preferably|prefer\w*|ideally|if (?:possible|you can|there is a choice|available)|would"
    r" like best|rather)\b"
)


# As a demand: `the same but red` allows no other difference. `keep` and `similar` only lean that
# way.
_EXACT = re.compile(r"\b(?:same|identical|unchanged)\b")
MOST = 6  # variants that a question lists


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a text says about the new variant: `wanted` must hold, `preferred` narrows the choice in
    its order."""

    wanted: Mapping[str, Sequence[str]]  # option -> values that will do
    preferred: Sequence[tuple[str, str]]
    soft: bool  # some of it is only preferred
    cheap: bool
    dear: bool
    free: bool  # any will do
    same: bool  # the rest stays as it is
    exact: bool  # and it was said as a demand

    @property
    def ranks(self) -> bool:
        """Whether it says how to choose among those that fit."""
        return self.cheap or self.dear or self.free


def choose(named: Named, product: Record, texts: Sequence[str]) -> Record | str:
    """The variant that replaces an item, a question (it ends with `?`), or why there is none.

    `product` is the record that the tools showed, `texts` all that was said about the request,
    oldest first. What is asked for must hold, what is preferred narrows the choice in its order;
    then the cheapest, the dearest, or the one that keeps most of the present options.
    """
    old = named.item
    # What the newest message says counts where the request itself said nothing.
    text = named.into or (texts[-1] if len(texts) > 1 else named.about)
    variants: Sequence[Record] = list(product["variants"].values())
    # An id is clear beyond all words.
    by_id = _by_id(product, text, old)
    if by_id is not None:
        return by_id
    wish = _read(text, variants)
    others = [each for each in variants if each["available"] and each["item_id"] != old["item_id"]]
    fits = [each for each in others if _holds(each, wish.wanted)]
    # Nothing said, and several would do: better asked than guessed.
    if not (wish.wanted or wish.soft or wish.ranks or len(fits) == 1):
        return f"Which options should the new {product['name']} have?"
    if not fits and _is_old(wish.wanted, old) and old["item_id"] in product["variants"]:
        # the very same again; the tool says whether that is allowed
        return dict(product["variants"][old["item_id"]])
    alike = [each for each in fits if _keeps_rest(each, old, wish.wanted)]
    # It insists on the rest, and no variant keeps it.
    insists = wish.same and wish.exact and not (wish.soft or alike or wish.ranks)
    if not fits or (wish.wanted and insists):
        missing = ", ".join(f"{name} {' or '.join(ok)}" for name, ok in wish.wanted.items())
        return (
            f"I am sorry, the {product['name']} with {missing} is not available, so I cannot do"
            " that."
        )
    return _best(wish, old, fits, alike)


def _by_id(product: Record, text: str, old: Record) -> Record | str | None:
    """The variant that a text names by its id, None where it names none."""
    for key, variant in product["variants"].items():
        if key != old["item_id"] and where(key, text) >= 0:
            if variant["available"]:
                return dict(variant)
            return f"I am sorry, {product['name']} {variant['item_id']} is not available."
    return None


def _read(text: str, variants: Sequence[Record]) -> _Wish:
    values: dict[str, list[str]] = {}
    for variant in variants:
        for name, value in variant["options"].items():
            values.setdefault(name, []).append(value)
    options = {name: tuple(dict.fromkeys(every)) for name, every in values.items()}
    folded = text.casefold()
    soft = _SOFT.search(folded)
    # Up to the first such word it is asked for, from there on only liked.
    must, nice = (text[: soft.start()], text[soft.start() :]) if soft else (text, "")
    preferred = [
        (name, value) for name, some in named_values(options, nice).items() for value in some
    ]
    # In the order in which they are named, the first weighs most.
    preferred.sort(key=lambda pair: nice.casefold().find(pair[1].casefold()))
    return _Wish(
        named_values(options, must),
        preferred,
        soft is not None,
        *(pattern.search(folded) is not None for pattern in (_CHEAP, _DEAR, _ANY, _SAME, _EXACT)),
    )


def _holds(variant: Record, wanted: Mapping[str, Sequence[str]]) -> bool:
    return all(variant["options"].get(name) in allowed for name, allowed in wanted.items())


def _is_old(wanted: Mapping[str, Sequence[str]], old: Record) -> bool:
    # All options of the old item, word by word.
    return wanted == {name: [value] for name, value in old["options"].items()}


def _keeps_rest(variant: Record, old: Record, wanted: Mapping[str, Sequence[str]]) -> bool:
    """Whether all that was not asked for stays as it is."""
    kept = (name for name in old["options"] if name not in wanted)
    return all(variant["options"][name] == old["options"][name] for name in kept)


def _best(
    wish: _Wish, old: Record, fits: Sequence[Record], alike: Sequence[Record]
) -> Record | str:
    """Of variants that fit the one that is meant, or a question."""
    for name, value in wish.preferred:
        fits = [each for each in fits if each["options"].get(name) == value] or fits
    if wish.cheap or wish.dear:
        # `the same, but cheaper`: among those that keep the rest, unless that was only a wish.
        pool = alike if wish.same and alike and not wish.soft else fits
        return sorted(pool, key=lambda each: each["price"])[0 if wish.cheap else -1]
    close = [
        sum(old["options"].get(name) == value for name, value in each["options"].items())
        for each in fits
    ]
    best = [each for each, score in zip(fits, close, strict=True) if score == max(close)]
    if len(best) == 1 or wish.free:
        return best[0]
    listed = "; ".join(_line(each) for each in best[:MOST])
    return f"There are several that fit: {listed}. Which one do you want?"


def _line(variant: Record) -> str:
    options = ", ".join(f"{name}: {value}" for name, value in variant["options"].items())
    return f"{variant['item_id']} ({options}) for {variant['price']:.2f}"
