"""The curves of one training run, in groups: scores, length, entropy, updates, staleness, rewards
by reason, cost. All else is folded away.

It reads metrics.jsonl and timings.jsonl of a run folder; which number is drawn where stands in
`PLACES`. docs/watching.md tells what each means.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gem_ma.pages.static.figures import Bounds, Curves, Point, chart
from gem_ma.pages.static.page import Html, table, text
from gem_ma.runs.store import read_metrics, read_timings
from gem_ma.scores.exams import exam_rows
from gem_ma.scores.together import EQUALITY, MOST_RETURNS, WELFARE, WON, is_of_group

GROUPS = (
    "Scores",
    "Length",
    "Entropy",
    "Updates",
    "Staleness",
    "Rewards by reason",
    "Answers",
    "Cost",
    "Measures",
)
# How names of scores begin, in the order of their charts. They are drawn even when flat: in
# self-play the return says nothing, the distance from an equilibrium does.
SCORES = ("nash_conv", "exploitability", "success", "return", "score", "reward")
# Number of a policy -> (group, chart, what the line is called beside the policy).
PLACES: Mapping[str, tuple[str, str, str]] = {
    "return": ("Scores", "return", ""),
    "success": ("Scores", "success", ""),
    "turns_per_episode": ("Length", "turns per episode", ""),
    "tokens_per_episode": ("Length", "tokens per episode", ""),
    "reply_tokens": ("Length", "tokens per reply", ""),
    "cut_by_length": ("Length", "share cut", "replies"),
    "cut_by_limits": ("Length", "share cut", "episodes"),
    "decision_entropy": ("Entropy", "entropy, nats a token", "decision"),
    "format_entropy": ("Entropy", "entropy, nats a token", "format"),
    "entropy": ("Entropy", "entropy, nats a token", "all"),
    "kl": ("Updates", "KL to the old policy", ""),
    "kl_reference": ("Updates", "KL to the reference", ""),
    "clip_fraction": ("Updates", "clip fraction", ""),
    "grad_norm": ("Updates", "gradient norm", ""),
    "zero_advantage": ("Updates", "share of zero advantages", ""),
    "mismatch_kl": ("Staleness", "mismatch KL, engine to learner", ""),
    "logprob_gap": ("Staleness", "largest log-probability gap", ""),
    "lag": ("Staleness", "lag, in versions", ""),
    "invalid_share": ("Answers", "share of unreadable answers", ""),
    "one_action": ("Answers", "share of the commonest action", ""),
    "rows": ("Cost", "token rows and restarts", "rows"),
    "forks": ("Cost", "token rows and restarts", "restarts"),
}
_OF_ALL = re.compile(r"((sampled|greedy)/)?(return|invalid)/")
# numbers by agent: what stands before its name, and behind it
_BY_AGENT = re.compile(
    r"((?:(?:sampled|greedy|policies/|worlds/)[^/]*/)?(?:return|invalid|components)/)([^/]+)(.*)"
)
EXAMS = ("sampled", "greedy")
# of an exam: how far from an equilibrium
EXACT = ("nash_conv", "exploitability")
PAIR = 2  # agents whose returns in training and in both exams have room in one chart
ROUNDING = 1e-9  # a smaller change is not one
TIMES = ("play_s", "credit_s", "update_s", "publish_s", "record_s")
RATES = {"play_tokens_per_s": "sampled", "update_tokens_per_s": "trained"}


@dataclass(slots=True)
class _Chart:
    """Lines by label. A curve that is there already, of a policy that plays all that an agent
    does, is not drawn twice."""

    lines: dict[str, tuple[Point, ...]] = field(default_factory=dict)
    exams: set[str] = field(default_factory=set)  # labels of those whose points are exams
    bounds: dict[str, Bounds] = field(default_factory=dict)  # label -> intervals of its points

    @property
    def changes(self) -> bool:
        # relative to its size: a sum of floats in another order differs in the last digit
        return any(
            max(ys) - min(ys) > ROUNDING * max(1.0, max(map(abs, ys)))
            for ys in ([y for _, y in points] for points in self.lines.values())
        )


def before_and_after(label: str, stored: Mapping[str, Any]) -> Html:
    """What learning changed, out of a training run's summary.json: every score of the first exam
    beside the last; exploitability first."""
    whole = all(isinstance(stored.get(name), dict) for name in ("before", "after"))
    # how far from an equilibrium first: of what is won by one another one loses
    rows = sorted(
        exam_rows(stored) if whole else [],
        key=lambda row: next((n for n, key in enumerate(EXACT) if row.name.startswith(key)), 9),
    )
    if not rows:
        return Html("")
    learned = (
        ", ".join(map(str, stored["learned"])) or "nothing"
        # the folder may come from anybody
        if isinstance(stored.get("learned"), list)
        else "not told"
    )
    caption = (
        f"{f'{label}: ' if label else ''}before the first and after the last update; learned:"
        f" {learned}"
    )
    wide = any(row.change for row in rows)
    head = ["score", "before", "after", *(["after - before", "p (Holm)"] if wide else [])]
    return table(head, [row[: len(head)] for row in rows], caption=caption)


def own_curves(label: str, path: Path) -> Html:
    """The charts of one run; with a label (one run of several) all but its scores are folded.
    What never changes is one line of text."""
    charts, constant = _charts(path)
    scores = [
        chart(_curves(label, title, held))
        for (group, title), held in charts.items()
        if group == "Scores"
    ]
    folded = _folded(label, charts, constant)
    # a page of several runs compares scores; how one of them learned is a click away
    if label and folded:
        folded = f"<details><summary>{text(label)}: how it learned</summary>{folded}</details>"
    drawn = f'<div class="charts">{"".join(scores)}</div>' if any(scores) else ""
    return Html("".join([drawn, alarms_told(label, path), folded]))


def alarms_told(label: str, path: Path) -> Html:
    """A line for each policy and alarm: what was seen first, and the steps of all; "" without
    any."""
    alarms: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for row in read_metrics(path):
        if row.get("kind") == "alarm":
            key = (str(row.get("policy")), str(row.get("signal")))
            alarms.setdefault(key, (str(row.get("text")), []))[1].append(str(row.get("step")))
    return Html(
        "".join(
            f'<p class="warn">{text(f"{label}: " if label else "")}alarm {text(signal)} of'
            f" {text(policy)}, step {text(', '.join(steps))}: {text(words)}</p>"
            for (policy, signal), (words, steps) in alarms.items()
        )
    )


def _charts(path: Path) -> tuple[dict[tuple[str, str], _Chart], list[str]]:
    """(group, title) -> chart, in the order of the page; and the numbers without a curve."""
    charts: dict[tuple[str, str], _Chart] = {}
    examined = exam_keys(path)
    intervals = exam_intervals(path)
    constant: list[str] = []
    series = series_of(flat_metrics(path))
    if any(key.startswith("worlds/") for key in series):
        # each world has curves of its own; those of all together would repeat them
        series = {key: points for key, points in series.items() if not _OF_ALL.match(key)}
    for key, points in {**of_many(series), **times_of(path)}.items():
        group, title, line = place_of(key)
        if len(points) > 1:
            charts.setdefault((group, title), _Chart()).lines.setdefault(line, tuple(points))
            charts[group, title].bounds[line] = intervals.get(key.removeprefix("by agent/"), {})
            made = key not in series and key.removeprefix("by agent/").startswith(EXAMS)
            is_exam = key in examined or (made and bool(examined))
            charts[group, title].exams |= {line} if is_exam else set()
        else:
            # one point makes no curve
            constant.append(f"{key.replace('/', ' ')} {points[-1][1]:g}")
    for place, held in list(charts.items()):
        if not held.changes and not place[1].startswith(SCORES):
            constant += [
                f"{' '.join(part for part in (place[1], line) if part)} {points[-1][1]:g}"
                for line, points in charts.pop(place).lines.items()
            ]
    # a title may stand for several keys, and keeps the place of the first
    order = list(dict.fromkeys(title for _, title, _ in PLACES.values()))
    charts = dict(
        sorted(
            charts.items(),
            key=lambda item: order.index(item[0][1]) if item[0][1] in order else len(order),
        )
    )
    # sorting is stable: within a rank the order of PLACES stays
    return dict(sorted(charts.items(), key=lambda item: rank(item[0][1]))), constant


def of_many(series: Mapping[str, list[Point]]) -> dict[str, list[Point]]:
    """The series, with the mean of all agents in place of those of more than `MOST_RETURNS`; of
    fewer, but more than two, it stands beside returns that have charts of their own."""
    agents: dict[tuple[str, str], list[str]] = {}
    for key in series:
        if found := _BY_AGENT.fullmatch(key):
            agents.setdefault((found[1], found[3]), []).append(found[2])
    kept = dict(series)
    for (before, after), names in agents.items():
        is_return = before.endswith("return/")
        if len(names) <= (PAIR if is_return else MOST_RETURNS):
            continue
        lines = [dict(kept.pop(f"{before}{name}{after}")) for name in names]
        steps = [x for x in lines[0] if all(x in line for line in lines)]
        mean = [(x, math.fsum(line[x] for line in lines) / len(lines)) for x in steps]
        kept[f"{before}a head of {len(names)}{after}"] = mean
        if len(names) <= MOST_RETURNS and not before.startswith("policies/"):
            apart = zip(names, lines, strict=True)
            kept |= {f"by agent/{before}{name}": list(line.items()) for name, line in apart}
    return {key: points for key, points in kept.items() if points}


def _folded(label: str, charts: Mapping[tuple[str, str], _Chart], constant: Sequence[str]) -> str:
    """The groups after the scores, what is in no group, and what never changed."""
    before = f"{label}: " if label else ""
    grouped = {
        group: {title: held for (whose, title), held in charts.items() if whose == group}
        for group in (*GROUPS[1:], "")
    }
    folded = ""
    for group, titles in grouped.items():
        drawn = "".join(chart(_curves(label, title, held)) for title, held in titles.items())
        if drawn and group == "Measures":
            words = f"{before}{len(titles)} measures in exams"
            folded += (
                f"<details><summary>{text(words)}</summary><div"
                f' class="charts">{drawn}</div></details>'
            )
        elif drawn and group:
            folded += f'<h3>{text(before + group)}</h3><div class="charts">{drawn}</div>'
        elif drawn:
            words = f"{before}{len(titles)} more curves: {', '.join(titles)}"
            folded += (
                f"<details><summary>{text(words)}</summary><div"
                f' class="charts">{drawn}</div></details>'
            )
    if constant:
        same = f'<p class="hint">{text(", ".join(constant))}</p>'
        folded += (
            f"<details><summary>{text(before)}{len(constant)} numbers without"
            f" change</summary>{same}</details>"
        )
    return folded


def place_of(key: str) -> tuple[str, str, str]:
    """(group, chart, line) of a flat key of metrics.jsonl or, under `time/`, of timings.jsonl;
    group "" = folded away.

    >>> place_of("sampled/return/speaker")
    ('Scores', 'return', 'sampled speaker')
    >>> place_of("policies/main/kl"), place_of("policies/main/lr")
    (('Updates', 'KL to the old policy', 'main'), ('', 'lr', 'main'))
    >>> place_of("policies/main/components/a/end"), place_of("time/play_s")
    (('Rewards by reason', 'paid to a, per episode', 'main end'),
     ('Cost', 'seconds by phase', 'play'))
    """
    words = key.split("/")
    if words[0] == "policies" and len(words) > 2:
        policy = words[1]
        name = words[2]
        rest = words[3:]
        if name == "components" and len(rest) > 1:
            title = f"paid to {rest[0]}, per episode"
            return "Rewards by reason", title, " ".join([policy, *rest[1:]])
        group, title, line = PLACES.get(name, ("", name, ""))
        return group, title, " ".join(part for part in (policy, line, *rest) if part)
    if words[0] == "time":
        return _place_of_time(words)
    if words[0] == "by agent":
        return "Scores", " ".join(["return by agent,", *(words[1:-2] or ["training"])]), words[-1]
    # an exam plays twice: as the policy samples, and with its likeliest answers; of several worlds
    # each is a line, in training too
    kind = world = ""
    if words[0] == "worlds" and len(words) > 2:
        world = words[1]
        words = words[2:]
    elif words[0].split(" ")[0] in ("sampled", "greedy") and len(words) > 1:
        kind, _, world = words.pop(0).partition(" ")
    if words[0] == "scores" and len(words) > 1:
        return _place_of_other("/".join(words[1:]), " ".join(filter(None, (kind, world))))
    if words[0] == "return" and world:  # in the units of this world
        return "Scores", f"return in {world}", " ".join(filter(None, (kind, *words[1:])))
    line = " ".join(filter(None, (kind, world, *words[1:])))
    if words[0].startswith(SCORES):
        return _place_of_score(words[0], line)
    if words[0] == "turns":
        return "Length", "turns per episode", line or "everybody"
    if words[0] == "invalid":
        return "Answers", "share of unreadable answers", line
    return "", words[0], line


def _place_of_time(words: Sequence[str]) -> tuple[str, str, str]:
    if words[-1] in RATES:
        return "Cost", "tokens a second", RATES[words[-1]]
    if words[1] == "padding":
        return "Cost", "share of padding", " ".join(words[2:])
    if words[-1] in TIMES:
        return "Cost", "seconds by phase", words[-1].removesuffix("_s")
    return "", words[-1], ""


def _place_of_other(score: str, line: str) -> tuple[str, str, str]:
    """Of a score that exams have beside success and returns: the returns of all groups share a
    chart, as do the teams that win."""
    begin, _, whose = score.partition(" ")
    is_group = begin == "return" and is_of_group(score)
    if is_group or f"{begin} " == WON:
        return "Scores", f"{begin} by group" if is_group else begin, f"{line} {whose}"
    return ("Scores" if score in (WELFARE, EQUALITY) else "Measures"), score, line


def _place_of_score(name: str, line: str) -> tuple[str, str, str]:
    name, _, world = name.partition(" ")  # `nash_conv kuhn`
    if name in ("nash_conv_averaged", "exploitability_averaged"):
        return "Scores", name.removesuffix("_averaged"), f"averaged {world}".strip()
    # beside "averaged", which shares their chart
    is_last = name in ("nash_conv", "exploitability")
    return "Scores", name, line or world or ("last" if is_last else "")


def rank(title: str) -> int:
    """The place of a score's chart among the scores."""
    return next((at for at, begin in enumerate(SCORES) if title.startswith(begin)), len(SCORES))


