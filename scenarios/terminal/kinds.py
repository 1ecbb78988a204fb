"""Our own tasks, dealt anew for each place of each split: names and numbers are drawn. Kinds take
turns. Each kind is a function of a random generator that gives a draft."""

from __future__ import annotations

import random

from gem_ma.scenarios.terminal.items import Chore, file_of
from gem_ma.scenarios.terminal.kinds_files import FILES
from gem_ma.scenarios.terminal.kinds_scripts import SCRIPTS
from gem_ma.scenarios.terminal.kinds_texts import TEXTS

KINDS = {kind.__name__: kind for kind in (*TEXTS, *FILES, *SCRIPTS)}


def deal(split: str, index: int) -> Chore:
    """The task of a place."""
    name = [*KINDS][index % len(KINDS)]
    draft = KINDS[name](random.Random(f"terminal/{split}/{index}"))
    files = {path: file_of(content) for path, content in draft.files.items()}
    solution = tuple(draft.solution.split("\n"))
    check = " && ".join(f"{{ {part}; }}" for part in draft.checks)
    return Chore(f"{name} {split} {index}", draft.words, files, check, draft.run, solution)
