"""How well the parser reads the labelled messages: `python -m tests.act_scores` prints coverage,
precision, recall and the verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gem_ma.scenarios.service_desk.agents.retail_user import RetailUser
from gem_ma.scenarios.service_desk.reading.acts import SURE, Act, read
from gem_ma.scenarios.service_desk.reading.proposals import judge
from gem_ma.scenarios.service_desk.retail.domain.language import RETAIL

from tests.assistant_messages import MESSAGES, UNSEEN, WISHES

IDENTITY = ("first_name", "last_name", "zip", "email")
FAMILY = {
    "cancel": "cancel",
    "return": "return",
    "exchange": "swap",
    "modify_pending_order_items": "swap",
    "modify_pending_order_payment": "payment",
}
DECISIVE = ("ask", "propose", "claim", "refuse", "transfer")
NAMES = {"claim_done": "claim", "offer_more": "more"}
assert RetailUser.phrasebook is RETAIL


def family(writes: Iterable[str]) -> str:
    found = {FAMILY.get(write) or FAMILY.get(write.split("_")[0]) or "address" for write in writes}
    return found.pop() if len(found) == 1 else "any"


def label(act: Act) -> str:
    if act.kind == "ask":
        return f"ask:{'identity' if act.slot in IDENTITY else act.slot}"
    if act.kind in ("propose", "claim_done"):
        return f"{NAMES.get(act.kind, act.kind)}:{family(act.writes)}"
    return NAMES.get(act.kind, act.kind)


def labels(text: str) -> set[str]:
    sure = {
        label(act) for act in read(text, RETAIL) if act.confidence >= SURE and act.kind != "other"
    }
    bare = any(act.kind == "propose" and act.confidence < SURE for act in read(text, RETAIL))
    return sure | (
        {"propose:any"} if bare and not any(name.startswith("propose") for name in sure) else set()
    )


def agree(one: str, others: set[str]) -> bool:
    """Whether a label stands among others; `any` stands for every write, and what is wanted for
    the items."""
    if one in others or (
        one in ("ask:items", "ask:wanted") and others & {"ask:items", "ask:wanted"}
    ):
        return True
    kind, _, what = one.partition(":")
    return what != "" and any(
        other.startswith(f"{kind}:") and (what == "any" or other.endswith(":any"))
        for other in others
        if kind != "ask"
    )


def verdict(text: str, wish: str) -> str:
    """What a careful customer answers: yes, no, or ask."""
    found = [
        judge(act, WISHES[wish], RETAIL)
        for act in read(text, RETAIL)
        if act.kind == "propose" and act.confidence >= SURE
    ]
    if not found:
        return "ask"
    if any(judgement is None or judgement.wrong for judgement in found):
        return "no"
    return "yes" if all(judgement is not None and judgement.right for judgement in found) else "ask"


def scores(rows: Iterable[tuple[str, str, str, str]] = (*MESSAGES, *UNSEEN)) -> dict[str, float]:
    """Shares over labelled messages; `false_yes` and `false_no` are counts."""
    count: Counter[str] = Counter()
    for text, acts, wish, due in rows:
        given, said = set(acts.split()), labels(text)
        count["rows"] += 1
        count["messages"] += bool(given)
        count["covered"] += any(agree(one, said) for one in given)
        for name, kinds in (("", ("",)), ("decisive_", DECISIVE)):
            emitted, gold = (
                [one for one in said if one.startswith(kinds)],
                [one for one in given if one.startswith(kinds)],
            )
            count[f"{name}emitted"] += len(emitted)
            count[f"{name}true"] += sum(agree(one, given) for one in emitted)
            count[f"{name}gold"] += len(gold)
            count[f"{name}found"] += sum(agree(one, said) for one in gold)
        if wish:
            found = verdict(text, wish)
            count["judged"] += 1
            count["judged_right"] += found == due
            count["false_yes"] += found == "yes" != due
            count["false_no"] += found == "no" != due
    return {
        "messages": count["rows"],
        "coverage": count["covered"] / count["messages"],
        "precision": count["true"] / count["emitted"],
        "recall": count["found"] / count["gold"],
        "decisive_precision": count["decisive_true"] / count["decisive_emitted"],
        "decisive_recall": count["decisive_found"] / count["decisive_gold"],
        "judged": count["judged"],
        "verdicts_right": count["judged_right"] / count["judged"],
        "false_yes": count["false_yes"],
        "false_no": count["false_no"],
    }


if __name__ == "__main__":
    for name, value in scores().items():
        print(f"{name:20} {value:.3f}" if isinstance(value, float) else f"{name:20} {value}")
