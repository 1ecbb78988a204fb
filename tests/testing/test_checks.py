"""What `train:` may not say: one line with the place of the key, exit code 2, and no run folder."""

import pytest

from gem_ma.cli.main import main
from gem_ma.config.loading import load
from gem_ma.credit.estimators import ESTIMATORS
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.schedule.checks import checked

CONFIG = """\
scenario: {id: dilemma, rounds: 1}
agents:
  player_0: {policy: main}
  player_1: {policy: other}
policies:
  main: {model: table/softmax}
  other: {model: table/softmax}
  a/b: {model: table/softmax}
train:
  policies: [main]
  steps: 1
  episodes: 4
evaluate: {episodes: 4}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


REFUSED = [
    (
        "estimator: {name: rebnn}",
        "train.estimator.name: no estimator is called 'rebnn' (did you mean 'rebn'?)",
    ),
    ("estimator: {key: [agent, kk]}", "train.estimator.key: no column is called 'kk'"),
    (
        "estimator: {name: rae, options: {decay: 2}}",
        "train.estimator.options.decay: wants a number in 0..1; got 2",
    ),
    (
        "estimator: {name: turn_credit, options: {decay: -1}}",
        "train.estimator.options.decay: wants a number in 0..1; got -1",
    ),
    (
        "estimator: {name: rae, options: {first: 3}}",
        "train.estimator.options.first: wants true or false; got 3",
    ),
    (
        "estimator: {name: rae, options: {decay: true}}",
        "train.estimator.options.decay: wants a number; got True",
    ),
    (
        "estimator: {name: gigpo, key: [task], options: {weight: -1}}",
        "train.estimator.options.weight: wants 0 or more; got -1",
    ),
    (
        "estimator: {name: grpo, key: [task], options: {ddof: 7}}",
        "train.estimator.options.ddof: wants 0 (population) or 1 (sample); got 7",
    ),
    (
        "estimator: {name: magrpo}\n  group_size: 4",
        "train.estimator.name: magrpo compares what was done in one state, and without",
    ),
    (
        "estimator: {name: mt_grpo, options: {turn_weight: -1}, key: [agent]}",
        "train.estimator.options.turn_weight: wants 0 or more; got -1",
    ),
    ("estimator: {key: [3]}", "train.estimator.key[0]: wants text; got 3"),
    (
        "per_policy: {main: {estimator: {name: rebnn}}}",
        "train.per_policy.main.estimator.name: no estimator is called 'rebnn'",
    ),
    (
        "per_policy: {main: {loss: {clip: -1}}}",
        "train.per_policy.main.loss.clip: should be greater than 0; got -1",
    ),
    (
        "per_policy: {main: {credit: {rule: own-step}}}",
        "train.per_policy.main.credit.rule: wants until_next_turn, own_step,",
    ),
    (
        "alternate: {other: 2}",
        "train.alternate.other: no policy of train.policies has this name",
    ),
    ("log: [tensorbord]", "train.log: no tracker is called 'tensorbord'"),
    (
        "credit: {gamma: {player_1: 0.9}}",
        "train.credit.gamma: gamma names no value for agent 'player_0'",
    ),
    ("credit: {team: []}", "train.credit.team: names no agent"),
    ("credit: {team: [player_0, player_0]}", "train.credit.team: names an agent twice"),
    ("group_size: 3", "train.group_size: 4 episodes cannot be divided into groups of 3"),
    (
        "opponents: {latest: 0.5, anchors: {nobody: 0.5}}",
        "train.opponents.anchors.nobody: no behaviour is called 'nobody'",
    ),
    (
        "policies.main.temperature=0",
        "policies.main.temperature: a learned policy is sampled with temperature above 0",
    ),
    (
        "policies.main.top_p=0.5",
        "policies.main.top_p: a learned policy is sampled with temperature above 0, top_p 1 and",
    ),
    ("policies.main.top_k=3", "policies.main.top_k: "),
    (
        "evaluate.seed=4611686018427387901",
        "evaluate.seed: must lie below 4611686018427387904, where training seeds begin",
    ),
    ("evaluate.seed=-1", "evaluate.seed: should be greater than or equal to 0"),
    ("train.policies=[main,main]", "train.policies: names 'main' twice"),
    ("estimator: {name: grpo}", "share a start"),
    (
        "estimator: {options: {lam: .5}}",
        "train.estimator.options.lam: rebn has no such option; it has none",
    ),
]


# both commands ask the same function: each takes every second case
@pytest.mark.parametrize(
    ("line", "said", "command"),
    [(*case, ("train", "check")[number % 2]) for number, case in enumerate(REFUSED)],
)
def test_what_training_refuses_is_one_line_with_its_place_and_leaves_no_folder(
    folder, capsys, command, line, said
):
    override = [line] if "=" in line else []
    text = CONFIG if override else CONFIG.replace("evaluate", f"  {line}\nevaluate")
    (folder / "c.yaml").write_text(text)
    assert main([command, "c.yaml", *override]) == 2
    told = capsys.readouterr().err
    place = "command line: " if override else "c.yaml:13: "
    assert told.startswith(place) and said in told and len(told.splitlines()) == 1, told
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("name", ["a/b", "../up", "main@2", "x" * 101])
def test_a_learned_policy_whose_name_is_no_file_is_refused(folder, capsys, name):
    text = (
        CONFIG.replace("a/b", name)
        .replace("player_0: {policy: main}", f"player_0: {{policy: {name}}}")
        .replace("[main]", f"[{name}]")
    )
    (folder / "c.yaml").write_text(text)
    assert main(["train", "c.yaml"]) == 2
    assert "a learned policy names files" in capsys.readouterr().err
    assert not (folder / "runs").exists()


@pytest.mark.long
def test_a_name_with_dots_is_a_name(folder):
    text = (
        CONFIG.replace("a/b", "qwen3-0.6b")
        .replace("player_0: {policy: main}", "player_0: {policy: qwen3-0.6b}")
        .replace("[main]", "[qwen3-0.6b]")
    )
    (folder / "c.yaml").write_text(text)
    assert main(["train", "c.yaml", "--quiet"]) == 0


def test_the_place_of_a_key_with_dots_and_of_one_that_is_not_written_is_the_nearest(folder):
    (folder / "c.yaml").write_text(CONFIG + "run: {seed: 1}\n")
    loaded = load("c.yaml")
    for key, place in {
        "policies.a/b.model": "c.yaml:8",
        "train.loss.clip": "c.yaml:9",
        "train.policies[0]": "c.yaml:10",
        "run.seed": "c.yaml:14",
    }.items():
        with (
            pytest.raises(
                ConfigError, match=rf"^{place}: {key.replace('[', '.').replace(']', '.')}: wrong"
            ),
            loaded.placing(),
        ):
            raise ConfigError(f"{key}: wrong")
    with pytest.raises(ConfigError, match=r"^nothing of a key: wrong"), loaded.placing():
        raise ConfigError("nothing of a key: wrong")


def test_the_options_that_the_estimators_have_by_default_are_no_problem():
    import inspect

    for name, found in ESTIMATORS.items():
        for option in found.options:
            default = inspect.signature(found.function).parameters[option].default
            assert found.problem(option, default) == "", (name, option)


def test_the_same_config_is_fine_for_a_program(folder):
    (folder / "c.yaml").write_text(CONFIG)
    config = load("c.yaml").config
    assert checked(config, config.policies) is config.train
