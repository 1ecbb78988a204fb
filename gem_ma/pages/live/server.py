"""The viewer on a port of this machine. It answers only a browser that asked for this very address:
under another name a page elsewhere may have found the port (DNS rebinding).

A POST changes something, so it must come from a page of ours. It names its origin and the token of
the page, in a header, or in a field of a form, which browsers send without scripts.
"""

from __future__ import annotations

import socket
from secrets import compare_digest
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from gem_ma.kernel.errors import ConfigError, StoreError
from gem_ma.kernel.parsing.strict_json import load_json
from gem_ma.pages.live.answers import Answer
from gem_ma.pages.live.site import Site
from gem_ma.system import loopback
from gem_ma.system.loopback import LOOPBACK, has_our_origin, is_ours, names_of

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request

# a header of a POST of JSON; bytes of any body
TOKEN = "x-gem-ma-token"
MOST_SENT = 1 << 20
FORM = "application/x-www-form-urlencoded"
MOST_FIELDS = 1_000
STALE = "no request of this page; load it again"
# for answers that are not pages: a browser that shows one runs and loads nothing
NOTHING = "default-src 'none'; frame-ancestors 'none'; sandbox"
HEADERS = {
    "x-content-type-options": "nosniff",
    # `no-referrer` would have forms, too, name "null" as their origin
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    # of the page itself the policy stands in its head; a header alone can refuse frames
    "content-security-policy": "frame-ancestors 'none'",
}


def refusal(request: Request, port: int, token: str) -> str:
    """Why a request is not answered; "" where it is."""
    names = names_of(port)
    headers = request.headers
    from_us = has_our_origin(headers, names)
    if not is_ours(headers, names):
        return "another host or origin"
    if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return "a request of another site"
    if request.method != "POST":
        return ""
    if from_us and headers.get("content-type") == FORM:
        return ""  # its token is a field: `fields_of` looks at it
    known = headers.get(TOKEN, "")
    if from_us and _same(known, token) and headers.get("content-type") == "application/json":
        return ""
    return STALE


def fields_of(body: bytes, token: str) -> dict[str, str] | None:
    """The fields of a form of ours; None where it does not name the token. Raises ValueError for
    anything that is not a form."""
    fields = dict(
        parse_qsl(
            body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS
        )
    )
    return fields if _same(fields.pop("token", ""), token) else None


def _same(word: str, token: str) -> bool:
    # compared in bytes: a header may hold any letter
    return compare_digest(word.encode(), token.encode())


def changed(site: Site, path: str, body: bytes) -> Answer:
    """What a page with scripts wishes."""
    try:
        wish = load_json(body, bounded=True)
    except (StoreError, ValueError):
        return _words(400, "no JSON")
    return site.change(path, wish)


def submitted(site: Site, path: str, body: bytes) -> Answer:
    """What a form wishes."""
    try:
        fields = fields_of(body, site.token)
    except ValueError:
        return _words(400, "no form")
    return _words(403, STALE) if fields is None else site.submit(path, fields)


def _words(status: int, words: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", f"{words}\n".encode())


def app(site: Site, port: int) -> Starlette:
    """The application: every path is a question to `site`."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response
    from starlette.routing import Route

    def answered(made: Answer) -> Response:
        headers = {**HEADERS, "content-type": made.kind}
        if made.to:
            headers["location"] = made.to
        if not made.kind.startswith("text/html"):
            headers["content-security-policy"] = NOTHING
        return Response(made.body, made.status, headers=headers)

    # no coroutine: files are read in a thread, and a large one stops nobody else
    def answer(request: Request) -> Response:
        if refused := refusal(request, port, site.token):
            return answered(_words(403, refused))
        # as it was decoded: `url.path` quotes ? # and \ again, and a folder may be called so
        asked = request.query_params
        several = asked.getlist("run"), asked.getlist("column")
        return answered(site.answer(request.scope["path"], dict(asked), *several))

    async def change(request: Request) -> Response:
        if refused := refusal(request, port, site.token):
            return answered(_words(403, refused))
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_SENT:
                return answered(_words(413, "too much"))
        does = submitted if request.headers["content-type"] == FORM else changed
        # a fork plays: in a thread of its own, so that pages are answered meanwhile
        return answered(await run_in_threadpool(does, site, request.scope["path"], body))

    return Starlette(
        routes=[
            Route("/{path:path}", answer, methods=["GET"]),
            Route("/{path:path}", change, methods=["POST"]),
        ]
    )


def listen(port: int) -> socket.socket:
    """A socket on loopback; 0 takes a free port. Raises ConfigError where it is taken."""
    try:
        return loopback.listen(LOOPBACK, port)
    except OSError as error:
        raise ConfigError(f"--port {port}: {error.strerror}; leave it out for a free one") from None


def serve(site: Site, bound: socket.socket) -> None:
    """Answers until it is interrupted. Raises ConfigError where the extra is missing."""
    uvicorn = library()
    config = uvicorn.Config(
        app(site, bound.getsockname()[1]), log_level="error", access_log=False, lifespan="off"
    )
    try:
        uvicorn.Server(config).run(sockets=[bound])
    finally:
        site.close()


def library() -> Any:
    """uvicorn. Raises ConfigError where it or starlette is missing."""
    return loopback.library("the viewer", "view")
