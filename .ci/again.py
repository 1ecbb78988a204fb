"""Tells a fault from a hiccup: `python3 .ci/again.py COMMAND...` runs a command that runs tests,
and each test that fails once more, alone.

A test that passes then is printed as `flaky: NAME`, with the trace of its first run, and the exit
code is 0. One that fails again is red, and so is a command that fails without naming a test.
"""

from __future__ import annotations

import re
import subprocess
import sys

PYTEST = [".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
MOST = 10  # tests; where more fail, something is broken
# a case may hold " - " and brackets, and so may the message behind it
NAMED = re.compile(r"^(?:FAILED|ERROR) (\S+?::\w+(?:::\w+)*(?:\[.*?\](?= - |$))?)", re.MULTILINE)
# a heading of pytest: ____ test_name[case] ____
HEADING = r"^_+ .*?\b{name} _+$.*?(?=^_+ .+ _+$|^=+ .+ =+$|\Z)"


def main(command: list[str]) -> int:
    """The exit code."""
    code, output = shown(command)
    failed = list(dict.fromkeys(NAMED.findall(output)))
    if code == 0 or not 0 < len(failed) <= MOST:
        return code
    red = [name for name in failed if shown([*PYTEST, name])[0] != 0]
    for name in failed:
        print(f"{'red' if name in red else 'flaky'}: {name}")
        if name not in red:
            print(trace_of(name, output))
    return 1 if red else 0


def shown(command: list[str]) -> tuple[int, str]:
    """Exit code and output of a command, which is printed as it comes."""
    lines = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            lines.append(line)
    return process.returncode, "".join(lines)


def trace_of(name: str, output: str) -> str:
    """What pytest printed of a failed test, "" where it printed nothing."""
    test = re.escape(name.rpartition("::")[2])
    found = re.search(HEADING.format(name=test), output, re.MULTILINE | re.DOTALL)
    return found.group(0).rstrip() if found else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
