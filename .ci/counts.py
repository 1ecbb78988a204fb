"""Counts what makes code slow to read, and holds it to its bars: `python .ci/counts.py [PLACE]...`

Counts the package `gem_ma`, or the files and folders that are named, and exits with 1 where a bar
is missed. Lines of docstrings are no code.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_LINES = 400  # of a file
MOST_LINES_P90 = 320  # of nine files in ten
MOST_FUNCTION_LINES = 60
MOST_CHARACTERS = 38.0  # of a line of code, stripped, in the mean
LEAST_COMMENTS = 0.05  # of all lines; those behind code count too
# A value is named by a noun for what it is, not by what happened to it or where it stands.
NO_NAMES = {"at", "found", "given", "kept", "one", "own", "said", "shown", "told"}
LONGEST_LIFE = 3  # lines that such a name may live
# What users type, and what files on disk hold, keeps its name.
RECORDED = {"ForkSettings.at", "GuardState.kept", "GuardState.told", "proofs.told"}


def docstring_lines(tree: ast.Module) -> set[int]:
    """The lines that docstrings take."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        holder = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, holder) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines |= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Name and length in lines of every function."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def long_lived(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """Function, name and lines of life of each local value with a name of `NO_NAMES`."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        lives: dict[str, list[int]] = {}
        bound: set[str] = set()
        for inner in ast.walk(node):
            if isinstance(inner, ast.arg) and inner.arg in NO_NAMES:
                lives.setdefault(inner.arg, []).append(inner.lineno)
                bound.add(inner.arg)
            elif isinstance(inner, ast.Name) and inner.id in NO_NAMES:
                lives.setdefault(inner.id, []).append(inner.lineno)
                if isinstance(inner.ctx, ast.Store):
                    bound.add(inner.id)
        for name in sorted(bound):
            life = max(lives[name]) - min(lives[name]) + 1
            if life > LONGEST_LIFE:
                yield node.name, name, life


def unnamed(tree: ast.Module, home: str) -> Iterator[tuple[int, str]]:
    """Line and name of all that is called by a word of `NO_NAMES` and lives longer than a function:
    functions, classes, fields, attributes, and what a module or a class holds. `home` is the
    module."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, f"{home}.{node.name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, f"{home}.{node.attr}"
        if isinstance(node, (ast.Module, ast.ClassDef)):
            holder = node.name if isinstance(node, ast.ClassDef) else home
            for part in node.body:
                targets = part.targets if isinstance(part, ast.Assign) else []
                targets += [part.target] if isinstance(part, ast.AnnAssign) else []
                for name in (each for target in targets for each in ast.walk(target)):
                    if isinstance(name, ast.Name):
                        yield name.lineno, f"{holder}.{name.id}"


def is_noun(name: str) -> bool:
    """Whether the last part of a dotted name is none of `NO_NAMES`, however it is written."""
    return name.rpartition(".")[2].strip("_").lower() not in NO_NAMES


def count(folders: list[Path]) -> list[str]:
    """Prints one line of numbers; gives the bars that are missed, a line each."""
    lengths: list[tuple[int, Path]] = []
    lines = code = characters = comments = 0
    faults: list[str] = []
    files = (
        file for place in folders for file in ([place] if place.is_file() else place.rglob("*.py"))
    )
    for path in sorted(files):
        text = path.read_text(encoding="utf-8")
        if not text.strip():
            continue
        tree = ast.parse(text)
        docs = docstring_lines(tree)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        noted = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
        listed = text.splitlines()
        lengths.append((len(listed), path))
        lines += len(listed)
        comments += len(noted)
        for number, line in enumerate(map(str.strip, listed), 1):
            if line and number not in docs and not line.startswith("#"):
                code += 1
                characters += len(line)
        name = path.relative_to(ROOT)
        if len(listed) > MOST_LINES:
            faults.append(f"{name}: {len(listed)} lines; {MOST_LINES} are allowed")
        faults += [
            f"{name}: {function} has {length} lines; {MOST_FUNCTION_LINES} are allowed"
            for function, length in functions(tree)
            if length > MOST_FUNCTION_LINES
        ]
        faults += [
            f"{name}: {function} has a value called {value!r} that lives for {life} lines;"
            f" {LONGEST_LIFE} are allowed, so say what it is"
            for function, value, life in long_lived(tree)
        ]
        faults += [
            f"{name}:{line}: {called} is no noun, so say what it is"
            for line, called in unnamed(tree, path.stem)
            if not is_noun(called) and called not in RECORDED
        ]
    if not lengths:
        return []
    ordered = sorted(length for length, _ in lengths)
    p90 = ordered[int(len(ordered) * 0.9)]
    width, share = characters / code, comments / lines
    print(
        f"{len(ordered)} files, {lines} lines; a file has {ordered[len(ordered) // 2]} (median),"
        f" {p90} (p90), {ordered[-1]} (most); {width:.1f} characters a line of code,"
        f" {share:.1%} of lines with a comment"
    )
    if p90 > MOST_LINES_P90:
        faults.append(f"p90 of file lengths is {p90}; {MOST_LINES_P90} is allowed")
    if width > MOST_CHARACTERS:
        faults.append(f"{width:.1f} characters a line of code; {MOST_CHARACTERS:.0f} are allowed")
    if share < LEAST_COMMENTS:
        faults.append(f"{share:.1%} of lines with a comment; {LEAST_COMMENTS:.0%} are wanted")
    return faults


def main() -> int:
    """The exit code."""
    folders = [Path(name).resolve() for name in sys.argv[1:]] or [ROOT / "gem_ma"]
    faults = count(folders)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
