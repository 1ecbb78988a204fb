"""Requests and answers of the viewer, and the addresses that lead from one page to another."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from gem_ma.kernel.errors import StoreError
from gem_ma.pages.static.page import Html, island, page, printable, render, text, warning


class Answer(NamedTuple):
    """What a request is answered with; `kind` is its media type, `to` the address that a browser
    loads instead."""

    status: int
    kind: str
    body: bytes
    to: str = ""


class Asked(NamedTuple):
    """What a page is asked for: its path below its own name, the fields of the address, and the
    runs and columns that it names, in their order."""

    rest: list[str]
    query: Mapping[str, str]
    runs: list[str]
    columns: Sequence[str] = ()


def html(text_: str) -> Answer:
    return Answer(200, "text/html; charset=utf-8", text_.encode())


def json(value: Any) -> Answer:
    # as an island: nothing in it could be read as markup, whatever a browser takes it for
    return Answer(200, "application/json", island(value).encode())


def moved(to: str) -> Answer:
    """The browser loads this address; loading it again sends no form again."""
    return Answer(303, "text/plain; charset=utf-8", b"", to)


def missing(what: str) -> Answer:
    return Answer(404, "text/plain; charset=utf-8", f"{what}\n".encode())


def served(title: str, body: Html, links: Mapping[str, str] | None = None) -> Answer:
    """A page without episodes: its name, links to others (name -> address), sections."""
    whole = render("served", title=title, links=links or {}, body=body)
    return html(page(title, whole, {"runs": []}, live=True))


def refused(title: str, why: object) -> Answer:
    """Such a page with one line that says what is missing and what to do."""
    return served(title, Html(f"<section>{warning(why)}</section>"))


def section(heading: str, *parts: Html) -> Html:
    return Html(f"<section><h2>{text(heading)}</h2>{''.join(parts)}</section>")


def run_address(path: str) -> str:
    """Where the page of a run stands, by its path below the folder that is viewed."""
    # a name of undecodable bytes has an address, though nothing stands there
    return "/run/" + quote(path, errors="replace")


def episode_address(path: str, task: str, seed: int) -> str:
    """Where the page shows an episode: the first repeat of a task with this seed."""
    # the page of a run names it by its folder
    name = path.rpartition("/")[2]
    key = f"{task}~{seed}"
    run, episode = (quote(one, safe="", errors="replace") for one in (name, key))
    return f"{run_address(path)}#/r/{run}/e/{episode}"


def page_address(page_: str, runs: Sequence[str], **fields: str) -> str:
    """The address of a page of several runs."""
    pairs = [*(("run", run) for run in runs), *fields.items()]
    return f"/{page_}?{urlencode(pairs, errors='replace')}"


def meant(asked: str, names: Collection[str]) -> str:
    """Which of the names of a folder an address or a form means; "" where none is meant. A name
    of odd bytes or control characters arrives without them. Raises StoreError where several would
    arrive alike."""
    if asked in names:
        return asked
    alike = [
        name
        for name in names
        if asked in (printable(name), name.encode("utf-8", "replace").decode())
    ]
    if len(alike) > 1:
        raise StoreError(f"{asked}: {len(alike)} folders look like this; rename one of them")
    return alike[0] if alike else ""


def whole_number(typed: str) -> int:
    """A count in an address; 0 for anything else."""
    return int(typed) if typed.isascii() and typed.isdecimal() and len(typed) < 10 else 0


def link(words: object, to: str) -> Html:
    return Html(f'<a href="{text(to)}">{text(words)}</a>')
