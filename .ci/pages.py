"""Writes the pages that are made from the code: docs/reference/config.md out of the settings,
docs/reference/summary.md out of the columns, docs/reference/api.md out of the public names, and
docs/paper.md with its pictures out of the records of runs in docs/paper, and docs/bench.md out of
the battery and the scorecards in docs/bench. With `--check` it says what is out of date.

    python .ci/pages.py [--check]
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import EnumType
from inspect import (
    Parameter,
    Signature,
    cleandoc,
    getsource,
    iscoroutinefunction,
    isfunction,
    signature,
)
from pathlib import Path
from textwrap import dedent
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the code of this checkout, whatever is installed

import gem_ma  # noqa: E402
from gem_ma.config.battery import load_battery, shipped_battery  # noqa: E402
from gem_ma.config.figures import load_figure, shipped_figures  # noqa: E402
from gem_ma.config.settings import Config, StudySections  # noqa: E402
from gem_ma.engines.api import openai  # noqa: E402
from gem_ma.kernel.parsing.text import first_sentence  # noqa: E402
from gem_ma.pages.static.bench import bench_markdown  # noqa: E402
from gem_ma.pages.static.paper import drawn, paper_markdown  # noqa: E402
from gem_ma.registry import load  # noqa: E402
from gem_ma.runs.bench import read_card  # noqa: E402
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
    """The public names: a table of them, then each with its signature and its docstring."""
    public = {name: getattr(gem_ma, name) for name in gem_ma._PUBLIC}
    heads = {name: heading(name, item) for name, item in public.items()}
    rows = [
        f"| [`{name}`](#{slug(heads[name])}) | {cell(prose(first_sentence(doc_of(item))))} |"
        for name, item in public.items()
    ]
    lines = ["# The names of `import gem_ma`\n", MADE, "| name | what it is |\n|---|---|", *rows]
    for name, item in public.items():
        home = getattr(item, "__module__", "")
        # an alias of a type of Python's tells that type's module
        home = home if home.startswith("gem_ma") else gem_ma._PUBLIC[name]
        lines += [f"\n## {heads[name]}\n", *documented(name, item, f"In `{home}`.")]
        if isinstance(item, type):
            for member, inner in members(item):
                place = f"{name}.{member}"
                lines += [f"\n### {heading(place, inner)}\n", *documented(place, inner)]
    return "\n".join(lines) + "\n"


def heading(name: str, item: Any) -> str:
    """Headings that differ in more than case, as `Play` and `play`: links are in small letters."""
    if isinstance(item, type):
        return f"class `{name}`"
    if callable_of(item) is not None:
        return f"`{name}()`"
    return f"`{name}`" if isinstance(item, property) else f"type `{name}`"


def slug(text: str) -> str:
    """The link to a heading, as GitHub and MkDocs make it."""
    return re.sub(r"[^\w\s-]", "", text).strip().lower().replace(" ", "-")


def documented(name: str, item: Any, note: str = "") -> Iterator[str]:
    """Signature, docstring, and of a class its attributes."""
    if (shown := signed(name, item)) is not None:
        yield f"```py\n{shown}\n```\n"  # not python: tests run blocks of that name
    if isinstance(item, type) and (
        bases := [b.__name__ for b in item.__bases__ if b is not object]
    ):
        note += f" A subclass of {', '.join(f'`{base}`' for base in bases)}."
    if note:
        yield f"{note}\n"
    yield prose(doc_of(item))
    if isinstance(item, EnumType):
        yield "\n| member | what it says |\n|---|---|"
        yield from (f"| `{one.name}` | {cell(prose(one.__doc__ or ''))} |" for one in item)
    elif isinstance(item, type) and (facts := [*attributes(item)]):
        yield "\n| attribute | default | what it is |\n|---|---|---|"
        yield from (f"| {' | '.join(map(cell, row))} |" for row in facts)


def callable_of(item: Any) -> Any:
    """The function behind a member of a class; None for what is none."""
    inner = getattr(item, "__func__", item)  # of class methods and static ones
    return inner if isfunction(inner) else None


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """Its own public methods and properties with a docstring, in the order of the source."""
    for name, item in vars(owner).items():
        shown = isinstance(item, property) or callable_of(item) is not None
        if shown and not name.startswith("_") and doc_of(item):
            yield name, item


def doc_of(item: Any) -> str:
    inner = callable_of(item) or item
    known = isinstance(inner, (type, property)) or isfunction(inner)
    return cleandoc(inner.__doc__ or "") if known else ALIASES


ALIASES = "A type for annotations."


def signed(name: str, item: Any) -> str | None:
    """How it is called, with the annotations of the source; None for what only Python calls."""
    if isinstance(item, property):
        return f"{name}{_returned(signature(item.fget))}" if item.fget else None
    called = item if isinstance(item, type) else callable_of(item)
    if called is None:  # of a type of Python's
        return f"{name} = {item}".replace("gem_ma.kernel.effects.", "")
    try:
        found = signature(called)
    except ValueError:  # an exception, whose constructor is Python's
        return None
    if isinstance(item, EnumType):
        return None
    # a method is called without its first argument
    unbound = "." in name and not isinstance(item, staticmethod)
    words = [*_parameters([*found.parameters.values()][unbound:])]
    result = "" if isinstance(item, type) else _returned(found)
    begin = f"{'async ' * iscoroutinefunction(called)}{name}("
    line = f"{begin}{', '.join(words)}){result}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([begin, *(f"    {word}," for word in words), f"){result}"])


WIDTH = 92  # of a signature on one line


def _parameters(parameters: list[Parameter]) -> Iterator[str]:
    before = None
    for one in parameters:
        if before is Parameter.POSITIONAL_ONLY and one.kind is not before:
            yield "/"
        named = one.kind is Parameter.KEYWORD_ONLY
        if named and before not in (Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL):
            yield "*"
        before = one.kind
        stars = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}.get(one.kind, "")
        typed = "" if one.annotation is Parameter.empty else f": {_annotation(one.annotation)}"
        yield f"{stars}{one.name}{typed}{_default(one.default, ' = ' if typed else '=')}"


def _default(value: Any, sign: str) -> str:
    if value is Parameter.empty:
        return ""
    text = repr(value)
    # addresses and whole objects say nothing
    is_plain = isinstance(value, (str, int, float, tuple, bytes, range, NoneType))
    return f"{sign}{text if is_plain and '<' not in text else '...'}"


def _returned(found: Signature) -> str:
    result = found.return_annotation
    return "" if result is Signature.empty else f" -> {_annotation(result)}"


def _annotation(value: Any) -> str:
    if value is None or isinstance(value, str):
        return str(value)
    return value.__name__ if isinstance(value, type) else str(value)


def attributes(owner: type) -> Iterator[tuple[str, str, str]]:
    """(`name: type`, default, comment) of what the body of a class says of itself; of a dataclass
    all of it stands in the signature."""
    if is_dataclass(owner) or "__init__" in vars(owner):
        return
    source = dedent(getsource(owner)).splitlines()
    body: Any = ast.parse("\n".join(source)).body[0]
    for node in body.body:
        if not isinstance(node, ast.AnnAssign) or node.value is None:
            continue
        behind = source[node.end_lineno - 1][node.end_col_offset :].strip()
        told = [behind] if behind else []
        line = node.lineno - 2
        while not behind and source[line].strip().startswith("# ") and "# --" not in source[line]:
            told.insert(0, source[line].strip())
            line -= 1
        text = prose(" ".join(part.removeprefix("# ") for part in told))
        name = f"`{ast.unparse(node.target)}: {ast.unparse(node.annotation)}`"
        yield name, f"`{ast.unparse(node.value)}`", text


def prose(text: str) -> str:
    """A docstring as Markdown: examples in fences, and `<` is no tag."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith(">>>") and not inside:
            lines.append("```pycon")
            inside = True
        elif inside and not line.strip():  # an example ends with an empty line, as doctest has it
            lines.append("```")
            inside = False
        lines.append(line)
    whole = "\n".join([*lines, "```"] if inside else lines)
    # code stays as it is
    return re.sub(r"(```.*?```|`[^`]*`)|<", lambda m: m[1] or "&lt;", whole, flags=re.DOTALL)


