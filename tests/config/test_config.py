"""A config is read whole or refused whole: every fault at once, each with its file, line and
key, and the nearest name."""

import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gem_ma.config.document import COMMAND_LINE, parted
from gem_ma.config.loading import load
from gem_ma.config.schema import reveal
from gem_ma.config.sources import locate
from gem_ma.kernel.errors import ConfigError, DataError, GemMaError
from gem_ma.kernel.scenario import Ask, Play, Scenario
from gem_ma.kernel.spelling import in_quotes
from gem_ma.runs.plans import open_policies

TAU_BENCH = Path(
    os.environ.get("TAU_BENCH_PATH") or Path(__file__).resolve().parents[3] / "shared" / "tau_bench"
)
ROOT = Path(__file__).resolve().parents[2]
GOOD = """\
# A game of two bots.
scenario: {id: dilemma, rounds: 3, tasks: 4}
agents:
  player_0: {behaviour: first_legal}
  player_1: {policy: main}
policies:
  main: {model: table/softmax}
run: {seed: 7, max_failed: 2%}
"""
TRAIN = "train: {policies: [main], steps: 2, lr: 1e-2}\n"


def written(folder: Path, text: str, name: str = "run.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str, *overrides: str) -> list[str]:
    """The lines of the refusal, without the folder."""
    path = written(folder, text)
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    return str(caught.value).replace(f"{folder}/", "").split("\n")


# -- what is read --------------------------------------------------------------------------------


def test_a_file_becomes_settings_with_its_text_and_path(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD + TRAIN)
    loaded = load(path)
    config = loaded.config
    assert (config.scenario.id, config.scenario.tasks, config.scenario.options) == (
        "dilemma",
        4,
        {"rounds": 3},
    )
    assert (
        config.agents["player_1"].policy == "main"
        and config.policies["main"].model == "table/softmax"
    )
    assert config.train is not None and config.train.lr == 0.01
    assert (loaded.text, loaded.path, loaded.stem) == (GOOD + TRAIN, path, "run")


def test_the_resolved_config_written_as_yaml_loads_to_an_equal_config(tmp_path: Path) -> None:
    loaded = load(
        written(tmp_path, GOOD + TRAIN), ["run.seed=9", "policies.main.stop=['no', '12:30']"]
    )
    again = load(
        written(tmp_path, yaml.safe_dump(loaded.resolved(), sort_keys=False), "resolved.yaml")
    )
    assert again.config == loaded.config and again.resolved() == loaded.resolved()


def test_a_scenario_id_seats_every_agent_on_a_default_behaviour() -> None:
    loaded = load("kuhn_poker")
    assert {agent: seat.behaviour for agent, seat in loaded.config.agents.items()} == {
        "player_0": "random_legal",
        "player_1": "random_legal",
    }
    assert (
        loaded.path is None and loaded.stem == "kuhn_poker" and loaded.config.scenario.tasks == 20
    )


class Cast(Scenario):
    """Two agents, one with a default behaviour."""

    agents = ("a", "b")
    default_cast = {"b": "silent"}

    def play(self, rng: object, task: object) -> Play:
        yield Ask({"a": "?"})


def test_a_scenario_may_say_who_plays_by_default() -> None:
    behaviours = {
        agent: seat.behaviour
        for agent, seat in load("tests.config.test_config:Cast").config.agents.items()
    }
    assert behaviours == {"a": "random_legal", "b": "silent"}


def test_a_word_on_the_command_line_about_an_agent_replaces_its_default() -> None:
    config = load(
        "dilemma", ["agents.player_0.behaviour=first_legal", "agents.player_1.model=table/softmax"]
    ).config
    assert config.agents["player_0"].behaviour == "first_legal"
    assert (config.agents["player_1"].behaviour, config.agents["player_1"].policy) == (
        "direct",
        "player_1",
    )
    assert config.policies["player_1"].model == "table/softmax"


def test_a_shipped_config_is_found_by_its_stem() -> None:
    assert load("kuhn_random").config == load(ROOT / "configs" / "kuhn_random.yaml").config


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name
)
def test_every_shipped_config_loads_and_begins_with_a_comment(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "tau1" in path.name:
        if not TAU_BENCH.is_dir():
            pytest.skip(
                f"{path.name} plays tau-bench's own tasks: name its checkout in TAU_BENCH_PATH"
            )
        monkeypatch.setenv("TAU_BENCH_PATH", str(TAU_BENCH))
    load(path)
    assert path.read_text().startswith("# ")


def test_overrides_are_read_by_the_same_rules_and_replace_whole_values(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    loaded = load(
        path,
        [
            "run.seed=1_000",
            "scenario.tasks=[0]",
            "policies.main={model: table/softmax, temperature: 0.5}",
            "run.max_steps=~",
        ],
    )
    assert (loaded.config.run.seed, loaded.config.scenario.tasks, loaded.config.run.max_steps) == (
        1000,
        [0],
        None,
    )
    assert loaded.config.policies["main"].temperature == 0.5
    assert loaded.written() == GOOD + "".join(
        f'# override "{override}"\n' for override in loaded.overrides
    )


# -- what is refused -----------------------------------------------------------------------------


def test_all_faults_are_told_at_once_in_the_order_of_the_lines(tmp_path: Path) -> None:
    text = """\
scenario: {id: dilemma, rouds: 3}
agents:
  player_0: {behaviour: first_lega, policy: mein}
  player_2: {behaviour: silent}
policies:
  main: {model: tabel/softmax, temprature: 0}
run: {seed: seven, concurrency: 0, max_failed: many}
run: {seed: 7}
trian: {}
"""
    assert refused(tmp_path, text) == [
        "run.yaml:1: scenario.rouds: unknown key (did you mean 'rounds'?)",
        "run.yaml:2: agents: no seat for 'player_1'; the agents of dilemma are player_0, player_1",
        (
            "run.yaml:3: agents.player_0.behaviour: no behaviour is called 'first_lega' (did you"
            " mean 'first_legal'?)"
        ),
        "run.yaml:3: agents.player_0.policy: no policy is called 'mein' (did you mean 'main'?)",
        (
            "run.yaml:4: agents.player_2: no agent of dilemma has this name (did you mean 'player_1'"
            " or 'player_0'?)"
        ),
        "run.yaml:6: policies.main.model: no engine is called 'tabel' (did you mean 'table'?)",
        "run.yaml:7: run.seed: wants an integer; got 'seven'",
        "run.yaml:7: run.concurrency: should be greater than or equal to 1; got 0",
        (
            "run.yaml:7: run.max_failed: should be a number of episodes, or a share such as 2%; got"
            " 'many'"
        ),
        "run.yaml:8: duplicate key 'run' (first at line 7)",
        "run.yaml:9: trian: unknown key (did you mean 'train'?)",
    ]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            ("{seed: 7, max_failed: 2%}", "{sed: 7}"),
            "run.yaml:8: run.sed: unknown key (did you mean 'seed'?)",
        ),
        (
            ("model: table/softmax", "model: table/softmax, temprature: 0"),
            "run.yaml:7: policies.main.temprature: unknown key (did you mean 'temperature'?)",
        ),
        (("{seed: 7, max_failed: 2%}", "7"), "run.yaml:8: run: wants keys with values; got 7"),
        (
            ("{id: dilemma, rounds: 3, tasks: 4}", "[dilemma]"),
            "run.yaml:2: scenario: wants keys with values or null; got ['dilemma']; several stand"
            " below `scenarios:`",
        ),
        (("seed: 7", "seed: true"), "run.yaml:8: run.seed: wants an integer; got True"),
        (("seed: 7", "seed: '7'"), "run.yaml:8: run.seed: wants an integer; got '7'"),
        (
            ("rounds: 3", "rounds: three"),
            'run.yaml:2: scenario.rounds: should be a valid integer; got "three"',
        ),
        (
            ("tasks: 4", "tasks: [0, 4]"),
            "run.yaml:2: scenario.tasks[1]: no task 4; split 'test' has 1 (0 to 0)",
        ),
        (
            ("tasks: 4", "tasks: [-1]"),
            "run.yaml:2: scenario.tasks[0]: no task -1; split 'test' has 1 (0 to 0)",
        ),
        (("tasks: 4", "tasks: 0"), "run.yaml:2: scenario.tasks: names no task; got 0"),
        (
            ("tasks: 4", "tasks: [0, 0]"),
            "run.yaml:2: scenario.tasks: names a task twice; use run.episodes_per_task; got [0, 0]",
        ),
        (
            ("tasks: 4", "tasks: many"),
            (
                "run.yaml:2: scenario.tasks: wants an integer, a list (an integer each) or null;"
                " got 'many'"
            ),
        ),
        (("id: dilemma, ", ""), "run.yaml:2: scenario.id: is missing; it is text"),
        (
            ("id: dilemma", "id: dilema"),
            "run.yaml:2: scenario.id: no scenario is called 'dilema' (did you mean 'dilemma'?)",
        ),
        (
            ("id: dilemma", "id: 'os:abort'"),
            "run.yaml:2: scenario.id: 'os:abort' is no Scenario; a config calls no function: name a"
            " class, or a scenario that is made",
        ),
        (
            ("id: dilemma", "id: 'no_such_package:X'"),
            (
                "run.yaml:2: scenario.id: scenario 'no_such_package:X': there is no module"
                " 'no_such_package'"
            ),
        ),
        (
            ("{behaviour: first_legal}", "{behaviour: first_legal, options: {wait: 1}}"),
            "run.yaml:4: agents.player_0.options.wait: unknown key (it takes no options)",
        ),
        (
            ("{behaviour: first_legal}", "{}"),
            (
                "run.yaml:4: agents.player_0: the behaviour 'direct' samples from a policy; "
                "name one (policy: ...), or take a bot (random_legal, first_legal)"
            ),
        ),
        (
            ("{behaviour: first_legal}", "{behaviour: first_legal, 'a\\nb': 1}"),
            (
                r"run.yaml:4: agents.player_0.a\nb: unknown key (known: behaviour, memory, options,"
                r" policies, policy, tools)"
            ),
        ),
        (
            ("table/softmax", "table/softmax, api_key: sk-1234"),
            "run.yaml:7: policies.main.api_key: a secret is named, never written: ${env:NAME}",
        ),
        (
            ("table/softmax", "'${env:MODEL}'"),
            "run.yaml:7: policies.main.model: ${...} stands in secret fields only, such as api_key",
        ),
        (
            ("{policy: main}", "{policy: main, policies: {judge: mian}}"),
            (
                "run.yaml:5: agents.player_1.policies.judge: no policy is called 'mian' (did you"
                " mean 'main'?)"
            ),
        ),
        (
            ("table/softmax", "table/softmax, base_url: 'http://me:pass@host/v1'"),
            (
                "run.yaml:7: policies.main.base_url: a URL with a password in it; use api_key:"
                " ${env:NAME}"
            ),
        ),
    ],
)
def test_a_fault_names_file_line_key_and_what_to_do(
    tmp_path: Path, change: tuple[str, str], line: str
) -> None:
    assert change[0] in GOOD
    assert line in refused(tmp_path, GOOD.replace(*change))


