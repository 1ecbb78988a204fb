"""What a person sees while policies learn: a table that redraws itself on a terminal, a plain line
now and then elsewhere, nothing where quiet.

It is a tracker (`gem_ma.training.tracking`): it knows flat names of numbers, nothing of training.
All of it goes to stderr.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from gem_ma.cli.terminal import LINE_EVERY_S, Screen, clock, is_live, one_line, progress_line
from gem_ma.kernel.spelling import decimal
from gem_ma.scores.together import MOST_RETURNS

RECENT = 20  # steps whose mean time the rest is reckoned by
PHASES = ("play", "credit", "update", "publish", "record")
# column -> name of the number; entropies are of decision tokens, of all others of such answers, and
# of all tokens
COLUMNS = {
    "decision": "decision_entropy",
    "format": "format_entropy",
    "entropy": "entropy",
    "KL": "kl",
    "clip": "clip_fraction",
    "grad": "grad_norm",
    "lag": "lag",
}


class Live:
    """The view of one training. A context manager; `log` and `close` make it a tracker."""

    def __init__(self, steps: int, policies: Sequence[str], *, quiet: bool = False) -> None:
        self.steps = steps
        self.policies = tuple(policies)
        self.step = 0
        self._quiet = quiet
        self._train: dict[str, float] = {}
        self._policy: dict[str, dict[str, float]] = {name: {} for name in policies}
        self._time: dict[str, float] = {}
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._last_line: float | None = None
        self._drawn: Any = None

    def __enter__(self) -> Live:
        if not self._quiet and is_live():
            from rich.console import Console
            from rich.live import Live as Drawn

            how: dict[str, Any] = {
                "refresh_per_second": 4,
                # gone at its end, so that the result stands alone
                "transient": True,
                # stdout carries the result, perhaps into a pipe
                "redirect_stdout": False,
                # rows that do not fit are cut: a table longer than the terminal scrolls at each
                # redraw
                "vertical_overflow": "ellipsis",
            }
            # other lines on stderr appear above the table
            console = Console(file=Screen())  # type: ignore[arg-type]
            self._drawn = Drawn(console=console, get_renderable=self.drawing, **how)
            self._drawn.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._drawn is not None:
            self._drawn.stop()
            self._drawn = None

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Takes the numbers of a step; those of an exam are not shown. A step is shown when its
        times are known, which come last."""
        for name, value in values.items():
            kind, _, rest = name.partition("/")
            if kind == "policy":
                whose = next((one for one in self.policies if rest.startswith(f"{one}/")), None)
                if whose is not None:
                    self._policy[whose][rest.removeprefix(f"{whose}/")] = value
            elif kind in ("train", "time"):
                (self._train if kind == "train" else self._time)[rest] = value
        if "time/step_s" in values:
            self.step = step
            self._seconds.append(values["time/step_s"])
            self._say()

    def close(self) -> None:
        """Nothing is left to do; the table goes with the `with`."""

    # -- the plain line ---------------------------------------------------------------------------

    def _say(self) -> None:
        now = time.monotonic()
        # whatever the clock says, the first step and the last one get their line
        due = (
            self._last_line is None
            or now - self._last_line >= LINE_EVERY_S
            or self.step == self.steps
        )
        if not self._quiet and self._drawn is None and due:
            self._last_line = now
            progress_line(self.line())

    def line(self) -> str:
        """How it goes, in words: the step, returns, success, and what is left."""
        parts = [f"step {self.step} of {self.steps}"]
        returns = _under(self._train, "return")
        if returns:
            listed = [f"{one_line(agent, 24)} {decimal(value)}" for agent, value in returns.items()]
            parts.append(f"return {', '.join(few(listed))}")
        if "success" in self._train:
            parts.append(f"success {decimal(self._train['success'])}")
        if failed := self._train.get("failed"):
            parts.append(f"{failed:.0f} failed")
        return ", ".join([*parts, *self._pace()])

    def _pace(self) -> list[str]:
        if not self._seconds:
            return []
        mean = sum(self._seconds) / len(self._seconds)
        left = max(0, self.steps - self.step)
        return [f"{mean:.2g} s a step", *([f"about {clock(mean * left)} left"] if left else [])]

    # -- the table --------------------------------------------------------------------------------

    def drawing(self) -> Any:
        """The table with the lines below it."""
        from rich import box, console, text
        from rich.table import Table

        table = Table(
            title=f"step {self.step} of {self.steps}",
            title_justify="left",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        for name in ("policy", "return", "success", *COLUMNS):
            words = name in ("policy", "return")
            table.add_column(
                name, justify="left" if words else "right", no_wrap=not words, overflow="fold"
            )
        for name in self.policies:
            # as Text: rich would read [brackets] of a name as markup
            table.add_row(*(text.Text(cell) for cell in self.cells(name)))
        return console.Group(table, *(text.Text(line) for line in self.below()))

    def cells(self, name: str) -> list[str]:
        """One row of the table: the numbers of a policy; where it plays several agents, each on
        a line of its own."""
        numbers_of = self._policy[name]
        paid = _under(numbers_of, "return")
        returns = [
            f"{one_line(agent, 16)} " * (len(paid) > 1) + decimal(value, plus=True)
            for agent, value in paid.items()
        ]
        success = few([decimal(value) for value in _under(numbers_of, "success").values()])
        numbers = [numbers_of.get(key) for key in COLUMNS.values()]
        told = ["-" if value is None else _short(value) for value in numbers]
        return [
            one_line(name, 20),
            "\n".join(few(returns)) or "-",
            "\n".join(success) or "-",
            *told,
        ]

    def below(self) -> list[str]:
        """Seconds by phase, tokens a second, failures, and how long it may still take."""
        seconds = [
            f"{phase} {self._time[f'{phase}_s']:.2g} s"
            for phase in PHASES
            if f"{phase}_s" in self._time
        ]
        rates = [
            f"{_short(self._time[key])} tokens/s {word}"
            for key, word in (("play_tokens_per_s", "sampled"), ("update_tokens_per_s", "trained"))
            if key in self._time
        ]
        failed = [f"{self._train['failed']:.0f} failed"] if self._train.get("failed") else []
        lines = [", ".join(seconds), ", ".join([*rates, *failed, *self._pace()])]
        # no step has ended yet, and these two come before the first
        return [line for line in lines if line] or ["warm start and first evaluation"]


def few(listed: list[str]) -> list[str]:
    """What is said of the first agents, and how many others there are."""
    left = len(listed) - MOST_RETURNS
    return listed if left <= 0 else [*listed[:MOST_RETURNS], f"and {left} more"]


def _under(values: Mapping[str, float], key: str) -> dict[str, float]:
    return {
        name.removeprefix(f"{key}/"): value
        for name, value in values.items()
        if name.startswith(f"{key}/")
    }


def _short(value: float) -> str:
    """Three digits, in at most seven letters: 12.3k, 0.046, 3e-05."""
    if abs(value) >= 1000:
        return f"{value / 1000:.3g}k"
    if abs(value) >= 1:
        return f"{value:.3g}"
    # three decimals would show a small learning rate or KL as 0
    if 0 < abs(value) < 0.001:
        return f"{value:.0e}"
    return f"{value:.3f}".rstrip("0").rstrip(".")
