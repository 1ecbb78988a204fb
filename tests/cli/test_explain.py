"""`gem-ma explain`: what it finds and keeps, what it costs, what it refuses."""

from __future__ import annotations

import _thread
import errno
import gc
import json
import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from gem_ma.cli.main import main
from gem_ma.pages.static.notes import EXPLAINED
from gem_ma.runs.store import read_rows
from gem_ma.scores.rows import Brief
from tests.fault_server import Answer, Asked, FaultServer, says, status

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(one) for one in arguments])
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        return code, told.out, told.err

    return run


@pytest.mark.longest
def test_a_lost_talk_names_the_turn_that_decided_it(command: Command) -> None:
    weak = "agents.assistant.behaviour=retail_transfers_early"
    assert command("run", "retail", weak, "-n", 6, "--out", "out", "--quiet")[0] == 0
    better = ("--against", "retail_scripted", "--agent", "assistant", "--plays", 2)
    code, out, err = command("explain", "out", *better, "--quiet")
    assert code == 0, err
    found = re.search(r"^(\d+) +assistant +transfer_to_human_agents\(\) ", out, re.M)
    assert found is not None
    assert f"decided at step {found[1]}: with retail_scripted in place of assistant" in out
    assert "2 of 2 are still won" in out and "as it lay, against retail_scripted" in out
    # and how: the better one takes over at that step
    fork = out.split("a fork from there that is won")[1].splitlines()
    assert fork[1].split()[:2] == [found[1], "assistant"] and "transfer_to" not in fork[1]
    # nobody counts the forks among the plays
    assert json.loads(command("show", "out", "--json")[1])["ok"] == 6


@pytest.mark.long
def test_what_comes_out_is_kept_and_printed_as_json(command: Command, tmp_path: Path) -> None:
    assert command("run", "kuhn_poker", "-n", 3, "--out", "out", "--quiet")[0] == 0
    printed = []
    for options in (
        ["--given", "view"],
        ["--messages"],
        ["--messages", "--other-deal"],
        ["--agents", "--against", "random_legal", "--agent", "player_0"],
    ):
        code, out, err = command(
            "explain", "out", "--episode", "0", "--plays", 4, "--json", "--quiet", *options
        )
        assert code == 0, err
        printed.append(json.loads(out))
        code, table, _ = command("explain", "out", "--episode", "0", "--plays", 4, *options)
        assert code == 0 and "95 % intervals" in table
    kept = [json.loads(line) for line in (tmp_path / "out" / EXPLAINED).open()]
    # the same command finds the same to the last digit
    assert kept[::2] == kept[1::2] == printed
    shares = printed[3]
    assert shares["whose"] == "player_0" and "share of the return of player_0, random" in table
    assert sum(value["mean"] for value in shares["values"].values()) == pytest.approx(
        shares["everybody"] - shares["nobody"], abs=1e-9
    )


def test_what_cannot_be_kept_is_shown_all_the_same(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, data: bytes, root: Path) -> None:
        # as it is named where it is opened from its folder
        raise PermissionError(errno.EACCES, "Permission denied", path.name)

    monkeypatch.setattr("gem_ma.system.files.append", refuse)
    assert command("run", "kuhn_random", "-n", 1, "--out", "out", "--quiet")[0] == 0
    code, out, err = command("explain", "out", "--plays", 2, "--json")
    assert code == 1 and json.loads(out)["what"] == "turns"
    assert err.count("out/explained.jsonl: Permission denied") == 1


@pytest.mark.long
def test_turns_without_a_value_say_why(command: Command) -> None:
    assert command("run", "public_goods", "-n", 1, "--out", "out", "--quiet")[0] == 0
    few = ("--plays", 2, "--given", "view", "--agent", "player_0", "--quiet")
    code, out, _ = command("explain", "out", *few)
    # contributions of others are hardly ever the same again
    assert code == 0 and re.search(r"^\d+ turns without a value: hardly any deal", out, re.M)


