"""What may be wrong with an answer of the Tinker API, by what an exception says of itself: a
status, a category, a name. So it knows the errors of every version of the client, and imports none.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator

from gem_ma.engines.api.hiding import Secret
from gem_ma.kernel.errors import EndpointError, EngineError, ModelNotFound
from gem_ma.kernel.types import Attempt

# names of exceptions of the client and of what it stands on
DROPPED = frozenset({"APIConnectionError", "APITimeoutError", "RetryableException", "SidecarError"})
EXPIRED = 410  # the server forgot what it was asked
LONGEST = 300  # characters of a server's words


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from."""
    seen: set[int] = set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen:
        seen.add(id(now))
        yield now
        now = now.__cause__ or now.__context__


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error, None where there was none."""
    for each in chain(error):
        status = getattr(each, "status_code", None)
        if isinstance(status, int):
            return status
    return None


def kind_of(error: BaseException) -> str:
    """auth | quota | model | refused | rate_limited | server | expired | transport: what went
    wrong; the last four may be asked again."""
    status = status_of(error)
    names = {type(each).__name__ for each in chain(error)}
    named = {base.__name__ for each in chain(error) for base in type(each).__mro__}
    if status == EXPIRED or "RetryableException" in names:
        return "expired"
    if status in (401, 403):
        return "auth"
    if status == 402:
        return "quota"
    if status == 404:
        return "model"
    if status == 429:
        return "rate_limited"
    if status is not None and (status >= 500 or status in (408, 409, 425)):
        return "server"
    if status is not None:
        return "refused"
    if named & DROPPED or isinstance(error, (OSError, TimeoutError)):
        return "transport"
    if isinstance(error, (concurrent.futures.CancelledError, concurrent.futures.TimeoutError)):
        return "transport"
    if "RequestFailedError" in names:  # it was carried out, and failed
        category = getattr(error, "category", None)
        return "refused" if str(getattr(category, "value", category)) == "user" else "server"
    return "refused"


AGAIN = frozenset({"rate_limited", "server", "expired", "transport"})


def attempt_of(error: BaseException, wait_s: float, key: Secret) -> Attempt:
    """A failed attempt, as records keep it."""
    return Attempt(kind_of(error), status_of(error), wait_s, words(error, key))


def words(error: BaseException, key: Secret) -> str:
    """What an error says, in one line and without the key."""
    text = " ".join(str(error).split()) or type(error).__name__
    return key.hide(text)[:LONGEST]


def raised(error: BaseException, where: str, host: str, key: Secret) -> EngineError:
    """The error of this library for one that is not asked again, or was asked often enough."""
    kind = kind_of(error)
    text = words(error, key)
    if kind == "auth":
        return EndpointError(f"{where}: {host} refused the key ({text}); export a valid one")
    if kind == "quota":
        return EndpointError(f"{where}: the account at {host} has no quota left ({text})")
    if kind == "model":
        return ModelNotFound(f"{where}: {host} does not have it ({text})")
    return EngineError(f"{where}: {host}: {text}", retryable=kind in AGAIN)
