"""What can go wrong at an HTTP endpoint, as classes: which are tried again, after how long, and
which end an episode or a run.

It knows status codes, headers and error bodies; it sends nothing. A class (`kind`) is what
`Attempt.kind` says in the record.

    rate_limited     429, 529, 503 with Retry-After     wait as the server asks, or back off
    server           other 5xx, 408, 409, 425; a choice
                     that the server marks as failed    back off
    transport        connect, read, protocol, deadline  back off
    bad_reply        2xx that is not a strict chat reply,
                     an unknown finish reason           back off
    empty            no text, no calls, finish stop     twice; then it is the answer
    adapted          400 about an option with an equal  at once, without the option
    context_overflow 4xx or 5xx that says so            never: the reply says so
    content_filter   4xx about what was said            never: the reply says so
    auth, quota,
    model, address                                      never: the run ends
    request          other 4xx                          never: this request fails, no other
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from gem_ma.engines.endpoint.sentences import flagged, overflows
from gem_ma.kernel.parsing.text import clean
from gem_ma.kernel.types import Attempt, Usage

RETRIED = frozenset({"rate_limited", "server", "transport", "bad_reply", "empty"})
# characters of what a server said: that are kept, that are looked at
DETAIL = 200
LOOKED_AT = 8192
FIRST_WAIT_S = 0.03
LONGEST_WAIT_S = 30.0
GROWTH = 6
LATER = 2  # the back-off begins so many steps later where a server says "too many" and no time
# A server asks everybody to wait for the same time. Up to a fiftieth more keeps them from coming
# back together.
SPREAD = 1.02


def _names(*marks: str) -> Callable[[str], bool]:
    """Whether a folded text holds one of these."""
    return lambda text: any(mark in text for mark in marks)


_no_quota = _names("insufficient_quota", "billing_hard_limit", "credit balance is too low")
_no_model = _names(
    "model_not_found",
    "modelnotfound",
    "no such model",
    "unknown model",
    "invalid model",
    "model not found",
)
_SAYS = {  # kind -> whether a text says it; the first that does
    "quota": _no_quota,
    "context_overflow": overflows,
    "content_filter": flagged,
    "auth": _names("invalid_api_key", "invalid x-api-key"),
    "model": _no_model,
}


class Fault(Exception):
    """One attempt failed. `detail` is the beginning of the server's sentence. It may hold a key,
    which `without` takes out. `stray`: over a kept connection nothing came that answers the
    request. `used`: tokens of an answer that was none."""

    def __init__(
        self,
        kind: str,
        detail: str = "",
        *,
        status: int | None = None,
        retry_after: float | None = None,
        stray: bool = False,
        used: Usage = Usage(0, 0),  # noqa: B008  (frozen)
    ) -> None:
        self.kind = kind
        self.stray = stray
        self.used = used
        self.status = status
        self.retry_after = retry_after
        # kept long until the key is out of it: cut first, half of one would stay
        self.sentence = _one_line(detail)
        self.detail = self.sentence[:DETAIL]

    def __str__(self) -> str:
        return f"{self.kind}{f' ({self.status})' if self.status else ''}: {self.detail}"

    def without(self, hide: Callable[[str], str]) -> Fault:
        """The same fault, its sentence hidden before it is cut: half a key would be a secret
        still."""
        return Fault(
            self.kind,
            hide(self.sentence),
            status=self.status,
            retry_after=self.retry_after,
            stray=self.stray,
            used=self.used,
        )

    def attempt(self, wait_s: float = 0.0) -> Attempt:
        """The line of the record; `wait_s` = seconds waited before the next try."""
        return Attempt(self.kind, self.status, round(wait_s, 3), self.detail)


def _one_line(text: str) -> str:
    """The beginning as one line of printable text; a word that is cut is left out."""
    # a body of megabytes is not worth the time; the word at the cut may be half a key
    words = clean(text[:LOOKED_AT]).split()
    line = " ".join(words[:-1] if len(text) > LOOKED_AT and len(words) > 1 else words)
    return "".join(char if char.isprintable() else "?" for char in line)


def of_status(status: int, headers: Mapping[str, str], text: str) -> Fault:
    """The fault behind a status that is not a success."""
    message, codes = _sentence_and_codes(text)
    after = retry_after(headers)
    if 300 <= status < 400:  # a redirect is not followed: the key would travel with it
        where = headers.get("location", "").split("?")[0]
        return Fault(
            "address",
            f"redirects to {where or 'another address'}; write that as base_url",
            status=status,
        )
    # The order matters: servers send one status for several faults. No quota comes as 429 too and
    # would be waited for, an overflow comes as 500.
    if _no_quota(codes) or status == 402:
        kind = "quota"
    elif status in (429, 529) or (status == 503 and after is not None):
        kind = "rate_limited"
    elif status != 401 and overflows(codes):
        kind = "context_overflow"
    elif status >= 500 or status in (408, 409, 425):
        kind = "server"
    # one prompt, and not the key: a moderation says 403 too
    elif status != 401 and flagged(codes):
        kind = "content_filter"
    elif status in (401, 403):
        kind = "auth"
    elif _no_model(codes) or (
        status in (400, 404)
        and "model" in codes
        and ("does not exist" in codes or "not found" in codes)
    ):
        kind = "model"
    elif status in (404, 405):
        kind = "address"
    else:
        kind = "request"
    return Fault(kind, message, status=status, retry_after=after)


def of_error_within(error: Any) -> Fault:
    """The fault behind an error in, beside or after choices. The request was taken, so all that
    would refuse it for good is the server's matter."""
    fault = of_error_body(error)
    holds = fault.kind in RETRIED or fault.kind in ("context_overflow", "content_filter", "quota")
    return fault if holds else Fault("server", fault.sentence, status=200)