@pytest.mark.long
def test_forks_that_fail_say_why(command: Command, tmp_path: Path) -> None:
    words = "def breaks(messages, legal, rng):\n    raise ValueError('no such move')\n"
    (tmp_path / "breaks.py").write_text(words)
    assert command("run", "kuhn_random", "-n", 1, "--out", "out", "--quiet")[0] == 0
    for options in (["--agents", "--agent", "player_0"], ["--turns"], ["--given", "view"]):
        against = ("--against", "breaks.py:breaks", "--plays", 2, "--quiet")
        code, out, err = command("explain", "out", "--episode", "0", *options, *against)
        assert code == 0, err
        assert re.search(r"^\d+ forks failed .* ValueError: no such move$", out, re.M)


@pytest.mark.long
def test_a_world_without_success_explains_its_first_play_by_roles(command: Command) -> None:
    assert command("run", "werewolf", "-n", 2, "--out", "out", "--quiet")[0] == 0
    code, out, err = command("explain", "out", "--messages", "--plays", 2, "--quiet")
    assert code == 0, err
    assert re.search(r"^step +agent +said +for itself +for whom most", out, re.M)
    assert re.search(r"^0 +player_\d \(wolf\) +player_\d ", out, re.M)
    first = json.loads(command("show", "out", "--episode", "0", "--json")[1])["episode"]
    assert f"test/0/{first['seed']}" in out
    shares = command(
        "explain",
        "out",
        "--agents",
        "--agent",
        "wolves",
        "--against",
        "random_legal",
        "--plays",
        2,
        "--quiet",
    )
    assert shares[0] == 0 and "(wolf)" in shares[1] and "villager" not in shares[1]


TALK = """
scenario: {{id: dilemma, rounds: 4, tasks: 2}}
agents:
  "player_*": {{policy: main}}
policies:
  main: {{model: openai/m, base_url: "{url}", max_tokens: 20}}
"""


def wavering(seed: int) -> Callable[[Asked], Answer]:
    rng = random.Random(seed)
    return lambda asked: says(rng.choice(["cooperate", "defect"]), usage=(100, 10))


@pytest.mark.long
def test_models_cost_what_was_said_before(command: Command, tmp_path: Path) -> None:
    with FaultServer(wavering(1)) as server:
        (tmp_path / "talk.yaml").write_text(TALK.format(url=server.url))
        assert command("run", "talk.yaml", "--out", "out", "--quiet")[0] == 0
        before = len(server.asked)
        code, _, err = command("explain", "out", "--episode", "0", "--plays", 3, "--json")
        asked = len(server.asked) - before
    assert code == 0
    said = re.search(r"about (\d+) model calls, (\d+) tokens.* stops at (\d+) calls", err)
    assert said is not None, err
    about, tokens, most = map(int, said.groups())
    assert tokens == 110 * about
    assert 0.75 < asked / about < 1.25
    assert asked <= most


FOUR = """
from gem_ma import Ask, Reward, Scenario

class Four(Scenario):
    agents = ("a", "b", "c", "d")

    def team(self, episode, agent):
        return "duo" if agent in "ab" else ""

    def play(self, rng, task):
        said = yield Ask(dict.fromkeys(self.agents, "Which?"), legal=("cooperate", "defect"))
        yield Reward({agent: float(act.parsed == "defect") for agent, act in said.items()})
"""


def test_where_no_play_is_lost_the_first_is_explained(command: Command, tmp_path: Path) -> None:
    won = FOUR + "\n    def success(self, episode):\n        return True\n"
    (tmp_path / "four.py").write_text(won)
    seats = "agents={'*': random_legal}"
    assert command("run", "four.py", "-n", 2, seats, "--out", "out", "--quiet")[0] == 0
    code, out, err = command("explain", "out", "--plays", 2, "--json", "--quiet")
    first = json.loads((tmp_path / "out" / "episodes.jsonl").read_text().splitlines()[0])
    assert code == 0 and json.loads(out)["episode"] == first["id"], err


