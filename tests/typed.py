"""Whether a line of a document that is not `gem-ma` can be typed: make, pip, and the scripts of
this project."""

from __future__ import annotations

import re
import tomllib

from tests.documents import ROOT

# modules that are not ours
ELSEWHERE = {"venv", "pytest", "pip", "vllm.entrypoints.openai.api_server"}
PROGRAMS = {"export", "tensorboard", "trackio"}
VENVS = (".venv", ".venv-vllm", ".venv-trl", ".venv-gpu")
PYTHONS = {"python", "python3", *(f"{venv}/bin/python" for venv in VENVS)}
PIPS = {"pip", *(f"{venv}/bin/pip" for venv in VENVS)}


class Untrue(AssertionError):
    """What a document says does not hold."""


def need(holds: object, why: str) -> None:
    if not holds:
        raise Untrue(why)


def verify_other(head: str, rest: list[str]) -> None:
    """Raises Untrue, or what a parser raises, where this command line cannot be typed."""
    if head == "make":
        text = (ROOT / "Makefile").read_text(encoding="utf-8")
        for word in rest:
            name = word.partition("=")[0]
            # $(WORLDS:%=test-worlds-%) is a target for each world
            families = tuple(re.findall(r"\$\(\w+:%=([\w-]+-)%\)", text))
            need(
                re.search(rf"^{re.escape(name)}(:| \?=)", text, re.MULTILINE)
                or name.startswith(families),
                f"the Makefile has no {name}",
            )
    elif head in PYTHONS:
        verify_script(rest)
    elif head in PIPS:
        verify_install(rest)
    else:
        need(head in PROGRAMS, f"no test knows the program {head}")


def verify_script(rest: list[str]) -> None:
    if rest[0] == "-m":
        module, rest = rest[1], rest[2:]
        if module in ELSEWHERE:
            return
        if module.startswith("gem_ma."):
            from gem_ma.scenarios.service_desk.retail.__main__ import main as shop

            need(
                module == "gem_ma.scenarios.service_desk.retail" and rest[0] in shop.commands,
                f"{module} has no {rest[0]}",
            )
            shop.commands[rest[0]].make_context(rest[0], rest[1:])
            return
        rest = [module.replace(".", "/") + ".py", *rest]
    script = ROOT / rest[0]
    need(script.is_file(), f"no file {rest[0]}")
    text = script.read_text(encoding="utf-8")
    need(len(rest) == 1 or "argv" in text or "add_argument" in text, f"{rest[0]} takes no words")
    for word in rest[1:]:
        need(not word.startswith("--") or f'"{word}"' in text, f"{rest[0]} has no {word}")


def verify_install(rest: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    for before, word in zip(["", *rest], rest, strict=False):
        if before in ("-c", "--constraint"):
            need((ROOT / word).is_file(), f"no file {word}")
        need(
            not re.match(r"gem[-_]ma\b", word),
            "no index has the package; from a clone it is .[extra]",
        )
        if own := re.match(r"\.\[([\w,]+)\]$", word):
            need(set(own[1].split(",")) <= set(extras), f"no such extra: {own[1]}")
