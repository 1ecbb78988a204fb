"""Lists of sentences by what they mean, as people and models write them: `# MEANING` and below it
a sentence a line, in which `\\n` is a line break."""

from __future__ import annotations

from pathlib import Path


def listed(name: str) -> dict[str, list[str]]:
    """Meaning -> the sentences of `NAME.lst`."""
    found: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / f"{name}.lst").read_text("utf-8").splitlines():
        if line.startswith("# "):
            sentences = found.setdefault(line.removeprefix("# "), [])
        else:
            sentences.append(line.replace("\\n", "\n"))
    return found


def meant() -> dict[str, str]:
    """Each answer to a proposal with `yes`, `no`, or "" for neither; a yes is clear, unconditional
    and for now."""
    answers = {
        text: meaning.replace("neither", "")
        for meaning, texts in listed("answers").items()
        for text in texts
    }
    return {"": "", **answers}
