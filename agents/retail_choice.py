"""Which variant a customer means by words such as `the same in teal` or `the cheapest one that is waterproof`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.agents.retail_reading import Named, named_values

Record = Mapping[str, Any]
_CHEAP = re.compile(r"\b(?:cheapest|least expensive|lowest price|lowest-priced|most affordable)\b")
_DEAR = re.compile(r"\b(?:most expensive|dearest|highest price|priciest|top of the range|best one)\b")
_OTHER = re.compile(r"\b(?:any|whatever|does(?:n't| not) matter|do(?:n't| not) (?:care|mind)|no preference)\b")
_SAME = re.compile(r"\b(?:same|keep|identical|otherwise|unchanged|everything else|the rest)\b")


def choose(named: Named, product: Record, texts: Sequence[str]) -> Record | str:
    """The variant that replaces an item, a question (it ends with `?`), or why there is none.

    `product` is the record that the tools showed, `texts` all that was said about the request, oldest first.
    """
    old = named.item
    axes: dict[str, list[str]] = {}
    for variant in product["variants"].values():
        for name, value in variant["options"].items():
            axes.setdefault(name, []).append(value)
    values = {name: tuple(dict.fromkeys(found)) for name, found in axes.items()}
    said = named.into or (texts[-1] if len(texts) > 1 else named.about)
    by_id = [variant for key, variant in product["variants"].items() if re.search(rf"(?<!\d){re.escape(key)}(?!\d)", said) and key != old["item_id"]]
    if by_id:
        return by_id[0] if by_id[0]["available"] else f"I am sorry, {product['name']} {by_id[0]['item_id']} is not available."
    wanted = named_values(values, said)
    others = [v for v in product["variants"].values() if v["available"] and v["item_id"] != old["item_id"]]
    fits = [v for v in others if all(v["options"].get(name) in allowed for name, allowed in wanted.items())]
    folded = " ".join((said, *texts[-1:])).casefold()
    cheap, dear, free, same = (pattern.search(folded) is not None for pattern in (_CHEAP, _DEAR, _OTHER, _SAME))
    if not (wanted or cheap or dear or free or len(fits) == 1):
        return f"Which options should the new {product['name']} have?"
    if not fits and wanted == {name: [value] for name, value in old["options"].items()} and old["item_id"] in product["variants"]:
        return product["variants"][old["item_id"]]  # the very same again; the tool says whether that is allowed
    missing = ", ".join(f"{name} {' or '.join(allowed)}" for name, allowed in wanted.items())
    kept = [v for v in fits if all(v["options"][name] == value for name, value in old["options"].items() if name not in wanted)]
    if not fits or (same and wanted and not (kept or cheap or dear or free)):
        return f"I am sorry, the {product['name']} with {missing} is not available, so I cannot do that."
    ranked = sorted(fits if (cheap or dear) and not (same and kept) else kept or fits, key=lambda v: v["price"])
    if cheap or dear:
        return ranked[0 if cheap else -1]
    if len(ranked) == 1:
        return ranked[0]
    listed = "; ".join(f"{v['item_id']} ({', '.join(f'{n}: {x}' for n, x in v['options'].items())}) for {v['price']:.2f}" for v in ranked[:6])
    return f"There are several that fit: {listed}. Which one do you want?"
