"""Writes the pages that are made from the code: docs/reference/config.md out of the settings,
docs/reference/summary.md out of the columns, docs/reference/api.md out of the public names, and
docs/paper.md with its pictures out of the records of runs in docs/paper. With `--check` it says
what is out of date.

    python .ci/pages.py [--check]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the code of this checkout, whatever is installed

import gem_ma  # noqa: E402
from gem_ma.config.figures import load_figure, shipped_figures  # noqa: E402
from gem_ma.config.settings import Config, StudySections  # noqa: E402
from gem_ma.engines.api import openai  # noqa: E402
from gem_ma.pages.static.paper import drawn, paper_markdown  # noqa: E402
from gem_ma.registry import load  # noqa: E402
from gem_ma.runs.figures import read_records  # noqa: E402
from gem_ma.scores.columns import COLUMNS  # noqa: E402

DOCS = ROOT / "docs"
MADE = "Made by `python .ci/pages.py` from the code; edit the descriptions there.\n"
SHORT = {NoneType: "null", bool: "true or false", int: "whole number", float: "number", str: "text"}


def kind(annotation: Any) -> str:
    """What may be written, in words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(kind(part) for part in inner))
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (list, tuple):
        parts = [kind(part) for part in inner if part is not Ellipsis]
        return f"list of {' or '.join(dict.fromkeys(parts))}" if parts else "list"
    if origin is dict:
        return f"name: {kind(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return SHORT.get(annotation, "any value" if annotation is Any else _named(annotation))


def _named(annotation: Any) -> str:
    # Annotated[...] and the like: the first argument is the type, the rest are bounds
    inner = get_args(annotation)
    return kind(inner[0]) if inner else getattr(annotation, "__name__", "value").lower()


def sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from sections(part)


def default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    if field.is_required():
        return "must be there"
    if isinstance(value, BaseModel) or value in ({}, [], (), "", None):
        return ""
    return f"`{value}`".replace("True", "true").replace("False", "false")


def bounds(field: FieldInfo) -> str:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    told = [
        f"{sign} {getattr(limit, name)}"
        for limit in field.metadata
        for name, sign in signs.items()
        if getattr(limit, name, None) is not None
    ]
    return f" ({', '.join(told)})" if told else ""


def anchor(path: str) -> str:
    """The link to a heading, as GitHub and MkDocs make it."""
    return path.lower().replace(".", "")


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def table(path: str, model: type[BaseModel], seen: dict[type, str]) -> Iterator[str]:
    """The table of one section, then those of the sections in it. What stood before under another
    path (`seen`) is named, in place of a second table."""
    if path:
        yield f"\n## `{path}`\n"
    if model in seen:
        yield f"As [`{seen[model]}`](#{anchor(seen[model])})."
        return
    seen[model] = path
    text = re.split(r"\n\s*\n", (model.__doc__ or "").strip())[0]
    yield f"{cell(text)}\n"
    yield "| key | what may stand there | default | what it does |"
    yield "|---|---|---|---|"
    inner: list[tuple[str, type[BaseModel]]] = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        what = f"{kind(field.annotation)}{bounds(field)}"
        row = (f"`{key}`", what, default(field), field.description or "")
        yield f"| {' | '.join(map(cell, row))} |"
        place = f"{path}.{key}" if path else key
        named = get_origin(field.annotation) is dict
        inner += [
            (f"{place}.NAME" if named else place, part) for part in sections(field.annotation)
        ]
    for place, part in inner:
        yield from table(place, part, seen)


def engine_options(engine: str) -> Iterator[str]:
    """The options that an engine's constructor takes of a config."""
    yield f"\n## `policies.NAME` of `{engine}/`\n"
    yield "Options of the engine; [endpoints](../endpoints.md) says what they do.\n"
    yield "| key | what may stand there | default |"
    yield "|---|---|---|"
    constructor = load("engines", engine).__init__
    kinds = constructor.__annotations__
    for name, parameter in list(signature(constructor).parameters.items())[2:]:
        if name in ("policy", "budget", "offline"):  # the driver brings them
            continue
        value = kinds[name]
        annotation = eval(value, vars(openai)) if isinstance(value, str) else value
        given = "" if parameter.default is None else f"`{parameter.default}`".lower()
        yield f"| `{name}` | {cell(kind(annotation))} | {given} |"


