"""The tool `shell`: what stays from call to call, what ends with it, and what it cannot lose."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gem_ma import Game, make
from gem_ma.config import load
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.plans import scenario_of
from gem_ma.tools import shell
from gem_ma.tools.belt import WithTools
from gem_ma.tools.shell import Session, Shell, files_of
from gem_ma.tools.walls import MIB
from tests.tools.test_tools import call, config, seen

LATE = "Error: it took longer than 0.3 s; the session is as it was before this call"
ENDED = "Error: its process ended; the session is as it was before this call"


@pytest.fixture
def session() -> Iterator[Session]:
    opened = Shell(timeout_s=60.0).open()
    yield opened
    opened.close()


def typed(session: Session, command: str) -> str:
    session.plan("shell", {"command": command})
    return session.text_of(session.run())


def hangs(session: Session, command: str) -> str:
    """What comes of a command that has a third of a second; the others have a minute."""
    session.timeout_s, before = 0.3, session.timeout_s
    try:
        return typed(session, command)
    finally:
        session.timeout_s = before


STAYS = [
    ("x=5", "echo $x", "5\n"),
    ("export x='a b'", "sh -c 'echo $x'", "a b\n"),
    ("x=5; export y=6", "env | grep -c '^x='", "0\n[exit status 1]"),
    ("a=(1 'b c' 3); declare -A m=([k]=v)", 'echo "${a[1]}" ${m[k]}', "b c v\n"),
    ("readonly x=1", "x=2", "bash: line 1: x: readonly variable\n[exit status 1]"),
    ('f() { echo "f $1"; }; export -f f', "f 1; bash -c 'f 2'", "f 1\nf 2\n"),
    ("alias ll='echo long'", "ll x", "long x\n"),
    ("alias ls='ls -a'; f() { ls; }; touch b", "f", "b\n"),
    ("mkdir d; cd d", "pwd; cd -", "/tmp/home/d\n/tmp/home\n"),
    ("mkdir d; ln -s d l; cd l", "pwd; pwd -P", "/tmp/home/l\n/tmp/home/d\n"),
    ("mkdir d; cd d; rm -r ../d", "pwd", "/tmp/home\n"),
    ('cd() { builtin cd "$@" && echo in; }; cd /usr', "pwd; cd /", "/usr\nin\n"),
    ("set -o pipefail; shopt -s extglob; touch a b", "false | true || echo !(b)", "a\n"),
    ("set -e; false; echo never", "echo one; false; echo two", "one\n[exit status 1]"),
    ("set -u; x=1", "echo $y; echo no", "bash: line 1: y: unbound variable\n[exit status 127]"),
    ("set -x", "echo hi", "++ echo hi\nhi\n"),
    ("umask 077", "touch f; stat -c %a f", "600\n"),
    ("set -- a 'b c'", 'echo "$2" $#', "b c 2\n"),
    ("false", "echo $?", "1\n"),
    ("x=1; exit 3", "echo $x $?", "1 3\n"),
    ("x=1; set -e; cat none", "set +e; echo $x", "1\n"),
    ("trap 'echo bye' EXIT; x=1", "echo $x", "1\n"),
    ("x=1; exec true", "echo x$x", "x\n"),  # what is gone has told nothing
    ("unset HOME IFS PATH", 'echo "$HOME$IFS$PATH."', ".\n"),
    ("set -n; x=1", "echo x$x", "x\n"),
    ("printf() { :; }; declare() { :; }; set() { :; }; x=1", "y=2; echo $x", "1\n"),
    ("x=$(head -c 5000000 /dev/zero | tr '\\0' a); y=1", "echo $y${#x}", "0\n"),
    (
        "touch f; chmod 750 f; ln -s f l; mkfifo p",
        "stat -c %A *",
        "-rwxr-x---\nlrwxrwxrwx\nprw-r--r--\n",
    ),
]


@pytest.mark.parametrize(("first", "second", "text"), STAYS)
def test_what_a_command_leaves_is_there_at_the_next_one(
    session: Session, first: str, second: str, text: str
) -> None:
    typed(session, first)
    assert typed(session, second) == text


ONCE = [
    ("echo out; echo err >&2; echo > /dev/full", "out\nerr\nbash: line 1: /dev/full: "),
    ("exit 3", "[exit status 3]"),
    ("printf a; false", "a\n[exit status 1]"),
    ("nothing", "bash: line 1: nothing: command not found\n[exit status 127]"),
    (
        "cat; cat <<E\nhere",
        "bash: line 2: warning: here-document at line 1 delimited by end-of-file",
    ),
    ("echo 'a", "bash: eval: line 1: unexpected EOF while looking for matching"),
    ("echo a\0b", "bash: the command is not text without NUL\n[exit status 2]"),
    ("echo \ud800", "?\n"),
    ("yes | head -1; diff <(echo a) <(echo a) && echo same", "y\nsame\n"),
    ("cat", ""),
    ("tty; top", "not a tty\ntop: "),
    ("whoami; ls -ld . | cut -d' ' -f 3,4; pwd", "user\nuser user\n/tmp/home\n"),
    ("head -c 50000000 /dev/zero | tr '\\0' a; echo end", "a" * 4000 + "\n... [49"),
]


@pytest.mark.parametrize(("command", "text"), ONCE)
def test_what_a_command_prints(session: Session, command: str, text: str) -> None:
    printed = typed(session, command)
    assert printed.startswith(text) if text else not printed


def test_a_command_that_is_no_text_is_told(session: Session) -> None:
    session.plan("shell", {"cmd": ["ls"]})
    assert "the command is not text" in session.text_of(session.run())


@pytest.mark.parametrize("command", ["kill -9 $$", "kill -9 -1", "kill -9 $PPID", "kill $$"])
def test_a_command_that_ends_its_session_counts_as_never_typed(
    session: Session, command: str
) -> None:
    typed(session, "x=1; echo a > file; mkdir d; cd d")
    assert typed(session, f"x=2; echo b > ../file; cd /; {command}; sleep 60") == ENDED
    assert typed(session, "echo $x; cat ../file; pwd") == "1\na\n/tmp/home/d\n"


@pytest.mark.long
def test_a_command_without_an_end_counts_as_never_typed(session: Session) -> None:
    typed(session, "x=1; echo a > file")
    for command in ("sleep 100", "yes", "while :; do :; done", "kill -STOP $PPID; sleep 100"):
        assert hangs(session, f"x=2; rm file; {command}").endswith(LATE)
    assert typed(session, "echo $x; cat file") == "1\na\n"


@pytest.mark.long
def test_a_full_folder_and_too_many_files(session: Session) -> None:
    typed(session, "x=1; head -c 20000000 /dev/zero > big; cat big > more")
    assert "No space left" in typed(session, "y=2; echo a > file")
    assert typed(session, "echo $x $y") == "1 2\n"
    many = "rm *; mkdir d; cd d; seq 21000 | xargs touch; sleep 60"
    assert typed(session, many) == ENDED
    assert typed(session, "ls") == "big\nfile\nmore\n"


def test_processes_end_with_their_call_also_those_that_fork_on(session: Session) -> None:
    count = "(set -- /proc/[0-9]*; echo $#)"
    alone = typed(session, count)
    typed(session, "(sleep 60; echo late > late) & setsid sleep 60 & disown; x=1")
    assert typed(session, count) == alone
    typed(session, "f() { f & }; f")
    assert typed(session, count) == alone
    typed(session, ":(){ :|:& };:")
    assert typed(session, f"unset -f :; echo $x; ls; {count}") == f"1\n{alone}"


def test_a_session_begins_with_the_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in" / "more").mkdir(parents=True)
    (tmp_path / "in" / "run.sh").write_text("echo ran\n")
    (tmp_path / "in" / "run.sh").chmod(0o700)
    (tmp_path / "in" / "more" / "data").write_bytes(b"\0\xff")
    (tmp_path / "in" / "link").symlink_to("/etc/passwd")
    opened = Shell(folder=str(tmp_path / "in")).open()
    look = "find . -type f | sort; ./run.sh; wc -c < more/data; rm run.sh"
    assert typed(opened, look) == "./more/data\n./run.sh\nran\n2\n"
    opened.release()  # it is built again, with what it was given
    assert typed(opened, "ls") == "more\n"
    opened.close()
    assert (tmp_path / "in" / "run.sh").exists()


def test_what_no_session_begins_with_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"shell: .*nowhere is not a folder"):
        Shell(folder=str(tmp_path / "nowhere"))
    (tmp_path / "big").write_bytes(b"x" * (8 * MIB + 1))
    with pytest.raises(ConfigError, match="more than 1000 files or 8 MiB"):
        files_of(tmp_path, Shell().wall)
    monkeypatch.setattr(shell.shutil, "which", lambda *_, **__: None)
    with pytest.raises(ConfigError, match="there is no bash in /usr/bin or /bin"):
        Shell()


def test_a_session_that_cannot_begin_says_so(session: Session, tmp_path: Path) -> None:
    late = Session(session.wall, session.timeout_s, {"x" * 256: (0o644, 0, b"")})
    assert "No session began: OSError" in typed(late, "ls")
    assert typed(late, "ls").endswith("the session is as it was before this call")
    late.close()
    # bytes that are no UTF-8 are a name on Linux
    (tmp_path / os.fsdecode(b"\xff")).write_text("here")
    odd = Session(session.wall, session.timeout_s, files_of(tmp_path, session.wall))
    assert typed(odd, "cat *") == "here"
    odd.close()


def test_a_fork_in_the_middle_of_a_session_continues_exactly() -> None:
    inner = make("guess_number")
    game = Game(WithTools(inner, {inner.agents[0]: [Shell(uses=9)]}))
    name = inner.agents[0]

    def ask(game: Game, command: str) -> str:
        game.send({name: call(command, "shell", "command")})
        return seen(game, name)

    ask(game, "x=$RANDOM; f() { echo $x $RANDOM; }; mkdir d; cd d; touch a; kill -0 1")
    assert ask(game, "kill -9 $$") == ENDED
    fork = game.fork()
    older = game.fork(1)
    look = "f; pwd; ls -l --time-style=+ . ..; echo $RANDOM"
    expected = ask(game, look)
    assert "user" in expected and ask(fork, look) == expected
    assert ask(older, "pwd; echo $x") == "/tmp/home/d\n" + expected.split()[0] + "\n"
    ask(game, "rm -r ../d; x=1")
    assert ask(fork, "ls; echo $x") == "a\n" + expected.split()[0] + "\n"
    for each in (game, fork, older):
        each.close()


def test_a_check_sees_the_folder_and_nothing_else_of_a_session(session: Session) -> None:
    typed(
        session, "grep() { :; }; export -f grep; alias test=true; export PATH=$PWD BASH_ENV=env X=1"
    )
    typed(
        session,
        "echo 'exit 0' > env; cp env grep; cp env .bashrc; /bin/chmod +x grep; echo no > file",
    )
    typed(session, "mkdir d; cd d; trap 'exit 0' EXIT; set -n")

    def checked(script: str) -> str:
        session.plan_check(script)
        result = session.run()
        session.cells.pop()
        session.done -= 1
        return str(result["why"] or result["status"])

    assert checked("grep -q yes file || exit 7") == "SystemExit: 7"
    assert checked('[ -z "$X$BASH_ENV" ] && [ $HOME = / ] && cat file | grep -qx no') == "ok"
    assert checked("kill -9 $$") == "died"
    # a file that shows the words of the check itself
    typed(session, "cd; /bin/ln -sf /proc/self/cmdline file; /bin/ln -s /dev/fd way")
    assert checked("grep -q yes file") == "SystemExit: 2"


def test_a_config_gives_a_shell_its_folder(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("one two")
    loaded = load(config(tmp_path, "[{shell: {folder: texts, timeout_s: 9}}]"))
    game = Game(scenario_of(loaded.config, base=loaded.base))
    assert [tool.name for tool in game.pending["player_0"].tools] == ["shell"]
    game.send({"player_0": call("cat *", "shell", "command"), "player_1": "cooperate"})
    assert seen(game, "player_0") == "one two"
    game.close()


def test_sessions_of_both_tools_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gem_ma.tools.sessions.HOLDERS.most", 1)
    first, second = Shell().open(), Shell().open()
    for command in ("x=1", "x=$((x + 1))", "echo $x"):
        for each in (first, second):
            assert typed(each, command) == ("2\n" if "echo" in command else "")
    assert [first.worker is None, second.worker is None] == [True, False]
    first.close()
    second.close()


@pytest.mark.parametrize(
    "command",
    [
        "kill -0 1",
        "kill -9 1",
        "prlimit --pid 1 --nofile=9:9",
        "renice -n 9 -p 1",
        "renice -n 9 -u user",
        "ionice -c 3 -p 1",
        "taskset -p 1 1",
        "chrt -i -p 0 1",
        "setpriv --clear-groups true",
        "unshare -p true",
        "nsenter -t 1 -m true",
    ],
)
def test_a_command_that_names_the_supervisor_is_refused(session: Session, command: str) -> None:
    assert "[exit status" in typed(session, command)
    own = "prlimit --pid $$ --nofile=60 && renice -n 19 -p $$ && kill -0 $$ && ulimit -n && ps aux"
    assert "[exit status" not in typed(session, own)
