"""Bash behind the wall, whose state stays from command to command: this text is the first cell of
a session of `gem_ma.tools.shell`, with the standard library alone.

Each command has a bash of its own. It reads what the last one left (variables, functions, aliases,
options, folder), does the command, and writes down what it leaves. So whatever ends a bash
(`exit`, `set -e`) ends no session. What it reads and writes goes through pipes: no file of ours is
in the way, and a full folder loses nothing.
"""

from __future__ import annotations

import base64
import os
import re
import select
import signal
from contextlib import suppress
from shlex import quote

MOST = 4 << 20  # bytes of a state
# bash's ends of the pipes, out of the way of `exec 3>file`
IN = 63
OUT = 62
AT_END = 61
# at the top level: what `.` runs is called by the name of its file in messages
BOOT = (
    f'{{ . /proc/self/fd/{IN}; }} >/dev/null 2>&1; \\builtin eval "$__";'
    f" {{ \\builtin . /proc/self/fd/{AT_END}; }} 2>/dev/null"
)
# `exit` and `set -e` end a bash before BOOT does; the second time the pipe is empty
BEGIN = f"""exec {IN}<&-
trap '{{ \\builtin . /proc/self/fd/{AT_END}; }} 2>/dev/null' EXIT
"""
# what a bash makes anew, also where a command has unset it
UNSET = "unset -v IFS PATH PWD OLDPWD SHLVL TERM\n"
# Behind a backslash no alias counts, behind `builtin` no function. Functions come before aliases:
# where they are read again, an alias may not change them once more. A folder that is gone gives way
# to the home, in which every bash begins.
KEEP = rf"""
__=$?
{{
\builtin echo "$SHELLOPTS"
\builtin set +eux
\builtin trap - DEBUG ERR RETURN
\builtin unset -v BASH_EXECUTION_STRING
\builtin printf 'set --'; (($#)) && \builtin printf ' %q' "$@"; \builtin echo
\builtin umask -p
\builtin shopt -p
\builtin echo 'shopt -u expand_aliases'
\builtin declare -p
\builtin printf 'cd -- %q || cd -P .; OLDPWD=%q\n' "$PWD" "$OLDPWD"
\builtin declare -f
\builtin declare -F
\builtin alias -p
\builtin shopt -p expand_aliases
\builtin echo '#'
}} >&{OUT}
\builtin return $__
"""
DEFAULT_OPTIONS = {"braceexpand", "hashall", "interactive-comments"}


class Bash:
    """The state of a session between two commands."""

    def __init__(self, home: str, files: dict[str, tuple[int, int, str]]) -> None:
        """`files`: by path below the home, their mode, time and content in base64."""
        self.home = home
        self.state = b""
        self.options = ""
        self.status = self.number = 0
        os.umask(0o022)
        os.makedirs(home)
        os.chdir(home)
        for path, (mode, time, content) in files.items():
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, "wb") as file:
                file.write(base64.b64decode(content))
            os.chmod(path, mode)
            os.utime(path, (time, time))

    def run(self, command: str) -> None:
        """Runs a command, and exits as it did. What a bash leaves that ends otherwise is lost."""
        self.number += 1
        # the first line of the command is the first line in messages, too
        line = "\\builtin unset -v __; "
        if self.options:
            line += f"\\builtin set{self.options}; "
        elif self.status:
            line += f"(\\builtin exit {self.status}); "
        typed = f"RANDOM={self.number}\n__={quote(line + command)}"
        state = self.state or b"shopt -s expand_aliases\n"
        script = BEGIN.encode() + state + typed.encode("utf-8", "replace")
        left = self._bash(script, BOOT, {} if self.state else self._environment())
        self._keep(left)
        if self.status:
            raise SystemExit(self.status)

    def check(self, script: str) -> None:
        """Runs a script that sees nothing of the session but its folder, and exits as it did."""
        for folder, folders, files in os.walk(self.home):
            for path in (os.path.join(folder, name) for name in (*folders, *files)):
                # a file that shows the words of the check itself
                if os.path.realpath(path).startswith(("/proc/", "/dev/")):
                    os.unlink(path)
        os.chdir(self.home)
        environment = {**self._environment(), "HOME": "/", "PYTHONSAFEPATH": "1"}
        self._bash(script.encode("utf-8", "replace"), f". /proc/self/fd/{IN}", environment)
        if self.status:
            raise SystemExit(self.status)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": self.home, "PWD": self.home, "TERM": "dumb"}

    def _keep(self, left: bytes) -> None:
        options, _, state = left.partition(b"\n")
        if len(left) > MOST:
            print(f"Error: the variables take more than {MOST >> 20} MiB; they are as before")
        elif state.endswith(b"\n#\n") and re.fullmatch(b"[a-z:-]*", options):
            now = set(options.decode().split(":"))
            self.state = UNSET.encode() + state
            self.options = "".join(
                f" {sign}o {name}"
                for sign, names in (("-", now - DEFAULT_OPTIONS), ("+", DEFAULT_OPTIONS - now))
                for name in sorted(names)
            )

    def _bash(self, script: bytes, boot: str, environment: dict[str, str]) -> bytes:
        """What a bash leaves that reads this script; sets its exit status."""
        read, script_end = os.pipe()
        left_end, write = os.pipe()
        at_end, keep_end = os.pipe()
        os.write(keep_end, KEEP.encode())
        words = ["bash", "--noprofile", "--norc", "-c", boot, "bash"]
        ends = ((read, IN), (write, OUT), (at_end, AT_END))
        pid = os.posix_spawnp(
            "bash",
            words,
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, *pair) for pair in ends],
            # Python ignores them, and whom it starts would too: `yes | head` would complain
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
        )
        for end in (read, write, at_end, keep_end):
            os.close(end)
        left = _talk(pid, script_end, script, left_end)
        self.status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if self.status < 0:
            os._exit(70)  # a command that ended its shell counts as never typed
        return left


def _talk(pid: int, to: int, data: bytes, back: int) -> bytes:
    """Writes one pipe and reads the other until the process ends, whoever else holds them open."""
    over = os.pidfd_open(pid)
    poll = select.poll()
    left = bytearray()
    for end, event in ((to, select.POLLOUT), (back, select.POLLIN), (over, select.POLLIN)):
        os.set_blocking(end, False)
        poll.register(end, event)
    ready: set[int] = set()
    while over not in ready:
        ready = {end for end, _ in poll.poll()}
        if to in ready:
            data = data[_written(to, data) :]
            if not data:
                poll.unregister(to)
                os.close(to)  # bash reads up to the end
        if back in ready and _is_over(back, left):
            poll.unregister(back)
    _is_over(back, left)
    for end in (over, back, *((to,) if data else ())):
        os.close(end)
    return bytes(left)


def _written(end: int, data: bytes) -> int:
    try:
        return os.write(end, data)
    except BlockingIOError:
        return 0
    except BrokenPipeError:  # it ended before it had read all
        return len(data)


def _is_over(end: int, left: bytearray) -> bool:
    """Reads what there is, and keeps some more than may be kept; whether no more will come."""
    with suppress(BlockingIOError):
        while more := os.read(end, 65_536):
            left += more[: MOST + 1 - len(left)]
        return True
    return False