@pytest.mark.long
def test_shares_of_a_team_cost_its_own_coalitions(command: Command, tmp_path: Path) -> None:
    (tmp_path / "four.py").write_text(FOUR)
    talk = TALK.replace("{{id: dilemma, rounds: 4, tasks: 2}}", "{{id: four.py}}")
    with FaultServer(wavering(1)) as server:
        (tmp_path / "talk.yaml").write_text(talk.replace("player_", "").format(url=server.url))
        assert command("run", "talk.yaml", "-n", 1, "--out", "out", "--quiet")[0] == 0
        before = len(server.asked)
        shares = ("--agents", "--agent", "duo", "--against", "random_legal")
        code, _, err = command("explain", "out", "--episode", "0", *shares, "--plays", 2)
        asked = len(server.asked) - before
    # nobody, a, b and both: c and d ask in each of them
    assert code == 0 and "about 24 model calls" in err and asked == 24, err


@pytest.mark.longest
@pytest.mark.usefixtures("ctrl_c")
def test_what_was_bought_before_ctrl_c_is_bought_once(command: Command, tmp_path: Path) -> None:
    pick = random.Random(4)
    stop: list[int] = []

    def answer(asked: Asked) -> Answer:
        if stop and len(server.asked) >= stop[0]:
            stop.clear()
            _thread.interrupt_main()
        return says(pick.choice(["cooperate", "defect"]), usage=(100, 10))

    explain = (
        "explain",
        "out",
        "--episode",
        "0",
        "--agent",
        "player_0",
        "--plays",
        8,
        "--json",
        "--quiet",
    )
    with FaultServer(answer) as server:
        (tmp_path / "talk.yaml").write_text(TALK.format(url=server.url))
        run = ("run", "talk.yaml", "run.concurrency=2", "--out", "out", "--quiet")
        assert command(*run)[0] == 0
        begun = len(server.asked)
        stop.append(begun + 20)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            code, out, err = command(*explain)
            gc.collect()
        assert (code, out) == (130, "")
        assert not [str(one.message) for one in warned if "never awaited" in str(one.message)]
        assert err.endswith("go on with the same command: what the endpoint answered is kept\n")
        bought = len(server.asked)
        first = command(*explain)
        again = len(server.asked)
        second = command(*explain)
        assert first[0] == 0 and first[1] == second[1] and len(server.asked) == again
    requests = [request.body for request in server.asked[begun:]]
    assert bought >= begun + 20
    twice = len(requests) - len({json.dumps(body, sort_keys=True) for body in requests})
    assert twice <= 4  # those that ran when it was stopped: two forks at once, of two agents each


@pytest.mark.long
@pytest.mark.parametrize("used", [None, (0, 0), (3, 1)])
def test_forks_are_not_stopped_by_a_server_that_counts_no_or_few_tokens(
    used: tuple[int, int] | None, command: Command, tmp_path: Path
) -> None:
    with FaultServer(lambda asked: says("cooperate", usage=used)) as server:
        (tmp_path / "talk.yaml").write_text(TALK.format(url=server.url))
        assert command("run", "talk.yaml", "--out", "out", "--quiet")[0] == 0
        code, _, err = command("explain", "out", "--episode", "0", "--plays", 2)
    assert code == 0 and "the cost is reached" not in err, err
    counted = used == (3, 1)
    assert ("tokens unknown" in err) is not counted
    assert bool(re.search(r"stops at \d+ calls or \d+ tokens", err)) is counted