def test_a_refused_secret_is_not_repeated(tmp_path: Path) -> None:
    assert "sk-1234" not in "\n".join(
        refused(tmp_path, GOOD.replace("table/softmax", "table/softmax, api_key: sk-1234"))
    )


@pytest.mark.parametrize(
    ("train", "line"),
    [
        (
            "{policies: [mian]}",
            "run.yaml:9: train.policies[0]: no policy is called 'mian' (did you mean 'main'?)",
        ),
        (
            "{policies: [other]}",
            (
                "run.yaml:9: train.policies[0]: 'other' plays no agent; give it one"
                " (agents.player_0.policy)"
            ),
        ),
        (
            "{policies: [fixed]}",
            (
                "run.yaml:9: train.policies[0]: 'fixed' cannot learn: its engine"
                " 'tests.config.test_config:Fixed' is not trainable"
            ),
        ),
        (
            "{policies: [main], warm_start: {mian: {cast: {}}}}",
            "run.yaml:9: train.warm_start.mian: no policy has this name (did you mean 'main'?)",
        ),
        (
            "{policies: [main], credit: {gamma: {player_3: 1.0}}}",
            (
                "run.yaml:9: train.credit.gamma.player_3: no agent of dilemma has this name (did you"
                " mean 'player_1' or 'player_0'?)"
            ),
        ),
        (
            "{policies: [main], credit: {rule: own}}",
            (
                "run.yaml:9: train.credit.rule: wants until_next_turn, own_step, terminal_to_last,"
                " or team_mix(w) with w in 0..1 (did you mean 'own_step'?); got 'own'"
            ),
        ),
        ("{policies: [main], lr: 1e400}", "run.yaml:9: train.lr: 1e400 is not a finite number"),
        ("{policies: main}", "run.yaml:9: train.policies: wants a list (text each); got 'main'"),
    ],
)
def test_what_may_learn_is_checked_against_policies_engines_and_agents(
    tmp_path: Path, train: str, line: str
) -> None:
    text = GOOD.replace(
        "run:",
        "  other: {model: table/softmax}\n  fixed: {model: 'tests.config.test_config:Fixed/x'}\nrun:",
    )
    lines = refused(tmp_path, text + f"train: {train}\n")
    assert line.replace(":9:", ":11:") in lines


