"""Numbers that a page states about the code are those of the code: counts, limits, defaults.

A row names the page, the words around the number (`{}` stands for it) and where it comes from. A
number that is measured stands beside its command instead (`tests/house/test_docs.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from pathlib import Path

import pytest
from gem_ma.agents.customer_traits import PRESETS, Traits
from gem_ma.scenarios.retail.knobs import Knobs
from pydantic import BaseModel

from benchmarks import faults
from gem_ma.cli import baselines
from gem_ma.config.learning import LossSettings
from gem_ma.config.playing import RunSettings, ToolOptions
from gem_ma.driver import calling
from gem_ma.engines.api import endpoint, hiding, remote
from gem_ma.engines.local import tool_grammar
from gem_ma.engines.local.transformers import Transformers
from gem_ma.engines.vllm import probing, replica
from gem_ma.kernel import types
from gem_ma.kernel.parsing import calls
from gem_ma.pages.live import compared, overlays, plays
from gem_ma.pages.static import chosen, report, svg
from gem_ma.scores import lost
from gem_ma.serving import desk, door, routes
from gem_ma.testing.check import RULES
from gem_ma.tools import sandbox, sessions, walls
from gem_ma.training.learner import parity
from gem_ma.training.processes import chunks
from gem_ma.training.schedule import curriculum
from gem_ma.worlds import foreign, gem, gymnasium, pettingzoo, textarena, wordlists
from tests.talks.script import talks

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
WORDS = (
    "none",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


def rows_of(page: str, start: str) -> int:
    """The rows of a page's tables that begin so."""
    return len(re.findall(start, (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))


def lines_of(path: str) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


def default(settings: type[BaseModel], name: str) -> float:
    """What a key of a config is where nobody types it."""
    return float(settings.model_fields[name].default)


def elsewhere(dtype: str) -> float:
    """Nats that the mean over tokens of a server may be off at least."""
    return parity.ELSEWHERE * parity.FLOOR_ELSEWHERE * parity.FLOOR[dtype]


NUMBERS: list[tuple[str, str, Callable[[], float]]] = [
    (
        "README.md",
        "[{} questions with one command each]",
        lambda: rows_of("docs/how_to.md", r"^\| .*\? \|"),
    ),
    (
        "docs/index.md",
        "(how_to.md): {} questions",
        lambda: rows_of("docs/how_to.md", r"^\| .*\? \|"),
    ),
    ("README.md", "# {} rules: determinism", lambda: len(RULES)),
    ("docs/evidence.md", "every scenario keeps {} rules", lambda: len(RULES)),
    ("docs/tutorials/scenario.md", "tries {} rules", lambda: len(RULES)),
    (
        "docs/tutorials/scenario.md",
        "study it. {} commands",
        lambda: rows_of("docs/tutorials/scenario.md", r"^gem-ma "),
    ),
    (
        "docs/tutorials/run.md",
        "{} commands, offline",
        lambda: rows_of("docs/tutorials/run.md", r"^gem-ma .*\bruns/"),
    ),
    ("docs/tutorials/run.md", "A customer has {} traits", lambda: len(fields(Traits))),
    (
        "docs/evidence.md",
        "a server with {} kinds of faults",
        lambda: len({*faults.CLASSES, "hang"} - {*faults.HARMLESS}),
    ),
    ("docs/retail.md", "and {} more turn the generated tasks", lambda: len(fields(Knobs)) - 2),
    ("docs/retail.md", "**{} talks in natural English**", lambda: len(talks())),
    ("docs/retail.md", "**{} held-out talks**", lambda: len(talks("fresh"))),
    ("docs/retail.md", "Then {} more were written", lambda: len(talks("later"))),
    (
        "docs/worlds.md",
        "## Our own {} games",
        lambda: rows_of("docs/worlds.md", r"^\| `\w+` hard \| \d\.\d+ \["),
    ),
    ("docs/worlds.md", "`en-basic` are our {} common words", lambda: len(wordlists.common())),
    ("docs/worlds.md", "Of more than {} (`listed: N`)", lambda: foreign.LISTED),
    ("docs/worlds.md", "its time limit, or {} turns", lambda: gymnasium.TURNS),
    ("docs/worlds.md", "in words for eight of the nine | {} turns", lambda: pettingzoo.TURNS),
    ("docs/worlds.md", "[brackets] itself | {} turns", lambda: textarena.TURNS),
    ("docs/worlds.md", "its own number of turns, else {}", lambda: gem.TURNS),
    ("docs/limits.md", "`run.max_said`, {} characters", lambda: types.MAX_SAID),
    ("docs/limits.md", "{} in a process", lambda: calling.MAX_HUNG),
    ("docs/serve.md", "for `--patience` seconds ({})", lambda: desk.PATIENCE_S),
    ("docs/serve.md", "waits up to {} seconds", lambda: routes.WAIT_S),
    ("docs/serve.md", "bodies over {} MB", lambda: door.MOST_BYTES / MIB),
    ("docs/tools.md", "At most {} sessions have a process", lambda: sessions.MOST_LIVE),
    (
        "docs/tools.md",
        "at most {}; the supervisor is its first process",
        lambda: walls.Wall().processes,
    ),
    ("docs/tools.md", "| memory | {} MiB a process", lambda: walls.Wall().memory / MIB),
    ("docs/tools.md", "an empty `/tmp` of {} MiB", lambda: walls.Wall().file / MIB),
    ("docs/tools.md", "kept, {} characters", lambda: sandbox.OUTPUT),
    ("docs/tools.md", "{} variables of ours", lambda: len(walls.ENVIRONMENT)),
    ("docs/watching.md", "All lost and failed ones ({} at most)", lambda: chosen.MOST),
    ("docs/watching.md", "from the first to the\nlast, {} in all", lambda: chosen.EPISODES),
    ("docs/watching.md", "at least {} others", lambda: chosen.REST),
    ("docs/watching.md", "A page holds {} MB of transcripts", lambda: report.MAX_BYTES / 1e6),
    ("docs/watching.md", "({} at most, `count` counts all)", lambda: lost.MOST),
    ("docs/watching.md", "Of the next ones, up to {}", lambda: lost.OTHERS),
    (
        "docs/watching.md",
        "after {} minutes, or when the server ends",
        lambda: plays.PATIENCE_S / 60,
    ),
    ("docs/watching.md", "how many at once? | {} |", lambda: plays.MOST_OPEN),
    ("docs/watching.md", "Of more than two runs ({} at most)", lambda: compared.MOST_RUNS),
    ("docs/watching.md", "A run of more than {} plays is compared", lambda: compared.SMALL),
    ("docs/watching.md", "One number of up to {} trainings", lambda: overlays.MOST_RUNS),
    ("docs/watching.md", "A chart has {} lines", lambda: svg.CLASSES),
    ("docs/chat_templates.md", "`too_many` ({} a turn)", lambda: tool_grammar.MAX_CALLS),
    ("docs/chat_templates.md", "at most {} of them (39 MB)", lambda: tool_grammar.KEPT_SETS),
    ("docs/chat_templates.md", "`too_large` ({} kB)", lambda: calls.MAX_TEXT / 1024),
    ("docs/endpoints.md", "more than {} MB (2 MB", lambda: endpoint.MOST_BYTES / MIB),
    ("docs/endpoints.md", "A body above {} KB is read in a thread", lambda: remote.LONG / 1024),
    ("docs/endpoints.md", "A key of less than {} characters", lambda: hiding.LEAST),
    ("docs/endpoints.md", "from\n{} characters on", lambda: hiding.PART),
    ("docs/studies.md", "against {}\nscripted customers", lambda: len(PRESETS)),
    ("docs/studies.md", "most {} of them (`run.baselines", lambda: baselines.MOST_TASKS),
    (
        "docs/limits.md",
        "`run.call_timeout_s`, {} s",
        lambda: default(RunSettings, "call_timeout_s"),
    ),
    ("docs/tools.md", "`uses` ({})", lambda: default(ToolOptions, "uses")),
    (
        "docs/models.md",
        "padding included | {} |",
        lambda: signature(Transformers).parameters["padded_tokens"].default,
    ),
    ("docs/training.md", "counts {} of itself", lambda: curriculum.DECAY),
    ("docs/training.md", "`train.loss.pair_beta` ({})", lambda: default(LossSettings, "pair_beta")),
    ("docs/training.md", "`train.chunk` ({} where it is absent)", lambda: chunks.SIZE),
    ("docs/vllm.md", "fixed\nprompts of {} ids", lambda: probing.PROBE_IDS),
    ("docs/vllm.md", "tried every {} seconds", lambda: replica.PAUSE_S),
    ("docs/vllm.md", "that is {} nats in float32", lambda: elsewhere("float32")),
    ("docs/vllm.md", "{} in bfloat16, 0.0036", lambda: elsewhere("bfloat16")),
    ("docs/vllm.md", "0.024 in bfloat16, {} in float16", lambda: elsewhere("float16")),
]


def number(text: str) -> float:
    """What a page writes: 32,768, 512, nine."""
    word = text.lower()
    return WORDS.index(word) if word in WORDS else float(text.replace(",", ""))


@pytest.mark.parametrize(
    ("page", "words", "truth"), NUMBERS, ids=[f"{page}: {words}" for page, words, _ in NUMBERS]
)
def test_a_number_of_a_page_is_that_of_the_code(
    page: str, words: str, truth: Callable[[], float]
) -> None:
    before, after = map(re.escape, words.split("{}"))
    stated = re.findall(rf"{before}([\w,.-]*\w){after}", (ROOT / page).read_text(encoding="utf-8"))
    assert [number(text) for text in stated] == pytest.approx([truth()])
