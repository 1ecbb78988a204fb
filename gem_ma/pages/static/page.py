"""One HTML file that needs nothing else: templates, escaping, tables, content security policy. It
knows text and rows, nothing of episodes.

Whatever came from a model, a config or a file name enters the page through a template, which
escapes it, through `text`, or through the JSON island, which the script reads and shows with
`textContent` only. The policy allows exactly the one script and the one style sheet, by digest, and
no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

_ASSETS = Path(__file__).parent / "assets"
_TEMPLATES = Path(__file__).parents[1] / "templates"
# one script of the page, in this order
SCRIPTS = ("tables.js", "texts.js", "episode.js", "list.js")
# of a page that is served; before the last one above, which begins what it finds
SERVED = (
    "png.js",
    *SCRIPTS[:-1],
    "tokens.js",
    "live.js",
    "calls.js",
    "fork.js",
    "note.js",
    SCRIPTS[-1],
)
# of a page on which somebody plays
PLAYED = ("texts.js", "episode.js", "live.js", "play.js")
# a served page may send its forms to its own server, without a script, and ask it for episodes
NO_FORM = "'none'"
LIVE = "'self'; connect-src 'self'"
# without scripts a form names its origin only where the page may name itself, to its own server
SERVED_REFERRER = "same-origin"
# HTML has neither NUL nor half surrogates; the others hide what stands behind them
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """Text that is markup already; everything else is escaped."""

    def __html__(self) -> str:
        return self


def printable(words: str) -> str:
    """Control characters, and bytes of a file name that are not letters, replaced by U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", words)


def text(value: object) -> Html:
    """Escaped text, as `printable` has it."""
    return value if isinstance(value, Html) else Html(escape(printable(str(value)), quote=True))


def warning(words: object) -> Html:
    """One line that says what is missing here and what to do."""
    return Html(f'<p class="warn">{text(words)}</p>')


def island(data: Any) -> str:
    """JSON for a `<script type="application/json">`: no character in it can end the script or
    start a comment."""
    # ASCII, since U+2028 once ended a line of script; no NaN, which JSON.parse refuses
    raw = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return raw.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def templates() -> Any:
    """Those of all pages, each compiled when it is first used."""
    # late: only who writes a page pays for it
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if hasattr(value, "__html__") else printable(str(value)),
    )


def render(template: str, **fields: Any) -> Html:
    """The template of this name with its fields, each escaped unless it is `Html`."""
    return Html(templates().get_template(f"{template}.html").render(fields))


def table(
    columns: Sequence[object],
    rows: Sequence[Sequence[object]],
    *,
    caption: str = "",
    numbers: bool = False,
) -> Html:
    """A `<table>` whose first column heads its rows. Where it is too wide it scrolls by itself,
    by keys too; the page sorts it by a column."""
    return render("table", columns=columns, rows=rows, caption=caption, numbers=numbers)


def scrolled(inside: str, name: str) -> Html:
    """What may be wider than the page, in a box that scrolls and shows that it does."""
    return Html(f'<div class="scroll" role="region" aria-label="{text(name[:120])}">{inside}</div>')


def page(
    title: str, body: Html, data: Any, *, live: bool = False, scripts: Sequence[str] = ()
) -> str:
    """The whole file. `live`: it is served, and may ask its own server for episodes; `scripts`
    replaces those of such a page."""
    style = (_ASSETS / "page.css").read_text("utf-8")
    wanted = scripts or (SERVED if live else SCRIPTS)
    sources = "".join((_ASSETS / name).read_text("utf-8") for name in wanted)
    # the exact bytes count: the policy below allows what has this digest, and nothing else
    script = f'"use strict";\n(() => {{\n{sources}}})();\n'
    policy = (
        f"default-src 'none'; script-src '{_source(script)}'; style-src '{_source(style)}';"
        f" img-src data:; base-uri 'none'; form-action {LIVE if live else NO_FORM}"
    )
    return render(
        "page",
        title=title,
        body=body,
        data=Html(island(data)),
        policy=Html(policy),
        referrer=SERVED_REFERRER if live else "no-referrer",
        style=Html(style),
        script=Html(script),
    )


def _source(inline: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