@pytest.mark.long
def test_it_stops_where_the_cost_that_was_said_is_reached(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gem_ma.runs.explaining.MARGIN", 0.25)
    with FaultServer(wavering(2)) as server:
        (tmp_path / "talk.yaml").write_text(TALK.format(url=server.url))
        assert command("run", "talk.yaml", "--out", "out", "--quiet")[0] == 0
        before = len(server.asked)
        code, out, err = command("explain", "out", "--episode", "0", "--plays", 3)
        asked = len(server.asked) - before
        said = re.search(r"stops at (\d+) calls", err)
        assert code == 0 and said is not None and asked <= int(said[1])
        assert re.search(r"the cost is reached: \d+ forks stopped before the end", err)
        assert "failed and are left out" in out
        before = len(server.asked)
        code, _, err = command("explain", "out", "--episode", "0", "--plays", 200)
        assert (code, len(server.asked)) == (2, before)
        assert re.search(r"about \d+ model calls.*more than 1000 calls; .*--plays, .*--yes", err)


@pytest.mark.long
def test_deals_that_a_budget_ends_are_told_and_not_looked_for_on_and_on(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gem_ma.runs.explaining.MARGIN", 0.001)
    with FaultServer(wavering(3)) as server:
        (tmp_path / "talk.yaml").write_text(TALK.format(url=server.url))
        assert command("run", "talk.yaml", "--out", "out", "--quiet")[0] == 0
        before = len(server.asked)
        code, out, err = command(
            "explain",
            "out",
            "--episode",
            "0",
            "--plays",
            3,
            "--given",
            "view",
            "--agent",
            "player_0",
        )
        said = re.search(r"stops at (\d+) calls", err)
        assert code == 0 and said is not None
        assert len(server.asked) - before <= int(said[1])
        # the first deal is ended by it, and of 3,000 no other one is tried
        assert "the cost is reached: 1 fork stopped" in err and "n/a" in out


@pytest.mark.long
def test_a_model_without_a_price_stops_by_its_calls(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gem_ma.runs.explaining.MARGIN", 0.25)
    table = ("policies.main.model=table/softmax", "agents.player_0.policy=main")
    assert command("run", "kuhn_poker", *table, "-n", 2, "--out", "out", "--quiet")[0] == 0
    code, _, err = command("explain", "out", "--episode", "0", "--plays", 20)
    assert code == 0 and "the cost is reached" in err


@pytest.mark.long
def test_forks_of_other_code_are_refused(command: Command, tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text("def act(messages, legal, rng):\n    return rng.choice(legal)\n")
    mine = "agents.player_0.behaviour=mine.py:act"
    assert command("run", "kuhn_poker", mine, "-n", 2, "--out", "out", "--quiet")[0] == 0
    assert command("explain", "out", "--episode", "0", "--plays", 2, "--quiet")[0] == 0
    source.write_text("def act(messages, legal, rng):\n    return legal[0]\n")
    code, out, err = command("explain", "out", "--episode", "0", "--plays", 2, "--quiet")
    assert (code, out) == (2, "")
    assert "mine.py changed since the run began" in err and "play it anew" in err
    kept = (tmp_path / "out" / EXPLAINED).read_text()
    assert kept.count("\n") == 1


def test_forks_of_edited_settings_are_refused(command: Command, tmp_path: Path) -> None:
    assert command("run", "kuhn_poker", "-n", 2, "--out", "out", "--quiet")[0] == 0
    resolved = tmp_path / "out" / "resolved.yaml"
    text = resolved.read_text()
    asked = ("explain", "out", "--episode", "0", "--plays", 2, "--quiet")
    for edited in (True, False):
        resolved.write_text(text.replace("random_legal", "first_legal") if edited else text)
        code, out, err = command(*asked)
        assert (code, out == "") == ((2, True) if edited else (0, False))
        assert ("resolved.yaml was edited since the run began" in err) is edited
        code, _, err = command("show", "out")
        assert code == 0 and ("resolved.yaml was edited" in err) is edited


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--agents"], "--agents: say who sits in place"),
        (["--agent", "nobody"], "no agent of kuhn_poker is called 'nobody'; its agents are"),
        (["--against", "direct"], "samples from a policy; name a bot"),
        (["--messages", "--given", "view"], "--messages: a message is held against silence"),
        (["--other-deal"], "--other-deal: goes with --messages"),
        (["--episode", "999"], "no episode '999'"),
        (["--messages", "--agents"], "--messages and --agents: one at a time"),
        (["--agents", "--against", "random_legal"], "kuhn_poker is zero-sum"),
    ],
)
def test_what_does_not_go_is_one_line(
    options: list[str], words: str, command: Command, tmp_path: Path
) -> None:
    assert command("run", "kuhn_poker", "-n", 2, "--out", "out", "--quiet")[0] == 0
    asked = [*(["--episode", "0"] if "--episode" not in options else []), *options]
    code, out, err = command("explain", "out", "--quiet", *asked)
    assert (code, out) == (2, "")
    assert words in err
    assert not (tmp_path / "out" / EXPLAINED).exists()


@pytest.mark.long
@pytest.mark.parametrize("options", [[], ["--given", "view"], ["--messages"]], ids=str)
def test_an_agent_that_was_never_asked_has_nothing_to_explain(
    options: list[str], command: Command
) -> None:
    cut = ("run.max_steps=1", "run.baselines=false")
    assert command("run", "kuhn_poker", *cut, "-n", 1, "--out", "out", "--quiet")[0] == 0
    asked = ("explain", "out", "--episode", "0", "--quiet", "--plays", 2, *options)
    code, out, err = command(*asked, "--agent", "player_1")
    assert (code, out) == (2, "") and "--agent player_1: it has no turn" in err
    assert command(*asked)[0] == 0


@pytest.mark.long
def test_a_fork_that_failed_is_counted_once_whoever_felt_it(command: Command) -> None:
    assert command("run", "kuhn_poker", "-n", 8, "--out", "out", "--quiet")[0] == 0
    asked = ("explain", "out", "--quiet", "--messages", "--other-deal", "--plays", 16)
    code, out, _ = command(*asked, "--agent", "player_0")
    # in about half of the deals player_0 is not asked a second time
    found = re.search(r"(\d+) forks failed and are left out \(or the other deal", out)
    assert code == 0 and found is not None and 0 < int(found[1]) <= 16
    Path("raises.py").write_text("def Raises(messages, legal, rng):\n    raise ValueError\n")
    asked = ("explain", "out", "--quiet", "--agents", "--agent", "player_0", "--plays", 4)
    _, out, _ = command(*asked, "--against", "raises.py:Raises")
    # of the four plays of a pair all but that in which nobody is left out
    assert "12 forks failed and are left out; mostly ValueError\n" in out


@pytest.mark.longest
def test_five_talks_cost_what_was_said_and_never_more_than_the_most(
    command: Command, tmp_path: Path
) -> None:
    """Also of a server that fails at times and thinks longer than it did when it played."""
    is_explained = False
    answered: list[int] = []

    def answer(asked: Asked) -> Answer:
        if is_explained and asked.number % 4 == 0:
            return status(500, retry_after=0)
        used = (100, 20 if is_explained else 10)
        answered.append(sum(used))
        # by the request's own seed: the same in every order of the requests
        act = random.Random(asked.body["seed"]).choice(["cooperate", "defect"])
        return says(act, usage=used)

    about = asked = 0
    with FaultServer(answer) as server:
        (tmp_path / "talk.yaml").write_text(TALK.format(url=server.url))
        assert command("run", "talk.yaml", "-n", 5, "--out", "out", "--quiet")[0] == 0
        seeds = [row.seed for row in read_rows(tmp_path / "out", Brief)]
        is_explained = True
        assert len(seeds) == 5
        for seed in seeds:
            answered.clear()
            which = ("--episode", seed, "--plays", 2, "--agent", "player_0")
            code, _, err = command("explain", "out", *which, "--json")
            said = re.search(r"about (\d+) model calls,.*; it stops at (\d+) calls or (\d+)", err)
            assert code == 0 and said is not None, err
            assert len(answered) <= int(said[2])
            assert sum(answered) <= int(said[3])
            about += int(said[1])
            asked += len(answered)
    assert 0.75 * about < asked < 1.25 * about