class Fixed:
    """An engine without weights."""

    def __init__(self, name: str, *, policy: str, port: int = 1) -> None:
        pass


class Oracle:
    """A behaviour that knows the task."""

    privileged = True

    def __init__(
        self, agent: str, sample: object, rng: object, task: object = None, *, style: str
    ) -> None:
        pass


def test_a_learned_policy_may_not_sit_on_a_privileged_behaviour(tmp_path: Path) -> None:
    text = (
        GOOD.replace(
            "{policy: main}",
            "{policy: main, behaviour: 'tests.config.test_config:Oracle', options: {style: plain}}",
        )
        + TRAIN
    )
    (line,) = refused(tmp_path, text)
    assert (
        line
        == "run.yaml:5: agents.player_1: the behaviour 'tests.config.test_config:Oracle' is given the task"
        " (privileged); a learned policy may not sit there"
    )


def test_options_are_compared_with_constructors(tmp_path: Path) -> None:
    text = GOOD.replace(
        "{behaviour: first_legal}",
        "{behaviour: 'tests.config.test_config:Oracle', options: {styl: plain}}",
    )
    text = text.replace("table/softmax", "'tests.config.test_config:Fixed/x', port: '80', prot: 1")
    assert refused(tmp_path, text) == [
        "run.yaml:4: agents.player_0.options.style: is missing; it has no default",
        "run.yaml:4: agents.player_0.options.styl: unknown key (did you mean 'style'?)",
        'run.yaml:7: policies.main.port: should be a valid integer; got "80"',
        "run.yaml:7: policies.main.prot: unknown key (did you mean 'port'?)",
    ]