def exam_keys(path: Path) -> set[str]:
    """The flat keys that only rows of exams have."""
    keys: dict[bool, set[str]] = {True: set(), False: set()}
    for row in read_metrics(path):
        # an alarm is an event of training, and has the names of what it saw
        if row.get("kind") != "alarm":
            # by what rows hold, since any tracker may add a key to either
            keys[row.get("kind") == "evaluation"] |= flatten(row).keys()
    return keys[True] - keys[False]


def exam_intervals(path: Path) -> dict[str, Bounds]:
    """Flat key of an exam's number -> step -> its 95 % interval, where that is known."""
    found: dict[str, dict[float, tuple[float, float]]] = {}
    for row in read_metrics(path):
        for exam, numbers in row.items():
            held = numbers.get("intervals") if isinstance(numbers, Mapping) else None
            for name, ends in held.items() if isinstance(held, Mapping) else ():
                key = name if name == "success" else f"scores/{name}"
                returns = numbers.get("return")
                if isinstance(returns, Mapping) and name.removeprefix("return ") in returns:
                    key = f"return/{name.removeprefix('return ')}"
                # the folder may come from anybody
                known = [x for x in ends if is_number(x)] if isinstance(ends, list) else []
                if len(known) == 2 and is_number(row.get("step")):
                    low, high = known
                    found.setdefault(f"{exam}/{key}", {})[float(row["step"])] = (low, high)
    return dict(found)


