"""The keeper of a server: what is started below it ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gem_ma.tools import keeper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
# a child that no group and no signal but one reaches
CHILD = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ready, told = os.pipe()
if os.fork():
    os.read(ready, 1)
    if sys.argv[1] == "end":
        os._exit(7)
else:
    os.setsid()
    print(os.getpid(), flush=True)
    os.write(told, b"x")
time.sleep(600)
"""


def kept(*command: str, parent: int | None = None) -> subprocess.Popen[str]:
    words = [sys.executable, "-I", "-S", keeper.__file__, str(parent or os.getpid()), *command]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


@pytest.mark.parametrize(("how", "code"), [("end", 7), ("wait", 143)])
def test_what_was_started_below_ends_with_it(how: str, code: int) -> None:
    process = kept(sys.executable, "-I", "-S", "-c", CHILD, how)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    if how == "wait":
        process.terminate()
    assert process.wait() == code
    assert not Path("/proc", str(child)).exists()
    process.communicate()


def test_a_command_that_is_not_there_and_a_parent_that_is_gone() -> None:
    process = kept("/no/such/program")
    assert process.communicate() == ("", "/no/such/program: No such file or directory\n")
    assert process.returncode == 127
    process = kept(sys.executable, "-c", "print('started')", parent=1 << 22)
    assert process.communicate() == ("", "")
    assert process.returncode == 1
