"""Variables that a config names, out of the environment or of the file `.env` in the working
folder.

What stands in the file is looked up by name, where a key is wanted. It is never put into the
environment: processes that are started, such as a tool that runs what a model wrote, would inherit
it there. The environment wins. Lines are `NAME=value` or `export NAME="value"`; nothing in a value
is expanded, and a line of another form says nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from gem_ma.kernel.errors import StoreError
from gem_ma.system.files import is_file, read

NAME = ".env"
MOST_BYTES = 65_536
NO_SECRET = ("EMPTY", "none")  # keys of local servers, which want a text where a key is absent
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*")
_QUOTED = re.compile(r"""(["'])(.*)\1(?:\s+#.*)?""")


def variable(name: str) -> str:
    """The value of a variable, "" where it is set nowhere."""
    return os.environ.get(name) or _written().get(name, "")


def is_written(name: str) -> bool:
    """Whether the value of a variable comes from the file."""
    return not os.environ.get(name) and bool(_written().get(name))


def _written() -> dict[str, str]:
    """What the file says; {} where there is none that can be read."""
    file = Path(NAME)
    try:
        # a link or a pipe is none: reading either may hang, or read what another user chose
        if not is_file(file):
            return {}
        text = read(file, most=MOST_BYTES).decode("utf-8-sig")
    # its text is never part of a message: it holds keys
    except (StoreError, OSError, UnicodeDecodeError):
        return {}
    lines = (_LINE.fullmatch(line) for line in text.splitlines())
    return {line[1]: _value(line[2]) for line in lines if line is not None}


def _value(text: str) -> str:
    quoted = _QUOTED.fullmatch(text)
    # a comment begins after a space, since a key may hold a #
    return quoted[2] if quoted else re.split(r"\s#", text, maxsplit=1)[0].rstrip()