PAPER = """# The paper's experiments

`gem-ma paper` repeats in small what the GEM paper (arXiv 2510.01051) shows: what learns in which
environment, which algorithm is better, what a discount and a tool do. A figure is a file of
`configs/paper/`, each of its cells an ordinary training with a run folder of its own. Every curve
and number below is read from `docs/paper/*.jsonl`, one line a training, out of its run folder;
`gem-ma paper --records docs/paper` makes tables and page of them anew, and trains nothing. A row
without a training stands there as not yet run.

The paper's Figure 1 is a picture, and its 24 names stand in no text: these 24 are ours. They are of
the same kinds, small enough for a processor; `--scale gpu` names the paper's models, batch and
lengths for the same rows. No number here is from a GPU; seconds are those of a processor that had
other work beside it.

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


BENCH = """# A scorecard of a model

`gem-ma bench MODEL` plays a model in twelve short worlds, a skill each, and says how far it
stands between chance and a strong script. `gem-ma bench MODEL MODEL2` also pairs two models task
by task.

```bash
gem-ma bench random
gem-ma bench openai/gpt-4.1-mini --set max_tokens=300 --yes
gem-ma bench transformers/models/smollm2 --only negotiation
gem-ma bench runs/bench/random runs/bench/oracle
```

A model is `ENGINE/NAME`, a run folder (a training as it ended), a behaviour, `random` or
`oracle`; `random,network=oracle` takes another one in a row. Each row is an ordinary run folder
below `runs/bench/MODEL`, so the same command goes on where it stopped. What it costs is said
before; more than 1,000 model calls want `--yes`. `--set KEY=VALUE` is an option of the policy,
`--json` prints all numbers, and `runs/bench/report.html` is the page.