class Shelf(Scenario):
    """A scenario with data."""

    agents = ("a",)

    def __init__(self, data: str = "", size: int = 1) -> None:
        if data and not Path(data).is_dir():
            raise DataError(f"no data folder {data}")
        if size < 1:
            raise ValueError("size must be positive")

    def tasks(self, split: str) -> list[int]:
        return [1, 2, 3] if split == "test" else []

    def play(self, rng: object, task: object) -> Play:
        yield Ask({"a": "?"})


SHELF = "scenario: {id: 'tests.config.test_config:Shelf', %s}\nagents: {a: {behaviour: silent}}\n"


def test_missing_data_is_a_data_error_with_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"run\.yaml:1: scenario\.data: no data folder nowhere$"):
        load(written(tmp_path, SHELF % "data: nowhere"))


def test_data_beside_the_config_is_found_from_any_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs" / "shop").mkdir(parents=True)
    path = written(tmp_path / "configs", SHELF % "data: shop")
    assert load(path).resolved()["scenario"]["data"] == str(tmp_path / "configs" / "shop")
    monkeypatch.chdir(tmp_path)
    loaded = load(path)
    assert loaded.resolved()["scenario"]["data"] == "configs/shop"
    assert loaded.identity()["scenario"]["data"] == "shop"
    assert (
        load(written(tmp_path, yaml.safe_dump(loaded.resolved()), "resolved.yaml")).resolved()
        == loaded.resolved()
    )


