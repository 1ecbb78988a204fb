"""Secrets in a config: which names are those of secrets, which values look like keys, and how a key
is named instead of written.

Configs are copied into run folders, and run folders are passed on. So no key stands in one, of
whatever length: `api_key_env: NAME` of a policy names the variable that holds it, and `api_key:
${env:NAME}` says the same. Elsewhere nobody would read such a reference, so it is refused too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from gem_ma.config.document import Document, Fault, Keys, Place
from gem_ma.kernel.errors import ConfigError
from gem_ma.system.env_file import NO_SECRET, variable

LEAST = 16  # characters of a key that is looked for in other texts; a shorter one may be a word
# at the end of a name: `max_tokens` and `token_ids` are not secrets, `hf_token` is one
_NAME = re.compile(
    r"(?:^|_)(?:api_?key|pass(?:word|wd|phrase)|secrets?|bearer|credentials?|cookie"
    r"|(?:api|auth|access|bearer|refresh|session|security|secret|hf|id)_?token"
    r"|(?:private|access|secret|subscription|client)_?key|(?:proxy_)?authorization)$"
    r"|^(?:token|auth)$"
)
# how keys of known services begin, and what stands behind the word of an HTTP header
_LOOKS = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:sk|pk|rk|xai)-[A-Za-z0-9_-]{16,}"
    r"|(?:hf|gsk|gh[pousr])_[A-Za-z0-9]{16,}|AIza[A-Za-z0-9_-]{30,}"
    r"|(?:Bearer|Basic)\s+[A-Za-z0-9_~+/.=-]{16,})"
)
_REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_CREDENTIALS = re.compile(r"^[a-z][a-z0-9+.-]*://[^/@\s]*:[^/@\s]*@", re.IGNORECASE)
# A name; no long run of letters and digits without a `_`, as keys are.
_VARIABLE = re.compile(r"(?=[A-Za-z0-9]*_|.{0,15}$|[A-Za-z]+$)[A-Za-z_][A-Za-z0-9_]*")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret(name: str) -> bool:
    """Whether a key of a config, or of a header, names a secret, in whichever spelling.

    >>> [is_secret(name) for name in ("api_key", "apiKey", "X-Api-Key", "Authorization", "token")]
    [True, True, True, True, True]
    >>> [is_secret(name) for name in ("api_key_env", "max_tokens", "token_ids", "stop_token")]
    [False, False, False, False]
    """
    # camelCase and Dashed-Names become words with _ between them
    words = re.sub(r"[^a-z0-9]+", "_", _HUMP.sub("_", name).lower()).strip("_")
    return _NAME.search(words) is not None


def reveal(value: Any, key: str) -> Any:
    """An option as an engine gets it: `${env:NAME}` in a secret field becomes the variable's
    value."""
    if not isinstance(value, str) or not is_secret(key.rsplit(".", 1)[-1]):
        return value
    named = _REFERENCE.fullmatch(value)
    if named is None:
        return value
    if not (secret := variable(named[1])):
        raise ConfigError(
            f"{key}: the environment variable {named[1]} is not set; export it, write it into .env"
            " here, or name another as ${env:NAME}"
        )
    return secret


def check_secrets(document: Document, parts: Iterable[tuple[Keys, Document]] | None = None) -> None:
    """Adds a fault for every secret that is written, for keys of the environment that stand
    anywhere, and for `${...}` where nobody reads it. `parts`: of
    these alone, each with its path."""
    known = _known_keys(document.value)
    for above, part in [((), document)] if parts is None else parts:
        names = [name for name in above if isinstance(name, str)]
        for value, path, under in _scalars(part.value, above, any(map(is_secret, names))):
            if fault := _fault(value, path, under, known):
                document.faults.append(Fault(part.place(path[len(above) :]), path, fault))


def check_comments(document: Document, text: str) -> None:
    """Adds a fault for every comment of the text that holds a key: the text is kept as written."""
    known = _known_keys(document.value)
    for number, line in enumerate(text.split("\n"), start=1):
        _, mark, comment = line.partition("#")
        if mark and (_LOOKS.search(comment) or any(key in comment for key in known)):
            place = Place(document.place(()).file, number)
            what = "this comment holds a key, and the file is copied into the run folder; delete it"
            document.faults.append(Fault(place, (), what))


def _fault(value: Any, path: Keys, under: bool, known: list[str]) -> str:
    text = str(value)
    if under:
        # a number may be a world's secret
        if not text or text in NO_SECRET or (not isinstance(value, str) and path[0] != "policies"):
            return ""
        if len(path) == 3 and path[0] == "policies":
            is_named = _REFERENCE.fullmatch(text)
            return "" if is_named else "a secret is named, never written: ${env:NAME}"
        of_policy = path[0] == "policies" and len(path) > 1
        where = f"policies.{path[1]}" if of_policy else "policies.NAME"
        return (
            f"a secret stands in no config; export it and name its variable: {where}.api_key_env:"
            " VARIABLE (sent as the Authorization header)"
        )
    if not isinstance(value, str):
        return ""
    if path[-1:] == ("api_key_env",) and value and not _VARIABLE.fullmatch(value):
        return (
            "this is not a name of a variable; export the key, and write the NAME that it was"
            " exported under"
        )
    # elsewhere nobody replaces it, and a model would be asked for literally this
    if "${" in value:
        return "${...} stands in secret fields only, such as api_key"
    if _CREDENTIALS.match(value):
        return "a URL with a password in it; use api_key: ${env:NAME}"
    if _LOOKS.search(value) or any(key in value for key in known):
        return (
            "this holds a key, which stands in no config; export it and name its variable:"
            " policies.NAME.api_key_env: VARIABLE"
        )
    return ""


def _scalars(value: Any, path: Keys = (), under: bool = False) -> Iterator[tuple[Any, Keys, bool]]:
    """(text or number, its path, whether a name above it is a secret's)."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _scalars(inner, (*path, name), under or is_secret(name))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _scalars(inner, (*path, at), under)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield value, path, under


def _known_keys(value: Any) -> list[str]:
    """The keys that the config names, as far as the environment holds them and they are long
    enough to be told from words."""
    names = {"OPENAI_API_KEY"}
    for text, path, _ in _scalars(value):
        if isinstance(text, str) and path and path[-1] == "api_key_env":
            names.add(text)
        elif isinstance(text, str) and (named := _REFERENCE.fullmatch(text)):
            names.add(named[1])
    return [key for name in sorted(names) if len(key := variable(name).strip()) >= LEAST]
