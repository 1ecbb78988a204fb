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
MOST_LINES = 600  # of a file
MOST_LINES_P90 = 450  # of nine files in ten
MOST_FUNCTION_LINES = 60
MOST_CHARACTERS = 38.0  # of a line of code, stripped, in the mean
LEAST_COMMENTS = 0.05  # of all lines; those behind code count too


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