def test_words_beside_the_config_are_found_from_any_working_folder(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("cat\ndog\n", encoding="utf-8")
    text = "scenario: {id: wordle, length: 3, words: list.txt}\nagents: {player: wordle_simple}\n"
    loaded = load(written(tmp_path, text))
    assert loaded.resolved()["scenario"]["words"] == str(tmp_path / "list.txt")


def test_tasks_beyond_a_split_and_empty_splits_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, SHELF % "tasks: [2, 3]") == [
        "run.yaml:1: scenario.tasks[1]: no task 3; split 'test' has 3 (0 to 2)"
    ]
    assert refused(tmp_path, SHELF % "tasks: 4") == [
        "run.yaml:1: scenario.tasks: 4 tasks are wanted; split 'test' has 3"
    ]
    assert refused(tmp_path, SHELF % "split: dev") == [
        "run.yaml:1: scenario.split: split 'dev' has no tasks"
    ]
    assert refused(tmp_path, SHELF % "size: 0") == [
        "run.yaml:1: scenario: cannot be made: size must be positive"
    ]


# -- extends, overrides, secrets -----------------------------------------------------------------


def test_a_config_extends_another_and_replaces_whole_entries(tmp_path: Path) -> None:
    written(
        tmp_path,
        GOOD.replace("model: table/softmax", "model: table/softmax, temperature: 0.5"),
        "base.yaml",
    )
    loaded = load(
        written(
            tmp_path,
            "extends: base.yaml\nrun: {seed: 8}\npolicies:\n  main: {model: table/softmax}\n",
        )
    )
    assert (
        loaded.config.run.seed,
        loaded.config.run.max_failed,
        loaded.config.policies["main"].temperature,
    ) == (8, "2%", 1.0)


