"""Scorecards of `gem-ma bench` as tables: for a terminal, a page of HTML, and in Markdown for the
docs. Made of scorecards alone (`gem_ma.runs.bench`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.config.battery import CHANCE, ORACLE, Battery
from gem_ma.kernel.spelling import decimal
from gem_ma.pages.static.paper import Table, table_markdown
from gem_ma.pages.static.report import PlainTable, Section
from gem_ma.runs.bench import MODEL, Scorecard
from gem_ma.scores.groups import SUCCESS, finite, interval_text
from gem_ma.scores.scorecard import differences, row_score
from gem_ma.scores.stats import Estimate

MISSING = "not yet played"


def row_facts(battery: Battery, card: Scorecard) -> dict[str, dict[str, Any]]:
    """Row -> what its scorecard comes to, as JSON values."""
    facts = {}
    rows = card.rows()
    for row in rows:
        settings = battery.settings.rows[row]
        found = card.cells[row]
        mine = found[MODEL]
        made = row_score(
            mine["values"],
            found[CHANCE]["values"],
            found[ORACLE]["values"],
            plays=found[CHANCE]["plays"],
            rows=len(rows),
            rate=settings.score == SUCCESS,
        )
        facts[row] = {
            "skill": settings.skill,
            "score": settings.score,
            **_bounds(made.score),
            "chance": _bounds(made.chance),
            "oracle": _bounds(made.oracle),
            "exact": settings.exact,
            "from_chance": _finite(made.from_chance._asdict()),
            "from_oracle": _finite(made.from_oracle._asdict()),
            "share": made.share,
            "verdict": made.verdict,
            "tasks": len(mine["values"]),
            **{key: mine[key] for key in ("failed", "unread", "calls")},
            **{key: mine[key] for key in ("prompt", "completion", "usd", "run")},
        }
    return facts


def row_differences(battery: Battery, first: Scorecard, second: Scorecard) -> dict[str, Any]:
    """Row -> the second model less the first, over the rows that both have played."""
    shared = [row for row in first.rows() if row in second.rows()]
    pairs = {
        row: (
            first.cells[row][MODEL]["values"],
            second.cells[row][MODEL]["values"],
            battery.settings.rows[row].score == SUCCESS,
        )
        for row in shared
    }
    return differences(pairs) if pairs else {}


def _bounds(estimate: Estimate) -> dict[str, Any]:
    return _finite({key: getattr(estimate, key) for key in ("mean", "low", "high")})


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {key: finite(value) for key, value in values.items()}


def card_table(battery: Battery, card: Scorecard) -> Table:
    """A model's scores, row by row."""
    facts = row_facts(battery, card)
    rows = []
    for row in battery.rows:
        one = facts.get(row)
        if one is None:
            rows.append([row, battery.settings.rows[row].score, MISSING, *[""] * 7])
            continue
        rows.append(
            [
                row,
                one["score"],
                interval_text(one),
                decimal(one["chance"]["mean"]),
                decimal(one["oracle"]["mean"]),
                "" if one["exact"] is None else f"{one['exact']:g}",
                "" if one["share"] is None else f"{one['share']:.2f}",
                one["verdict"],
                f"{one['failed']} of {one['tasks']}" if one["failed"] else "",
                str(one["calls"] or ""),
            ]
        )
    head = ["row", "score", "mean", "chance", "oracle", "exact", "share", "verdict"]
    caption = (
        f"{card.model}: intervals hold together at 95 %; share is 0 at chance, 1 at the oracle"
    )
    return Table(caption, [*head, "failed", "calls"], rows)


def cost_text(card: Scorecard) -> str:
    """What all rows of a model used; "" where no model was called."""
    mine: list[Any] = [found[MODEL] for found in card.cells.values() if MODEL in found]
    if not any(one["calls"] for one in mine):
        return ""
    sums = {
        key: None if None in (listed := [one[key] for one in mine]) else sum(listed)
        for key in ("calls", "prompt", "completion", "usd")
    }
    tokens = "tokens unknown"
    if sums["prompt"] is not None and sums["completion"] is not None:
        tokens = f"{sums['prompt']} tokens read, {sums['completion']} sampled"
    price = "" if sums["usd"] is None else f", ${sums['usd']:.2f}"
    return f"{sums['calls']} model calls, {tokens}{price}"


def difference_table(battery: Battery, first: Scorecard, second: Scorecard) -> Table:
    """The second model less the first."""
    found = row_differences(battery, first, second)
    numbers = ("difference", "low", "high")
    rows = [
        [
            row,
            interval_text({**one, "mean": one["difference"]}),
            f"{one['p']:.4f}",
            f"{one['p_adjusted']:.4f}",
            "" if None in (low := one["low"], high := one["high"]) or low <= 0 <= high else "*",
        ]
        for row, one in found.items()
        if all(key in one for key in numbers)
    ]
    caption = (
        f"{second.model} less {first.model}, task by task: intervals hold together at 99 %; * does"
        " not hold 0"
    )
    return Table(caption, ["row", "difference", "p", "p (Holm)", ""], rows)


def tables_of(battery: Battery, cards: Sequence[Scorecard]) -> list[Table]:
    """All tables of one or two scorecards."""
    made = [card_table(battery, card) for card in cards]
    return [*made, difference_table(battery, *cards)] if len(cards) == 2 else made


def sections_of(battery: Battery, cards: Sequence[Scorecard]) -> list[Section]:
    """The same as sections of a page."""
    about = [[row, one.skill, one.source] for row, one in battery.settings.rows.items()]
    skills = PlainTable(["row", "skill", "exact is known from"], about, f"Battery {battery.digest}")
    made = [PlainTable(one.columns, one.rows, one.caption) for one in tables_of(battery, cards)]
    text = "\n\n".join(filter(None, map(cost_text, cards)))
    return [Section(battery.settings.title, text=text, tables=[*made, skills])]


def bench_markdown(
    battery: Battery, cards: Sequence[Scorecard], pairs: Sequence[tuple[Scorecard, Scorecard]] = ()
) -> str:
    """The battery and these scorecards in Markdown, with the differences of `pairs` of them."""
    settings = battery.settings
    rows = [
        [row, one.skill, one.scenario["id"], one.seat, str(one.tasks), one.source]
        for row, one in settings.rows.items()
    ]
    head = ["row", "skill", "scenario", "seat", "tasks", "exact is known from"]
    parts = [f"## Battery {battery.digest}", table_markdown(Table("", head, rows))]
    for card in cards:
        made = card_table(battery, card)
        parts += [f"## `{card.model}`", made.caption, table_markdown(made), cost_text(card)]
    for pair in pairs:
        made = difference_table(battery, *pair)
        parts += [f"## `{pair[1].model}` less `{pair[0].model}`", made.caption]
        parts.append(table_markdown(made))
    return "\n\n".join(filter(None, parts)) + "\n"