def is_number(value: object) -> bool:
    # True is an int in Python, but not a point of a curve
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _curves(label: str, title: str, held: _Chart) -> Curves:
    """One chart; agents with one and the same curve share a line, and a policy's own curve gives
    way to that of its agent."""
    same: dict[tuple[Point, ...], list[str]] = {}
    lines = held.lines
    for line, points in lines.items():
        # equal to the last bit: of a shared policy, or of a score that is the same for all
        same.setdefault(tuple(points), []).append(line)
    exams: set[str] = set()
    drawn: dict[str, list[list[Point]]] = {}
    bounds: dict[str, Bounds] = {}
    for points, named in same.items():
        apart = [
            line
            for line in named
            if not any(other and line.endswith(f" {other}") for other in named)
        ]
        # "" is everybody: it stands for all others that share its curve
        apart = [""] if "" in named else apart
        name = _everyone(apart, lines, title) or ", ".join(apart) or "in training"
        drawn[name] = [list(points)]
        bounds[name] = held.bounds.get(named[0], {})
        exams |= {name} if held.exams.issuperset(named) else set()
    name = f"{label}: {title}" if label else title
    return Curves(name, drawn, y_label=title, exams=exams, bounds=bounds)


def _everyone(named: Sequence[str], lines: Mapping[str, Any], title: str) -> str:
    """`all agents` where these are all agents of a score, of one kind of exam; else ""."""
    for kind in ("", "sampled", "greedy"):
        agents = {
            line for line in lines if (line.startswith(f"{kind} ") if kind else " " not in line)
        }
        # only of scores: two agents with the same entropy are a coincidence
        if len(agents) > 1 and agents == set(named) and title.startswith(SCORES):
            return f"{kind} all agents".strip()
    return ""