def test_faults_of_an_extended_config_name_the_file_that_has_them(tmp_path: Path) -> None:
    written(tmp_path, GOOD.replace("seed", "sed"), "base.yaml")
    assert refused(tmp_path, "extends: base.yaml\nrun: {concurency: 2}\n") == [
        "run.yaml:2: run.concurency: unknown key (did you mean 'concurrency'?)",
        "base.yaml:8: run.sed: unknown key (did you mean 'seed'?)",
    ]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("../base.yaml", "'../base.yaml' leaves the config's folder"),
        ("/etc/passwd", "'/etc/passwd' leaves the config's folder"),
        ("link.yaml", "'link.yaml' leaves the config's folder"),
        ("bas.yaml", "no such file: 'bas.yaml' (did you mean 'base.yaml'?)"),
        ("[base.yaml]", "wants the name of one config file in this folder"),
        ("second.yaml", "one level only: a config that is extended may not extend another"),
    ],
)
def test_extends_stays_in_its_folder_and_on_one_level(
    tmp_path: Path, target: str, said: str
) -> None:
    (tmp_path / "here").mkdir()
    written(tmp_path, GOOD, "base.yaml")
    written(tmp_path / "here", GOOD, "base.yaml")
    written(tmp_path / "here", "extends: base.yaml\n", "second.yaml")
    (tmp_path / "here" / "link.yaml").symlink_to(tmp_path / "base.yaml")
    with pytest.raises(ConfigError, match=re.escape(said)):
        load(written(tmp_path / "here", f"extends: {target}\n"))


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("run.sed=1", f"{COMMAND_LINE}: run.sed: unknown key (did you mean 'seed'?)"),
        ("run.seed", f"{COMMAND_LINE}: an override is dotted.key=value; got 'run.seed'"),
        ("run..seed=1", f"{COMMAND_LINE}: an override is dotted.key=value; got 'run..seed=1'"),
        ("run.seed.x=1", f"{COMMAND_LINE}: run.seed: holds no keys here; replace it whole"),
        (
            "run.seed=[1",
            (
                f"{COMMAND_LINE}: run.seed: not readable as YAML: did not find expected ',' or ']';"
                " quote the value"
            ),
        ),
        (
            "run.seed=010",
            (
                f"{COMMAND_LINE}: run.seed: the number 010 has a leading zero; drop it, or quote it"
                " if it is text"
            ),
        ),
        (
            "agents.player_9.behaviour=silent",
            (
                f"{COMMAND_LINE}: agents.player_9: no agent of dilemma has this name (did you mean"
                " 'player_1' or 'player_0'?)"
            ),
        ),
        (
            "scenario.tasks=99999999999999999999",
            (
                f"{COMMAND_LINE}: scenario.tasks: are more than a run can play; take at most"
                " 1,000,000,000,000; got 99999999999999999999"
            ),
        ),
        ("agents.player_1={policy: main, model: table/softmax}", None),
    ],
)
def test_overrides_are_refused_in_the_same_form(
    tmp_path: Path, override: str, line: str | None
) -> None:
    if line is None:
        assert load(written(tmp_path, GOOD), [override]).config.policies.keys() == {
            "main",
            "player_1",
        }
    else:
        assert line in refused(tmp_path, GOOD, override)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("run.seed=3", "run.seed=4"),
        ("run.seed=3", "run.seed=3"),
        ("run.seed=3", "run={max_steps: 9}"),
        ("run={max_steps: 9}", "run={seed: 3}"),
        ("agents.player_1.policy=main", "agents.player_1=first_legal"),
        ("scenario.tasks=3", "scenario.tasks=[0]"),
    ],
)
def test_what_is_typed_twice_is_refused(tmp_path: Path, first: str, second: str) -> None:
    path = written(tmp_path, GOOD)
    line = f"{COMMAND_LINE}: {second.partition('=')[0]}: typed twice; keep one of the two values"
    for both in ([first, second], [first, "run.concurrency=2", second]):
        with pytest.raises(ConfigError, match=f"^{re.escape(line)}$"):
            load(path, both, typed=True)


def test_in_python_the_last_of_several_values_holds(tmp_path: Path) -> None:
    assert load(written(tmp_path, GOOD), ["run.seed=3", "run.seed=4"]).config.run.seed == 4


def test_a_whole_value_may_be_followed_by_a_part_of_it(tmp_path: Path) -> None:
    typed = ["run={max_steps: 9}", "run.seed=4", "agents.player_1=first_legal"]
    typed.append("agents.player_1.behaviour=silent")
    config = load(written(tmp_path, GOOD), typed, typed=True).config
    assert (config.run.max_steps, config.run.seed) == (9, 4)
    assert config.agents["player_1"].behaviour == "silent"


def test_a_secret_that_a_later_override_replaces_is_refused(tmp_path: Path) -> None:
    typed = "policies.main={model: table/softmax, headers: {x: sk-aaaaaaaaaaaaaaaaaaaaaa}}"
    lines = refused(tmp_path, GOOD, typed, "policies.main.headers.x=1")
    assert any("this holds a key" in line for line in lines)


