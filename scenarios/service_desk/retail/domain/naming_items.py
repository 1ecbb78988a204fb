"""How a text names the items of a shop: by ids, or by product and options, each with what is to
replace it.

Which words are about the old item and which about the new one is read in `naming_swaps`. What is
not said clearly is MISSING, never RIGHT.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from itertools import permutations
from typing import Any

from gem_ma.scenarios.service_desk.desk.task import Wish
from gem_ma.scenarios.service_desk.reading.phrases import (
    MISSING,
    RIGHT,
    WRONG,
    fold,
    labelled,
    names,
    places,
)
from gem_ma.scenarios.service_desk.retail.domain.naming import ITEM
from gem_ma.scenarios.service_desk.retail.domain.naming_swaps import paired, sides_of

Products = Mapping[str, Mapping[str, tuple[str, ...]]]  # name -> option -> values, all folded
# `both kites` says how many are meant without naming each.
_SEVERAL = re.compile(
    r"\b(?:both|two|three|four|each|all|twice|pair|qty|quantity)\b|\b[2-5] ?[x×]|[x×] ?[2-5]\b"
)
_OUT = re.compile(  # what follows is left out
    r"\b(?:keep(?:ing)?|leav(?:e|ing)|not|except(?: for)?|excluding|without|(?:everything|all)"
    r" but|other than"
    r"|(?:different|other|another)(?: \w+)? than)"
    r"(?: (?:the|your|item|items|a|an))*(?: #?\d+,?(?: and| or)?)*\s*$"
)
_REST = re.compile(
    r"\b(?:and|with|plus|also) (?:all |any |the )*(?:other|remaining) items?\b|\beverything else"
    r" too\b"
)
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")
# The optional space is possessive, or a line of blanks is walked once per blank.
_BULLET = re.compile(r"(?:(?<!\s)\s++)?(?:[-•]|\d{1,2}[.)])\s+")


def items(wish: Wish, text: str, lines: str, products: Products) -> dict[str, str]:
    """Verdicts on `item_ids`, and on `new_item_ids` where the wish has them. `lines`: the text
    folded line by line."""
    old, new = list(wish.arguments["item_ids"]), list(wish.arguments.get("new_item_ids", ()))
    keys: tuple[str, ...] = ("item_ids", "new_item_ids") if new else ("item_ids",)
    # Ids where there are any. Ids of another form, as a second shop may have, are looked for as
    # words.
    seen = [hit.group() for hit in ITEM.finditer(text)] or [
        word for word in (*old, *new) if names(word, lines)
    ]
    # `all but the kite` names the kite to leave it out: a yes to it would be a yes to the wrong
    # thing.
    if any(
        _OUT.search(lines[:start])
        for value in (*old, *new, *_names_of(wish))
        for start, _ in places(value, lines)
    ):
        return {keys[0]: WRONG} | ({keys[1]: MISSING} if new else {})
    # An id that the wish does not have is wrong; but once all the old ones stand there, it is the
    # new one that is wrong.
    foreign = [item for item in seen if item not in old and item not in new]
    if foreign:
        if not new or not all(item in seen for item in old):
            return {keys[0]: WRONG} | ({keys[1]: MISSING} if new else {})
        return {keys[0]: RIGHT, keys[1]: WRONG}
    if seen and all(item in seen for item in (*old, *new)):
        sides = (
            dict.fromkeys(keys, RIGHT)
            if not new or paired(old, new, seen, text)
            else {keys[0]: RIGHT, keys[1]: WRONG}
        )
        # Named twice, it may be meant twice, as where an order holds two of it.
        counted = all(
            _as_often(item, old.count(item), seen.count(item), lines) for item in {*old} - {*new}
        )
        return (
            sides
            if counted and not _REST.search(lines) and not _others(wish, lines, products)
            else {**sides, keys[0]: MISSING}
        )
    # Without words for the items only ids could have said it.
    if "items" not in wish.words:
        return dict.fromkeys(keys, MISSING)
    return _described(products, wish, keys, lines, seen)


def _described(
    products: Products, wish: Wish, keys: tuple[str, ...], lines: str, seen: list[str]
) -> dict[str, str]:
    """The items of a wish in words: product, options, and what is wanted instead."""
    meant: dict[str, list[int]] = {}
    # Several items of one name are matched together, since their order in the text is free.
    for place, item in enumerate(wish.words["items"]):
        meant.setdefault(fold(item.name), []).append(place)
    if _others(wish, lines, products):
        return {keys[0]: WRONG} | ({keys[1]: MISSING} if len(keys) > 1 else {})
    verdicts = dict.fromkeys(keys, RIGHT)
    for name, alike in meant.items():
        slices = sides_of(name, lines)
        pair = _matched(products, wish, name, alike, slices, seen, len(keys) > 1)
        if WRONG not in pair and not _all_meant(products, wish, name, alike, slices, lines):
            pair = (MISSING, pair[1])
        for key, verdict in zip(keys, pair, strict=False):
            verdicts[key] = _worse(verdicts[key], verdict)
    return verdicts


def _all_meant(
    products: Products,
    wish: Wish,
    name: str,
    alike: list[int],
    slices: list[tuple[str, str]],
    lines: str,
) -> bool:
    """Whether a text speaks of no item of this name but those of the wish and what is to replace
    them, and of each as often as it is meant."""
    items = [wish.words["items"][place] for place in alike]
    known = [options for item in items for options in (item.options, item.wanted) if options]
    sides = [
        # Where there is a new side, the first one may only speak of what the customer has.
        (before, [item.options for item in items] if after else known)
        for before, after in slices
    ] + [(after, known) for _, after in slices]
    if any(
        side and all(_fits(products, name, options, (), side) == WRONG for options in meant)
        for side, meant in sides
    ):
        return False
    # `kite (red), kite (red)` is two of them; so many fit the wish at most.
    for each in {
        f"{name}{options}"
        for options in re.findall(rf"(?<!\w){re.escape(name)}( ?\([^()]*\))", lines)
    }:
        if _often(each, lines) > sum(
            _fits(products, name, options, (), each) != WRONG for options in known
        ):
            return False
    return not _REST.search(lines) and (
        len(slices) >= len(alike) or _SEVERAL.search(lines) is not None
    )


def _names_of(wish: Wish) -> list[str]:
    return sorted({fold(item.name) for item in wish.words.get("items", ())})


def _others(wish: Wish, lines: str, products: Products) -> bool:
    """Whether a text names a product that the wish has nothing to do with."""
    # A product whose name stands inside a wanted one's is not another product.
    meant = _names_of(wish)
    others = (
        (
            other
            for other in products
            if other not in meant and not any(other in name for name in meant)
        )
        if meant
        else ()
    )
    return any(names(other, lines) or names(f"{other}s", lines) for other in others)


def _as_often(item: str, wanted: int, seen: int, lines: str) -> bool:
    """Whether a text names an id as often as it is meant; said again in another sentence it is
    the same item."""
    return _often(item, lines) <= wanted and (seen >= wanted or _SEVERAL.search(lines) is not None)


def _often(part: str, lines: str) -> int:
    """How often a text names something in one sentence, or in equal entries of a list."""
    # Counted in one sentence: what a summary says again is the same item.
    sentences = Counter(
        sentence.strip() for sentence in re.split(r"(?<=[.!?])\s|\n", lines) if part in sentence
    )
    entries = Counter(
        _BULLET.sub("", sentence) for sentence in sentences.elements() if _BULLET.match(sentence)
    )
    return max(
        (
            sentence.count(part) * max(1, entries[_BULLET.sub("", sentence)])
            for sentence in sentences
        ),
        default=0,
    )


def _matched(
    products: Products,
    wish: Wish,
    name: str,
    alike: list[int],
    slices: list[tuple[str, str]],
    seen: list[str],
    swap: bool,
) -> tuple[str, str]:
    if not slices:
        return MISSING, MISSING
    items, best = wish.words["items"], (WRONG, WRONG)
    # One item: all that is said of it counts together, over the whole text.
    if len(alike) == 1:
        slices = [("\n".join(old for old, _ in slices), "\n".join(new for _, new in slices if new))]
    # Fewer places than items will do only where the items are alike, as in `both kites to red`.
    if len(slices) < len(alike):
        first = items[alike[0]]
        if any(
            (items[place].options, items[place].wanted) != (first.options, first.wanted)
            for place in alike
        ):
            return MISSING, MISSING
        slices = [slices[0]] * len(alike)
    if len(slices) > len(alike):
        # Where more is said than is meant, what names a replacement is the swap and the rest its
        # context.
        slices = [part for part in slices if part[1]] or slices
    # 120 orders at most; a text with more of one name says too many things to trust any.
    if len(slices) > 5:
        return MISSING, MISSING
    for order in permutations(slices, len(alike)):
        old = new = RIGHT
        for place, (before, after) in zip(alike, order, strict=True):
            item = items[place]
            old = _worse(old, _fits(products, name, item.options, (), before))
            # An id says all of the new item, so its options need not be named.
            if swap and wish.arguments["new_item_ids"][place] not in seen:
                differs = [
                    axis for axis in item.wanted if item.wanted[axis] != item.options.get(axis)
                ]
                new = _worse(
                    new,
                    (
                        _fits(products, name, item.wanted, differs or list(item.wanted), after)
                        if after
                        else MISSING
                    ),
                )
        # Fewest wrong first: of all ways to match the best is taken, since any of them may be
        # meant.
        best = min(best, (old, new), key=lambda both: (both.count(WRONG), both.count(MISSING)))
    return best


def _fits(
    products: Products, name: str, options: Mapping[str, Any], needed: Collection[str], text: str
) -> str:
    """How a text describes a variant: WRONG where it says another value, MISSING where a needed
    value is not named."""
    verdict = RIGHT
    for axis, value in options.items():
        value, given = fold(str(value)), labelled(fold(axis), text)
        # A label decides against other words: `colour: red`.
        if given and all(value != other and not names(value, other) for other in given):
            return WRONG
        others = products.get(name, {}).get(fold(axis), ())
        present = _present((*others, value), text)
        if value not in present:
            # A value may be that of another option too, as in `steel` blade and `steel` shell.
            shared = {fold(str(kept)) for kept in options.values()}
            if any(other in present and other not in shared for other in others):
                return WRONG
            if axis in needed:
                verdict = MISSING
    return verdict


def _worse(one: str, other: str) -> str:
    return WRONG if WRONG in (one, other) else MISSING if MISSING in (one, other) else RIGHT


def strays(wish: Wish, lines: str, products: Products) -> bool:
    """Whether a text names a value of an option that no item of the wish has, nor what is to
    replace it."""
    theirs: dict[tuple[str, str], set[str]] = {}
    for item in wish.words.get("items", ()):
        for axis, value in (*item.options.items(), *(item.wanted or {}).items()):
            theirs.setdefault((fold(item.name), fold(axis)), set()).add(fold(str(value)))
    return any(
        _present((*products.get(name, {}).get(axis, ()), *values), lines) - values
        for (name, axis), values in theirs.items()
    )


def names_others(wish: Wish, lines: str, products: Products) -> bool:
    """Whether a text names for certain what the wish does not have: another product, or a value
    of an option that is neither an item's nor wanted in its place. What a replacement leaves open
    may have any value."""
    items = wish.words.get("items", ())
    if _others(wish, lines, products) or any(_leaves_as_is(item, items, lines) for item in items):
        return True
    theirs = {(fold(item.name), fold(axis)) for item in items for axis in item.options}
    # A value may be that of another option too, as in `steel` blade and `steel` shell.
    known = {
        fold(str(value))
        for item in items
        for value in (*item.options.values(), *(item.wanted or {}).values())
    }
    free = {
        fold(axis)
        for item in items
        if item.wanted is not None
        for axis in item.options.keys() - item.wanted.keys()
    }
    # The name of an option may be a value of another one: `glass: clear`.
    for _, axis in theirs:
        lines = lines.replace(f"{axis}:", " " * len(axis) + ":")
    sentences = [
        # `one small thing` is not a size: a sentence that names nothing of the items says none.
        sentence
        for sentence in _SENTENCE.split(lines)
        if _present(known, sentence) or any(places(name, sentence) for name, _ in theirs)
    ]
    return any(
        _present((*products.get(name, {}).get(axis, ()), *known), sentence) - known
        for name, axis in theirs
        if axis not in free and places(name.split()[-1], lines)
        for sentence in sentences
    )


def _leaves_as_is(item: Any, items: Collection[Any], lines: str) -> bool:
    """Whether a text leaves an option of an item as it is where another value is wanted: it says
    the old value on both sides, and the new one nowhere."""
    for axis, new in (item.wanted or {}).items():
        old = item.options.get(axis)
        if old is None or old == new or names(str(new), lines):
            continue
        held = [
            value
            for each in items
            for value in (*each.options.values(), *(each.wanted or {}).values())
        ]
        if _often_named(fold(str(old)), lines) > held.count(old):
            return True
    return False


def _often_named(value: str, lines: str) -> int:
    return len(re.findall(rf"(?<![\w.]){re.escape(value)}(?!\w)", lines))


def _present(values: Collection[str], text: str) -> set[str]:
    """The values that stand in a text, longest first: `carbon steel` is not also `steel`."""
    present = set()
    for value in sorted(set(values), key=lambda value: (-len(value), value)):
        if value in text and names(value, text):
            # Taken out, so that its parts are not values of their own.
            present.add(value)
            text = text.replace(value, " ")
    return present