**Scores.** *chance* draws legal choices (`random_legal`), *oracle* is the strong script of the
row; both are played on the same tasks, chance three times. *exact* is known by the rules. *share*
is 0 at chance and 1 at the oracle. The intervals of a scorecard hold together at 95 %: each
leaves out .05 over the number of rows. *verdict* says what the difference from chance and from
the oracle holds. Differences of two models are paired, and hold together at 99 %; p is by sign
flips, and Holm's.

**How a model is asked.** In `retail` as its assistant (`tool_calling`), elsewhere by `choices`:
what the agent sees, and the choices behind each question. A trained run folder is asked without
them, as it was trained.

**Failed plays** are data: one that did not end by its rules, whosever fault it was, counts the
least that the row allows, and stands under *failed*. Where it was no agent's fault, as of a server
that was away, the same command plays it once more. A model that never spoke gets no score, and
exit code 1. An answer that cannot be read goes to the rules.

**What is compared.** A scorecard (`scorecard.jsonl`) names the digest of its battery: all rows
with their options, numbers of tasks, seed, and versions of the scenarios. Another digest is
refused, with exit code 2. So is another model whose folder has the same name (`openai/a:7b`,
`openai/a-7b`), and a model whose weights, or a player whose code, are others by now
than when a row of the scorecard was played, and a run folder whose weights are not those that it
ended with; `--out FOLDER` begins anew. Where the rules of a row are a file of your own, both models
must have played the same version of it. The seed
is used by no other config, and tasks are of the split `test`; nothing hinders somebody from
training on them. `--battery FILE` takes your own, `--seed N` other seeds.

**SmolLM2-135M** below is bound to legal answers: `gem-ma bench transformers/models/smollm2
--set max_tokens=16 --set dtype=auto --set constrain=legal --yes`, on a CPU, where the long talks of
`service` and `rules` take 20 and 43 CPU minutes. Nine rows were also played by the same model after
a training in both seats of the dilemma, where each was paid what both got: `gem-ma train
configs/smollm2_dilemma.yaml --out runs/dilemma`, `gem-ma export runs/dilemma --to model --merged -o
models/smollm2-dilemma`, and the command above of that model, with `--only` for each. It learned to
cooperate with itself. Against a player that never gives back it goes on giving: in `exploited` it
is paid less than before, and less than chance. In the other eight rows no difference is sure.

**What it does not say.** A row is one small world with scripted partners. A script is no person,
and the oracle no bound: *exact* is, where there is one. A model that plays the same deterministic
row alike each time has an interval of no width there.
"""


def bench() -> str:
    """docs/bench.md."""
    battery = load_battery(shipped_battery())
    cards = {}
    for file in sorted((DOCS / "bench").glob("*.jsonl")):
        cards[file.stem] = read_card(file)
        cards[file.stem].check(battery, file)
    trained = (cards["smollm2"], cards["smollm2_dilemma"])
    made = bench_markdown(battery, [*cards.values()], [trained])
    return f"{BENCH}\nMade by `python .ci/pages.py` of `docs/bench/*.jsonl`.\n\n{made}"


def main(check: bool) -> int:
    stale = []
    made = {"config.md": config(), "summary.md": summary(), "api.md": api()}
    files = {f"reference/{name}": text for name, text in made.items()}
    for name, text in {**files, **paper(), "bench.md": bench()}.items():
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
