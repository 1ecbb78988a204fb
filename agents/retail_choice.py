"""Which variant a customer means by words such as `the same in teal` or `the cheapest one that
is waterproof`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.agents.retail_reading import Named, named_values, where

Record = Mapping[str, Any]
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
_SOFT = re.compile(
    r"\b(?:preferably|prefer\w*|ideally|if (?:possible|you can|there is a choice|available)|would"
    r" like best|rather)\b"
)


def choose(named: Named, product: Record, texts: Sequence[str]) -> Record | str:
    """The variant that replaces an item, a question (it ends with `?`), or why there is none.

    `product` is the record that the tools showed, `texts` all that was said about the request,
    oldest first. What is asked for must hold, what is preferred narrows the choice in its order;
    then the cheapest, the dearest, or the one that keeps most of the present options.
    """
    old = named.item
    said = named.into or (texts[-1] if len(texts) > 1 else named.about)
    by_id = [
        variant
        for key, variant in product["variants"].items()
        if where(key, said) >= 0 and key != old["item_id"]
    ]
    if by_id:
        return (
            by_id[0]
            if by_id[0]["available"]
            else f"I am sorry, {product['name']} {by_id[0]['item_id']} is not available."
        )
    values: dict[str, list[str]] = {}
    for variant in product["variants"].values():
        for name, value in variant["options"].items():
            values.setdefault(name, []).append(value)
    soft = _SOFT.search(said.casefold())
    must, nice = (said[: soft.start()], said[soft.start() :]) if soft else (said, "")
    wanted = named_values(
        {name: tuple(dict.fromkeys(found)) for name, found in values.items()}, must
    )
    folded = said.casefold()
    cheap, dear, free, same = (
        pattern.search(folded) is not None for pattern in (_CHEAP, _DEAR, _ANY, _SAME)
    )
    others = [
        v for v in product["variants"].values() if v["available"] and v["item_id"] != old["item_id"]
    ]
    fits = [
        v
        for v in others
        if all(v["options"].get(name) in allowed for name, allowed in wanted.items())
    ]
    if not (wanted or nice or cheap or dear or free or len(fits) == 1):
        return f"Which options should the new {product['name']} have?"
    if (
        not fits
        and wanted == {name: [value] for name, value in old["options"].items()}
        and old["item_id"] in product["variants"]
    ):
        # the very same again; the tool says whether that is allowed
        return product["variants"][old["item_id"]]
    missing = ", ".join(f"{name} {' or '.join(allowed)}" for name, allowed in wanted.items())
    kept = [
        v
        for v in fits
        if all(
            v["options"][name] == value
            for name, value in old["options"].items()
            if name not in wanted
        )
    ]
    insists = (
        same
        and not (soft or kept or cheap or dear or free)
        and re.search(r"\b(?:same|identical|unchanged)\b", folded)
    )
    if not fits or (wanted and insists):
        return (
            f"I am sorry, the {product['name']} with {missing} is not available, so I cannot do"
            " that."
        )
    for name, value in _in_order(nice, values):
        fits = [v for v in fits if v["options"].get(name) == value] or fits
    if cheap or dear:
        pool = kept if same and kept and not soft else fits
        return sorted(pool, key=lambda v: v["price"])[0 if cheap else -1]
    close = [
        sum(old["options"].get(name) == value for name, value in v["options"].items()) for v in fits
    ]
    best = [v for v, score in zip(fits, close, strict=True) if score == max(close)]
    if len(best) == 1 or free:
        return best[0]
    listed = "; ".join(
        f"{v['item_id']} ({', '.join(f'{n}: {x}' for n, x in v['options'].items())}) for"
        f" {v['price']:.2f}"
        for v in best[:6]
    )
    return f"There are several that fit: {listed}. Which one do you want?"


def _in_order(text: str, values: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """The option values that a text names, in its order."""
    found = named_values({name: tuple(dict.fromkeys(of)) for name, of in values.items()}, text)
    pairs = [(name, value) for name, named in found.items() for value in named]
    return sorted(pairs, key=lambda pair: text.casefold().find(pair[1].casefold()))
