"""What a config may not hold: what a pydantic model refuses, which becomes a fault with its place,
in words of our own; keys that went, each with what to use instead (docs/config_changes.md is the
same table for readers); and secrets.

Configs are copied into run folders, and run folders are passed on. So no key stands in one, of
whatever length: `api_key_env: NAME` of a policy names the variable that holds it, and `api_key:
${env:NAME}` says the same. Elsewhere nobody would read such a reference, so it is refused too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gem_ma.config.document import Document, Fault, Keys, Place
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.spelling import nearest
from gem_ma.system.env_file import NO_SECRET, variable

M = TypeVar("M", bound=BaseModel)
# a list of a million wrong items needs no million explanations, each of which searches for near
# names
MOST_FAULTS = 1000  # faults that are explained


def validate(document: Document, model: type[M]) -> M | None:
    """The validated model, or None after adding a fault for everything that it refuses."""
    try:
        # everything at once: who mends a config wants all of its faults
        return model.model_validate(document.value)
    except ValidationError as error:
        problems: dict[Keys, list[ErrorDetails]] = {}
        for problem in error.errors(include_url=False):
            problems.setdefault(_written(problem, document), []).append(problem)
    # a value that could not be read is not wrong besides
    known = {fault.path for fault in document.faults}
    outer = {path[:length] for path in problems for length in range(len(path))}
    # a fault inside says more
    wrong = [path for path in problems if path not in known and path not in outer]
    for number, path in enumerate(wrong):
        # no more are printed
        document.fault(
            path,
            _explain(path, problems[path], document, model) if number < MOST_FAULTS else "a fault",
        )
    return None


def _written(problem: ErrorDetails, document: Document) -> Keys:
    """The key path of a problem without the names of union members that pydantic puts into it."""
    path: Keys = ()
    for part in problem["loc"]:
        value = document.get(*path)
        # union members that pydantic names in its path are not keys of the document
        known = (
            part in value
            if isinstance(value, dict)
            else isinstance(value, list) and isinstance(part, int) and part < len(value)
        )
        if known or (problem["type"] == "missing" and part == problem["loc"][-1]):
            path = (*path, part)
    return path


def _explain(
    path: Keys, problems: Sequence[ErrorDetails], document: Document, root: type[BaseModel]
) -> str:
    problem = problems[0]
    kind = problem["type"]
    wanted = _wanted(path, root)
    # the only problem whose key the document does not have
    if kind == "missing":
        return f"is missing; it is {_describe(wanted)}" if wanted is not None else "is missing"
    if kind == "extra_forbidden":
        siblings = _model(path[:-1], root)
        known = list(siblings.model_fields) if siblings else []
        # `seed=3` for `run.seed=3`: what is typed without its section is not a slip of a letter
        if len(path) == 1 and (sections := sections_of(str(path[0]), root)):
            return f"unknown key (did you mean {' or '.join(map(repr, sections))}?)"
        return f"unknown key{nearest(str(path[-1]), known)}"
    value = document.get(*path)
    if (
        len(problems) > 1
        or kind.endswith(("_type", "_parsing", "_from_float"))
        or kind in ("literal_error",)
    ):
        choices = (
            [choice for choice in get_args(wanted) if isinstance(choice, str)]
            if get_origin(wanted) is Literal
            else []
        )
        hint = nearest(value, choices, listed=False) if isinstance(value, str) else ""
        if isinstance(value, list) and f"{path[-1]}s" in root.model_fields:
            hint = f"; several stand below `{path[-1]}s:`"
        return f"wants {_describe(wanted)}; got {_short(value)}{hint}"
    # what our own validators raise stands behind this prefix
    text = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{text[:1].lower()}{text[1:]}; got {_short(value)}"


def sections_of(key: str, root: type[BaseModel]) -> list[str]:
    """Where a key stands, as `section.key`, of the sections that have one place each."""
    places = []
    for section, field in root.model_fields.items():
        models = [
            option
            for option in _members(field.annotation)
            if isinstance(option, type) and issubclass(option, BaseModel)
        ]
        places += [f"{section}.{key}" for model in models if key in model.model_fields]
    return list(dict.fromkeys(places))


def _wanted(path: Keys, root: type[BaseModel]) -> Any:
    """The annotation that the schema has at a key path, or None."""
    wanted: Any = root
    for part in path:
        for option in _members(wanted):
            if (
                isinstance(option, type)
                and issubclass(option, BaseModel)
                and part in option.model_fields
            ):
                wanted = option.model_fields[str(part)].annotation
                break
            if get_origin(option) in (dict, Mapping) or (
                get_origin(option) is list and isinstance(part, int)
            ):
                wanted = get_args(option)[-1]
                break
        else:
            return None
    return wanted


def _model(path: Keys, root: type[BaseModel]) -> type[BaseModel] | None:
    return next(
        (
            option
            for option in _members(_wanted(path, root))
            if isinstance(option, type) and issubclass(option, BaseModel)
        ),
        None,
    )


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


# people who write YAML do not know Python's types
_WORDS = {
    int: "an integer",
    float: "a number",
    str: "text",
    bool: "true or false",
    type(None): "null",
    Any: "any value",
}


def _describe(annotation: Any) -> str:
    """An annotation in words: `int | list[int]` is "an integer or a list (an integer each)"."""
    parts = []
    for option in _members(annotation):
        if get_origin(option) is Literal:
            parts += [repr(choice) for choice in get_args(option)]
        elif get_origin(option) is list:
            parts.append(f"a list ({_describe(get_args(option)[0])} each)")
        elif get_origin(option) in (dict, Mapping) or (
            isinstance(option, type) and issubclass(option, BaseModel)
        ):
            parts.append("keys with values")
        else:
            parts.append(_WORDS.get(option, getattr(option, "__name__", str(option))))
    return " or ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _short(value: Any) -> str:
    text = ascii(value) if not str(value).isprintable() else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class Removed(NamedTuple):
    """A key that went. `off`: the values that asked for nothing, which folders of older runs
    hold; they are dropped without a word."""

    key: str
    off: tuple[Any, ...]
    instead: str


REMOVED = (
    Removed("train.loss.dual_clip", (None,), "use surrogate: cispo, which bounds every ratio"),
    Removed(
        "train.loss.sequence_mask",
        (None,),
        "use tis, and train.max_policy_lag where plays are old",
    ),
    Removed(
        "train.loss.kl_target",
        (None,),
        "use a fixed kl; target_kl ends a step whose policy has moved too far",
    ),
    Removed(
        "train.loss.kl_refresh",
        (None,),
        "train again from the exported weights: they are the reference of the new run",
    ),
    Removed(
        "train.loss.moments",
        ("float32",),
        "use lora at the policy, or train.shard with several processes",
    ),
    Removed(
        "train.loss.pass_logits", (1 << 25,), "it is chosen for you; pass_tokens bounds a pass"
    ),
    Removed("train.curriculum.band", ([0.1, 0.9],), "the band is 0.1 to 0.9; explore stays"),
    Removed("train.curriculum.decay", (0.98,), "it is 0.98; explore stays"),
    Removed("train.fork.selector", ("random",), "a drawn branch is forked next"),
    Removed(
        "scenario.uncertain", (False,), "what only words tell is not counted; let a judge read it"
    ),
    *(
        Removed(f"scenario.rewards.{term}.words", (0.0, 0), "only typed findings are paid")
        for term in ("policy", "role", "game")
    ),
    Removed("train.pool.q", (2.0, 2), "it is 2; prioritised: even is the flatter weight"),
    Removed("train.pool.prior", (2.0, 2), "it is 2; size and every stay"),
    Removed("train.pool.decay", (0.98,), "it is 0.98; size and every stay"),
)
# values that went, of keys that stay
VALUES = {
    ("train.on_collapse", "rollback"): (
        "use warn; `gem-ma train` from an earlier checkpoint with a lower lr goes back"
    ),
    ("train.on_collapse", "mix_pool"): "use warn, and give uniform a share of train.opponents",
}
# what a policy says in its own way has the keys of these sections too
_BY_POLICY = ("train", "per_policy")


def check_removed(document: Document) -> None:
    """Adds a fault with its advice for every key and value that went; drops those that asked for
    nothing."""
    for removed in REMOVED:
        for path in _places(document, tuple(removed.key.split("."))):
            if document.get(*path) not in removed.off:
                document.fault(path, f"this key is no longer there; {removed.instead}")
            # once: the scenario would refuse its option too
            document.get(*path[:-1]).pop(path[-1])
    for (key, value), instead in VALUES.items():
        keys: Keys = tuple(key.split("."))
        if document.get(*keys) == value:
            document.fault(keys, f"{value} is no longer there; {instead}")


def _places(document: Document, path: Keys) -> Iterator[Keys]:
    """The places of the config that hold this key: of all policies together, and of single
    ones."""
    policies = document.get(*_BY_POLICY)
    names = list(policies) if isinstance(policies, dict) else []
    for place in (path, *((*_BY_POLICY, name, *path[1:]) for name in names)):
        above = document.get(*place[:-1])
        if isinstance(above, dict) and place[-1] in above:
            yield place


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