def learning_curves(
    runs: Mapping[str, Sequence[Path]], key: str, title: str, **options: Any
) -> Curves:
    """A chart out of metrics.jsonl: label -> run folders, one per seed; `key` as in
    `returns/listener`, x is the key `step`."""
    lines = {
        label: [series_of(flat_metrics(path)).get(key, []) for path in paths]
        for label, paths in runs.items()
    }
    return Curves(title, lines, **options)


def flat_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl, flat; an alarm is an event and no point of a curve."""
    return [flatten(row) for row in read_metrics(path) if row.get("kind") != "alarm"]


def flatten(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys joined by `/`."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        name = prefix + key
        flat.update(flatten(value, name + "/") if isinstance(value, dict) else {name: value})
    return flat


def series_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Point]]:
    """Key -> points, over the key `step` (the number of the row where there is none). Values
    that are not numbers are gaps."""
    series: dict[str, list[Point]] = {}
    for number, row in enumerate(rows):
        step = row.get("step", number)
        x = float(step) if isinstance(step, (int, float)) else float(number)
        for key, value in row.items():
            if key != "step" and is_number(value):
                series.setdefault(key, []).append((x, float(value)))
    return series


def times_of(path: Path) -> dict[str, list[Point]]:
    """Key -> points of timings.jsonl, under `time/`."""
    rows = [
        {
            "step": step,
            **flatten(
                {key: value for key, value in row.items() if key not in ("at", "step")}, "time/"
            ),
        }
        for step, row in sorted(read_timings(path).items())
    ]
    return series_of(rows)
