"""A person at a real terminal: nothing is drawn over what they type, one play follows the other,
and each shows its end."""

import os
import pty
import select
import sys
import time
from pathlib import Path

import pytest

from tests.command_line import environment

ERASE, UP = "\x1b[2K", "\x1b[1A"


def typed(arguments: list[str], answers: list[str], cwd: Path) -> tuple[int, str]:
    """Runs gem-ma on a pseudo terminal and types each answer in two halves, as slowly as a bar
    would be drawn anew between them."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(cwd)
        surroundings = {**environment(TERM="xterm"), "COLUMNS": "80"}
        surroundings.pop("CI", None)
        surroundings.pop("NO_COLOR", None)
        os.execve(sys.executable, [sys.executable, "-m", "gem_ma", *arguments], surroundings)
    seen, waiting, prompts, until = "", list(answers), 0, time.monotonic() + 60
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                seen += os.read(terminal, 65536).decode()
            except OSError:  # the other end has closed
                break
        elif waiting and seen.count("player_0> ") > prompts:
            prompts += 1
            answer = waiting.pop(0) + "\n"
            os.write(terminal, answer[:2].encode())
            time.sleep(0.5)
            os.write(terminal, answer[2:].encode())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), seen


@pytest.mark.longest
def test_nothing_erases_what_is_typed_and_the_end_is_shown(tmp_path: Path) -> None:
    command = [
        "run",
        "dilemma",
        "scenario.rounds=1",
        "agents.player_0.model=human/me",
        "-n",
        "2",
        "-j",
        "4",
        "--out",
        "run",
    ]
    code, seen = typed(command, ["coperate", "cooperate", "2"], tmp_path)
    assert code == 0, seen
    first, second = seen.split("=== a new play")[1:]
    between = seen[seen.index("=== a new play") : seen.rindex("--- the play is over")]
    # after the first question the terminal is theirs
    assert ERASE not in between and UP not in between
    assert (
        "'coperate' is none of the moves" in first
        and "player_0 (you)" in first
        and "player_0 (you)" in second
    )
    # the first play is over before the second asks
    assert first.index("the play is over") < len(first)


ALONE = """
from gem_ma import Ask, Scenario

class Alone(Scenario):
    agents = ("player_0",)

    def play(self, rng, task):
        yield Ask({"player_0": "Say a word."})
"""


@pytest.mark.longest
def test_one_who_plays_alone_reads_the_end_before_the_next_play_and_an_arrow_is_no_word(
    tmp_path: Path,
) -> None:
    (tmp_path / "alone.py").write_text(ALONE)
    command = ["run", "alone.py", "agents.player_0=human", "-n", "3", "--out", "run"]
    code, seen = typed(command, ["banana", "ki\x1b[Dwi", "kiwi", "pear"], tmp_path)
    assert code == 0, seen
    plays = seen.split("=== a new play")[1:]
    assert [play.count("the play is over") for play in plays] == [1, 1, 1], seen
    assert plays[1].count("player_0> ") == 2 and "type the line again" in plays[1]
    assert "\\u001b" not in (tmp_path / "run" / "episodes.jsonl").read_text()
