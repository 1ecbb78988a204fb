"""Seats by pattern: the same agents sit by the same keys, through whatever entrance they come; and a
key that seats nobody, or of which nobody could say whom, is refused through each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import permutations
from pathlib import Path

import pytest

import gem_ma
from gem_ma.cli.main import main
from gem_ma.cli.seats import seated
from gem_ma.config import load
from gem_ma.config.loading import load_study
from gem_ma.kernel.errors import ConfigError
from gem_ma.runs.worlds import worlds_of

AGENTS = ("red_0", "red_1", "blue_0", "blue_1")
GAME = f"""
from gem_ma import Ask, Reward, Scenario
class Crowd(Scenario):
    agents = {AGENTS}
    default_cast = {{"red_0": "random_legal"}}
    ends_within = 1
    chance = False
    def play(self, rng, task):
        yield Ask(dict.fromkeys(self.agents, "Act."), legal=("a", "b"))
        yield Reward(dict.fromkeys(self.agents, 1.0))
class Pair(Crowd):
    agents = ("red_0", "red_1")
"""
F, R, S = "first_legal", "random_legal", "silent"
Seats = Mapping[str, str]
# keys of `agents:` -> who plays red_0, red_1, blue_0 and blue_1
TABLE: list[tuple[Seats, tuple[str, ...]]] = [
    ({"*": F}, (F, F, F, F)),
    ({"????_*": F, "*": R}, (R, R, F, F)),
    ({"red_*": F, "blue_*": S}, (F, F, S, S)),
    ({"*": F, "red_1": S}, (F, S, F, F)),
    ({"*": F, "*_1": S}, (F, S, F, S)),
    ({"*": F, "red_*": S, "red_0": R}, (R, S, F, F)),
    ({"*d_?": F, "b*": S}, (F, F, S, S)),
    ({"*": F, "*_1": S, "blue_*": R}, (F, S, R, R)),
]
REFUSED: list[tuple[Seats, str]] = [
    ({"*": F, "rad_*": F}, r"rad_\*: no agent of .* has this name \(did you mean 'red_"),
    ({"*": F, "red_*": S, "red_?": R}, r"agents\.red_\*: seats nobody"),
    ({"red_*": F, "red_0": S, "red_1": R, "b*": F}, r"red_\*: seats nobody.*red_0.*red_1"),
    ({"*": F, "re*": S, "*_1": R}, "'red_1' fits .* too: write 'red_1' out"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crowd.py").write_text(GAME)
    return tmp_path


def cast(loaded: gem_ma.Loaded, place: int = 0) -> dict[str, str]:
    """Who plays, in what is played or, from the other end, examined."""
    worlds = worlds_of(loaded.config, base=loaded.base)
    world = (worlds.played + worlds.examined)[place]
    return {agent: seat.behaviour for agent, seat in world.config.agents.items()}


def typed(seats: Seats) -> list[str]:
    return [f"agents.{key}={who}" for key, who in seats.items()]


def written(text: str, seats: Seats, name: str = "game.yaml") -> str:
    Path(name).write_text(text.replace("SEATS", json.dumps(seats)))
    return name


ALONE = "scenario: {id: crowd.py:Crowd, tasks: 2}\n"
LEARNS = """scenario: {id: crowd.py:Crowd, tasks: 2}
agents: SEATS
policies: {main: {model: table/softmax}}
train: {steps: 1, episodes: 2, policies: []}
"""
SEVERAL = "scenarios: {small: {id: crowd.py:Pair}, large: {id: crowd.py:Crowd}}\nagents: SEATS\n"
INSIDE = "scenarios: {a: {id: crowd.py:Crowd, agents: SEATS}}\n"
EXAMINED = "scenario: {id: crowd.py:Pair}\nagents: {red_0: silent, red_1: silent}\n"
EXAMINED += "evaluate: {scenarios: {exam: {id: crowd.py:Crowd, agents: SEATS}}}\n"
GRID = "scenario: {id: crowd.py:Crowd, tasks: 1}\nstudy: {}\ngrid: {agents: {one: SEATS}}\n"


def _of_an_id(seats: Seats) -> dict[str, str]:
    return cast(load("crowd.py:Crowd", typed(seats)))


def _of_a_mapping(seats: Seats) -> dict[str, str]:
    return cast(load("crowd.py:Crowd", {f"agents.{key}": who for key, who in seats.items()}))


def _of_a_whole_section(seats: Seats) -> dict[str, str]:
    return cast(load(written(ALONE + "agents: {}", {}), [f"agents={json.dumps(seats)}"]))


def _of_a_file(seats: Seats) -> dict[str, str]:
    return cast(load(written(ALONE + "agents: SEATS", seats)))


def _typed_at_a_file(seats: Seats) -> dict[str, str]:
    return cast(load(written(ALONE, {}), typed(seats)))


def _of_an_extended_file(seats: Seats) -> dict[str, str]:
    written(ALONE + "agents: SEATS", seats, "base.yaml")
    return cast(load(written("extends: base.yaml\nrun: {seed: 3}", {})))


def _of_a_training(seats: Seats) -> dict[str, str]:
    return cast(load(written(LEARNS, seats)))


def _of_several_worlds(seats: Seats) -> dict[str, str]:
    loaded = load(written(SEVERAL, seats))
    assert cast(loaded).items() <= cast(loaded, 1).items()
    return cast(loaded, 1)


def _of_one_of_several(seats: Seats) -> dict[str, str]:
    return cast(load(written(INSIDE, seats)))


def _of_an_exam(seats: Seats) -> dict[str, str]:
    return cast(load(written(EXAMINED, seats)), -1)


def _of_a_cell(seats: Seats) -> dict[str, str]:
    (cell,) = load_study(written(GRID, seats)).cells.values()
    return cast(cell)


def _of_axes(seats: Seats) -> dict[str, str]:
    axes = {f"agents.{key}": [who] for key, who in seats.items()}
    (cell,) = load_study(
        written(GRID.replace("{agents: {one: SEATS}}", "SEATS"), axes)
    ).cells.values()  # type: ignore[arg-type]
    return cast(cell)


ENTRANCES: list[Callable[[Seats], dict[str, str]]] = [
    _of_an_id,
    _of_a_mapping,
    _of_a_whole_section,
    _of_a_file,
    _typed_at_a_file,
    _of_an_extended_file,
    _of_a_training,
    _of_several_worlds,
    _of_one_of_several,
    _of_an_exam,
    _of_a_cell,
    _of_axes,
]


@pytest.mark.long
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_the_same_keys_seat_the_same_through_every_entrance(
    entrance: Callable[[Seats], dict[str, str]], here: Path
) -> None:
    for keys, who in TABLE:
        for order in (keys, dict(reversed(keys.items()))):
            assert entrance(order) == dict(zip(AGENTS, who, strict=True)), order


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_key_that_seats_nobody_or_anybody_is_refused_through_every_entrance(
    entrance: Callable[[Seats], dict[str, str]], here: Path
) -> None:
    for keys, message in REFUSED:
        with pytest.raises(ConfigError, match=message) as refused:
            entrance(keys)
        assert "\n" not in str(refused.value)


def test_what_is_typed_may_take_all_seats_of_a_pattern_in_a_file(here: Path) -> None:
    names = dict.fromkeys(AGENTS, F)
    file = written(ALONE + "agents: SEATS", {"*": R, "red_*": S})
    assert cast(load(file, typed(names))) == names
    assert cast(load(file, typed({"????_*": F, "red_?": S}))) == dict(
        zip(AGENTS, (S, S, F, F), strict=True)
    )
    with pytest.raises(ConfigError, match=r"command line: agents\.\*: seats nobody.*game.yaml:2"):
        load(written(ALONE + "agents: SEATS", names), typed({"*": R}))
    written(ALONE + "agents: SEATS", {"*": R}, "base.yaml")
    assert cast(load(written("extends: base.yaml\nagents: SEATS", names))) == names
    grid = GRID.replace("study", "agents: {'*': silent}\nstudy")
    (cell,) = load_study(written(grid, names)).cells.values()
    assert cast(cell) == names


@pytest.mark.long
def test_one_key_of_an_agent_is_set_in_a_copy_of_the_seat_of_its_pattern(here: Path) -> None:
    parts = ["agents.red_*=first_legal", "agents.b*=silent", "agents.red_1.tools=[python]"]
    for words in permutations(parts):
        for source in ("crowd.py:Crowd", written(ALONE, {})):
            loaded = load(source, words)
            assert cast(loaded) == dict(zip(AGENTS, (F, F, S, S), strict=True))
            tools = {a: len(seat.tools) for a, seat in loaded.config.agents.items() if seat.tools}
            assert tools == {"red_1": 1}
    for text, above in ((INSIDE, "scenarios.a"), (EXAMINED, "evaluate.scenarios.exam")):
        words = [f"{above}.agents.red_1.tools=[python]"]
        assert cast(load(written(text, {"*": S}), words), -1) == dict.fromkeys(AGENTS, S)
    everyone = [f"agents.{agent}.tools=[python]" for agent in AGENTS]
    assert set(cast(load("crowd.py:Crowd", ["agents.*=silent", *everyone])).values()) == {S}
    learns = LEARNS.replace("policies: []", "policies: [main]")
    file = written(learns.replace("SEATS", "{'*': {policy: main}}"), {})
    served = load(file, ["agents.red_0.behaviour=program", "agents.red_0.options={}"]).config
    assert served.agents["red_0"].policy == "main"


def test_a_short_form_names_an_agent_that_a_pattern_seats(here: Path) -> None:
    policies = "policies: {main: {model: table/softmax}}\n"
    seat = {"*": {"policy": "main", "memory": {"turns": 4}}}
    file = written(ALONE + policies + "agents: SEATS", seat)  # type: ignore[arg-type]
    source, words = seated(file, ["--red-1", "silent", "--blue_0", "openai/some"])
    loaded = load(source, words)
    world = worlds_of(loaded.config, base=loaded.base).played[0].config
    assert (world.agents["red_1"].behaviour, world.agents["red_1"].policy) == (S, None)
    assert world.agents["blue_0"].policy == "blue_0" and world.agents["blue_0"].memory
    assert world.policies["blue_0"].model == "openai/some"


@pytest.mark.long
def test_a_run_by_pattern_plays_and_records_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = gem_ma.run("crowd.py:Crowd", {"agents.red_*": F, "agents.b*": S}, n=2, out="here")
    played = [{agent: seat.behaviour for agent, seat in e.cast.items()} for e in run.episodes()]
    assert played == [dict(zip(AGENTS, (F, F, S, S), strict=True))] * 2
    assert main(["run", "dilemma", "agents.player_*=first_legal", "-n", "2"]) == 0
    # an option may make more agents than the class names
    assert main(["run", "matrix", "scenario.preset=bar", "scenario.agents=5", "-n", "1"]) == 0
    assert main(["run", "public_goods", "scenario.agents=5", "-n", "1"]) == 0
    assert main(["run", "dilemma", "agents.playr_*=first_legal", "-n", "2"]) == 2
    assert "agents.playr_*: no agent of dilemma" in capsys.readouterr().err


def test_credit_names_agents_by_pattern(here: Path) -> None:
    file = written(LEARNS, {"*": F})
    team = "train.credit={rule: team_mix(0.5), team: ['red_*', blue_1]}"
    gamma = "train.credit.gamma={'*': 1.0, red_*: 0.5, red_1: {from: 0.5, to: 1.0, steps: 9}}"
    credit = load(file, [team]).config.train.credit  # type: ignore[union-attr]
    assert credit.team == ["red_0", "red_1", "blue_1"]
    credit = load(file, [gamma]).config.train.credit  # type: ignore[union-attr]
    assert isinstance(credit.gamma, dict) and list(credit.gamma) == list(AGENTS)
    assert [credit.gamma[name] for name in ("red_0", "blue_0")] == [0.5, 1.0]
    for word in ("gamma={rod_*: 0.5, '*': 1.0}", "team=['rod_*']"):
        with pytest.raises(ConfigError, match=r"no agent of .* has this name"):
            load(file, [f"train.credit.{word}"])