def config() -> str:
    head = (
        "# Every key of a config\n\n"
        f"{MADE}\nA key is written as in YAML, or as an override on the command line:"
        " `gem-ma run CONFIG run.seed=3`. Unknown keys are refused with the nearest name."
        " `scenario` and `policies.NAME` also take the options of the scenario's and of the"
        " engine's constructor: `gem-ma show scenario retail` lists those of retail.\n\n"
    )
    endpoint = "\n" + "\n".join(engine_options("openai"))
    study = "\n\n# Every key of a study\n\nBeside those of a config.\n\n"
    own = table("", StudySections, {})
    return head + "\n".join(table("", Config, {})) + endpoint + study + "\n".join(own) + "\n"


def summary() -> str:
    head = (
        "# The columns of a summary\n\n"
        f"{MADE}\nWhat `summary.json` counts beside its scores, and what `gem-ma run` and a report"
        " print of it. [Scores](../studies.md#a-score) are made otherwise.\n\n"
        "| key | printed as | for each | where | what it is |\n|---|---|---|---|---|\n"
    )
    both = "terminal, page"
    places = {"row": both, "table": both, "score": both, "page": "page", "json": ""}
    rows = [
        (
            f"`{one.key}`",
            one.name if one.shown != "json" else "",
            one.of,
            places[one.shown],
            one.tells,
        )
        for one in COLUMNS
    ]
    return head + "".join(f"| {' | '.join(map(cell, row))} |\n" for row in rows)


def api() -> str:
    places: dict[str, list[str]] = {}
    for name, module in gem_ma._PUBLIC.items():
        places.setdefault(module, []).append(name)
    lines = ["# The names of `import gem_ma`\n", MADE.rstrip()]
    for module, names in places.items():
        for name in names:
            home = getattr(getattr(gem_ma, name), "__module__", module)
            # an alias of a type of Python's tells that type's module
            lines += [f"\n::: {home if home.startswith('gem_ma') else module}.{name}"]
            lines += ["    options: {heading_level: 2, show_root_full_path: false}"]
    return "\n".join(lines) + "\n"


PAPER = """# The paper's experiments

`gem-ma paper` repeats in small what the GEM paper (arXiv 2510.01051) shows: what learns in which
environment, which algorithm is better, what a discount and a tool do. A figure is a file of
`configs/paper/`, each of its cells an ordinary training with a run folder of its own. Every curve
and number below is read from `docs/paper/*.jsonl`, one line a training, out of its run folder;
`gem-ma paper --records docs/paper` makes tables and page of them anew, and trains nothing. A row
without a training stands there as not yet run.

The paper's Figure 1 is a picture, and its 24 names stand in no text: these 24 are ours. They are of
the same kinds, small enough for a processor; `--scale gpu` names the paper's models, batch and
lengths for the same rows. No number here is from a GPU.

A row of (a) rises where the 95 % interval after training lies above the one before it, on every
seed. Exams ask seeds that are never trained on. *trivial* and *solver* play the same tasks, or are
known exactly.
"""


def paper() -> dict[str, str]:
    """docs/paper.md and its pictures: file below docs -> text."""
    made = []
    for name, path in shipped_figures().items():
        figure = load_figure(path)
        made.append(drawn(figure, read_records(DOCS / "paper" / f"{name}.jsonl")))
    pictures = {f"pictures/paper_{one.figure.name}.svg": one.chart for one in made if one.chart}
    page = f"{PAPER}\nMade by `python .ci/pages.py`.\n\n{paper_markdown(made, 'pictures')}"
    return {"paper.md": page, **pictures}


def main(check: bool) -> int:
    stale = []
    made = {"config.md": config(), "summary.md": summary(), "api.md": api()}
    files = {f"reference/{name}": text for name, text in made.items()}
    for name, text in {**files, **paper()}.items():
        page = DOCS / name
        if page.is_file() and page.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
    how = "is old; type: python .ci/pages.py" if check else "is written"
    print("\n".join(f"docs/{name} {how}" for name in stale))
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