def test_many_overrides_are_looked_at_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the whole config after each of them."""
    from gem_ma.config import schema

    seen: list[object] = []
    before = schema._fault
    monkeypatch.setattr(schema, "_fault", lambda *words: (seen.append(words[0]), before(*words))[1])
    many = [f"scenario.key_{number}={number}" for number in range(200)]
    refused(tmp_path, GOOD, *many)
    assert 200 <= len(seen) < 800


def test_an_agent_with_model_and_policy_in_one_file_is_refused(tmp_path: Path) -> None:
    text = GOOD.replace("{policy: main}", "{policy: main, model: table/softmax}")
    assert (
        refused(tmp_path, text)[0]
        == "run.yaml:5: agents.player_1.model: an agent has either a model or a policy"
    )


def test_a_secret_stays_a_name_until_an_engine_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = GOOD.replace(
        "table/softmax", "'tests.config.test_config:Keyed/x', api_key: '${env:SOME_KEY}'"
    )
    loaded = load(written(tmp_path, text))
    assert loaded.resolved()["policies"]["main"]["api_key"] == "${env:SOME_KEY}"
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(
        ConfigError, match=r"^policies\.main\.api_key: the environment variable SOME_KEY is not set"
    ):
        reveal("${env:SOME_KEY}", "policies.main.api_key")
    monkeypatch.setenv("SOME_KEY", "abc")
    assert reveal("${env:SOME_KEY}", "policies.main.api_key") == "abc"
    assert reveal("EMPTY", "policies.main.api_key") == "EMPTY"


class Keyed:
    """An engine with a key."""

    def __init__(self, name: str, *, policy: str, api_key: str = "") -> None:
        pass


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("dilema", "dilema: no scenario and no config file has this name (did you mean 'dilemma'"),
        (
            "configs/dilema.yaml",
            "configs/dilema.yaml: no such file (did you mean 'configs/dilemma.yaml'?)",
        ),
        ("configs", "configs: no scenario and no config"),
        (
            "no_such:Thing",
            "no_such:Thing: scenario.id: scenario 'no_such:Thing': there is no module 'no_such'",
        ),
    ],
)
def test_an_unknown_source_names_the_nearest(
    source: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(ConfigError) as caught:
        load(source)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("typed", "own"), [("mine.yam", "mine.yaml"), ("mine.p", "mine.py"), ("mein.yamll", "mein.yml")]
)
def test_a_typing_error_in_the_name_of_a_file_that_lies_here_names_it(
    typed: str, own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / own).write_text("")
    with pytest.raises(ConfigError) as caught:
        load(typed)
    assert str(caught.value).endswith(f"(did you mean {own!r}?)")


@pytest.mark.parametrize("data", [b"", b"# nothing\n", b"- 1\n", b"\xff\xfe\x00", b"7"])
def test_a_file_that_is_no_mapping_of_text_is_one_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "run.yaml").write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "run.yaml")
    assert str(caught.value).startswith(str(tmp_path / "run.yaml")) and "\n" not in str(
        caught.value
    )


def test_locate_leaves_what_is_not_in_the_folder_alone(tmp_path: Path) -> None:
    assert [locate(value, tmp_path) for value in ("softmax", "", "/absolute", "a\0b")] == [
        "softmax",
        "",
        "/absolute",
        "a\0b",
    ]


# -- mutants -------------------------------------------------------------------------------------

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["dilemma", "silent", "main", "${env:X}"])
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
_PLACES = """\
scenario scenario.id scenario.tasks scenario.split scenario.rounds agents agents.player_0 agents.player_0.behaviour agents.player_0.options
agents.player_1.policy agents.player_1.model policies policies.main policies.main.model run run.max_failed evaluate extends
train train.policies train.warm_start train.warm_start.main.cast train.credit train.credit.gamma"""


@pytest.mark.longest
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    key=st.sampled_from(_PLACES.split()),
    value=_VALUES,
    cut=st.integers(0, 400),
    noise=st.text(alphabet="{}[]:,-#&*!|>'\"%@`\t\n ", max_size=3),
)
def test_a_mutated_config_is_read_or_refused_by_line_never_anything_else(
    tmp_path: Path, key: str, value: object, cut: int, noise: str
) -> None:
    tree = yaml.safe_load((GOOD + TRAIN).replace("1e-2", "0.01"))
    *way, last = key.split(".")
    target = tree
    for part in way:
        target = target.setdefault(part, {})
    target[last] = value
    dumped = yaml.safe_dump(tree, allow_unicode=True)
    for text in (dumped, GOOD[:cut] + noise + GOOD[cut:]):
        path = tmp_path / "run.yaml"
        path.write_bytes(text.encode("utf-8", "replace"))
        try:
            load(path)
        except GemMaError as error:
            assert all(
                line.startswith((str(path), "run.yaml")) for line in str(error).split("\n")
            ), str(error)


@pytest.mark.parametrize(
    ("short", "behaviour", "model"),
    [
        ("first_legal", "first_legal", None),
        ("openai/gpt-5", "direct", "openai/gpt-5"),
        ("human", "direct", "human/me"),
        ("human/ann", "direct", "human/ann"),
    ],
)
def test_an_agent_in_one_word_is_a_behaviour_or_a_model(
    short: str, behaviour: str, model: str | None
) -> None:
    config = load("dilemma", [f"agents.player_0={short}"]).config
    seat = config.agents["player_0"]
    assert (
        seat.behaviour == behaviour
        and (config.policies["player_0"].model if model else None) == model
    )
    assert config.agents["player_1"].behaviour != ""


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("gpt-4o", "as openai/gpt-4o"),
        ("frist_legal", "did you mean 'first_legal'?"),
        ("zzz", "gem-ma list agents"),
        ("me", "human: you type the answers"),
    ],
)
def test_a_word_that_is_neither_says_what_to_type(word: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load("dilemma", [f"agents.player_0={word}"])
    assert said in str(error.value) and len(str(error.value).splitlines()) == 1


def test_what_an_engine_wants_by_default_stands_in_the_config_and_a_record_keeps_its_own(
    tmp_path: Path,
) -> None:
    text = (
        "scenario: {id: dilemma, tasks: 1}\nagents: {player_0: {policy: p}, player_1: {policy:"
        " q}}\n"
    )
    text += (
        "policies: {p: {model: transformers/m}, q: {model: transformers/m, constrain: null,"
        " device_map: auto}}\n"
    )
    (tmp_path / "c.yaml").write_text(text)
    options = {
        name: policy.options for name, policy in load(tmp_path / "c.yaml").config.policies.items()
    }
    assert (options["p"]["constrain"], options["p"]["device"]) == ("auto", "auto")
    assert options["q"]["constrain"] is None and "device" not in options["q"]
    (tmp_path / "resolved.yaml").write_text(text)
    (tmp_path / "manifest.json").write_text("{}")
    # as it was made, before there was such a default
    assert load(tmp_path / "resolved.yaml").config.policies["p"].options == {}
    assert (
        "constrain"
        not in load("dilemma", ["agents.player_0=openai/x"]).config.policies["player_0"].options
    )


def test_a_wish_for_nothing_is_known_to_every_engine_and_a_typing_error_to_none() -> None:
    model = [
        "policies.p.model=table/softmax",
        "agents.player_0.policy=p",
        "policies.p.constrain=null",
    ]
    config = load("dilemma", model).config
    assert open_policies(config)["p"].name == "p"
    for wrong in ("policies.p.constrain=legal", "policies.p.constrian=null"):
        with pytest.raises(ConfigError, match="unknown key"):
            load("dilemma", [*model[:2], wrong])


@pytest.mark.long
@given(st.text('a".= é', min_size=1, max_size=8).filter(lambda name: name == name.strip()))
def test_any_name_can_stand_in_the_key_of_an_override(name: str) -> None:
    key = f"agents.{in_quotes(name)}"
    assert parted(f"{key}=x=1") == (("agents", name), "x=1")
    assert parted(f"{key}.policy=main") == (("agents", name, "policy"), "main")