def of_error_body(error: Any) -> Fault:
    """The fault behind a success that holds `{"error": ...}`: by the code inside, tried again
    where that says nothing."""
    text = json.dumps({"error": error})
    code = error.get("code", error.get("status")) if isinstance(error, dict) else None
    # the status that a proxy has swallowed, as some write it: a text
    if isinstance(code, str) and len(code) < 4 and code.isdecimal():
        code = int(code)
    if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600:
        inner = of_status(code, {}, text)
        return Fault(inner.kind, _sentence_and_codes(text)[0], status=200)
    message, codes = _sentence_and_codes(text)
    kind = next((kind for kind, says in _SAYS.items() if says(codes)), None)
    if kind is not None:
        return Fault(kind, message, status=200)
    return Fault(
        "rate_limited" if "rate_limit" in codes else "bad_reply",
        f"an error with status 200: {message}",
        status=200,
    )


def _sentence_and_codes(text: str) -> tuple[str, str]:
    """(the server's sentence, everything that may hold a code, folded) of an error body of any
    shape."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, list) and body:  # as Gemini sends it
        body = body[0]
    error = body.get("error", body.get("detail", body)) if isinstance(body, dict) else body
    if isinstance(error, dict):
        metadata = error.get("metadata")
        more = metadata if isinstance(metadata, dict) else {}
        message = _sentence(error.get("message") or error.get("detail") or error)
        # OpenRouter hands on what a provider said
        if isinstance(more.get("raw"), str):
            message = f"{message}: {more['raw']}"
        told = [error.get("code"), error.get("type"), error.get("innererror", ""), *more]
        codes = " ".join(map(str, [message, *told]))
    else:
        message = codes = _sentence(error) if error not in (None, "") else text
    return message or "no message", codes.casefold()


def _sentence(message: Any) -> str:
    """What stands for a message, as text: of a validator, the place of each fault and its words,
    without the request that it repeats."""
    if isinstance(message, dict) and isinstance(message.get("detail"), list):
        message = message["detail"]
    faults = message if isinstance(message, list) else []
    if faults and all(isinstance(fault, dict) and "msg" in fault for fault in faults):
        return "; ".join(f"{_place(fault.get('loc'))}: {fault['msg']}" for fault in faults)
    return message if isinstance(message, str) else str(message)


def _place(names: Any) -> str:
    return ".".join(map(str, names)) if isinstance(names, list) else str(names)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: a number, or a date counted from the server's own
    clock; None where it does not say."""
    milliseconds = headers.get("retry-after-ms")
    seconds = headers.get("retry-after")
    for value, unit in ((milliseconds, 1000.0), (seconds, 1.0)):
        if value is None:
            continue
        try:
            wait = float(value) / unit
        except ValueError:
            continue
        return max(0.0, wait) if math.isfinite(wait) else None
    if seconds is None:
        return None
    # a date (RFC 9110, 10.2.3), by the clock of the server, which may differ from ours
    try:
        then = parsedate_to_datetime(seconds).timestamp()
        now = time.time()
        if "date" in headers:
            now = parsedate_to_datetime(headers["date"]).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, then - now)


def back_off(seen: int, fault: Fault, rng: random.Random) -> float:
    """Seconds before the next try: full jitter under a ceiling that grows sixfold, never less than
    what the server asked for.

    `seen`: faults of this kind in this request. An outage repeats one kind and is given time;
    single faults of several kinds are chance, and an episode that meets many of them is not held
    up: where agents act together, each step waits for the slower one.
    """
    # full jitter: those who failed together come back apart
    steps = seen - 1 + (LATER if fault.kind == "rate_limited" and fault.retry_after is None else 0)
    wait = rng.uniform(0.0, min(LONGEST_WAIT_S, FIRST_WAIT_S * GROWTH ** min(steps, 10)))
    if fault.retry_after is None:
        return wait
    return max(wait, fault.retry_after * rng.uniform(1.0, SPREAD))


def in_words(attempts: Sequence[Attempt]) -> str:
    """`8 x server (500), 4 x transport`, the most frequent first."""
    counted = Counter(f"{one.kind} ({one.status})" if one.status else one.kind for one in attempts)
    return ", ".join(f"{count} x {kind}" for kind, count in counted.most_common())
