"""`policy: "{agent}"`: a policy for each agent, by one line of a config."""

import pytest

from gem_ma.config.loading import load
from gem_ma.kernel.errors import ConfigError

TEXT = """
scenario: {{id: {id}}}
agents: {agents}
policies:
  "{{agent}}": {{model: table/softmax}}
train:
  policies: ["{{agent}}"]
  steps: 1
  per_policy: {{"{{agent}}": {{lr: 0.5}}, player_1: {{lr: 0.1}}}}
"""


def config(tmp_path, agents='{player_*: {policy: "{agent}"}}', id="dilemma", overrides=()):
    file = tmp_path / "each.yaml"
    file.write_text(TEXT.format(agents=agents, id=id))
    return load(str(file), overrides).config


def test_each_agent_has_its_own_policy_and_each_learns(tmp_path):
    made = config(tmp_path)
    assert {name: seat.policy for name, seat in made.agents.items()} == {
        "player_0": "player_0",
        "player_1": "player_1",
    }
    assert list(made.policies) == ["player_0", "player_1"]
    assert made.train.policies == ["player_0", "player_1"]


def test_what_is_said_of_one_of_them_stays(tmp_path):
    settings = config(tmp_path).train.per_policy
    assert settings["player_0"].lr == 0.5 and settings["player_1"].lr == 0.1


def test_a_name_goes_before_the_pattern(tmp_path):
    made = config(tmp_path, '{player_*: {policy: "{agent}"}, player_1: first_legal}', overrides=())
    assert made.agents["player_1"].behaviour == "first_legal"
    assert made.train.policies == ["player_0"]
    assert list(made.policies) == ["player_0"]


def test_a_name_may_ask_for_it_too(tmp_path):
    made = config(tmp_path, '{player_0: {policy: "{agent}"}, player_1: random_legal}')
    assert made.agents["player_0"].policy == "player_0"


def test_two_agents_do_not_share_what_is_written_once(tmp_path):
    made = config(tmp_path, overrides=["policies.player_0.temperature=0.5"])
    assert made.policies["player_0"].temperature == 0.5
    assert made.policies["player_1"].temperature == 1.0


@pytest.mark.parametrize(
    ("agents", "words"),
    [
        ("{player_*: random_legal}", r"each.yaml:5: policies.\{agent\}: no seat asks for it"),
        ('{nobody_*: {policy: "{agent}"}}', "nobody"),
    ],
)
def test_what_fits_nobody_is_one_line(tmp_path, agents, words):
    with pytest.raises(ConfigError, match=words):
        config(tmp_path, agents)


def test_seats_without_its_policy_are_refused(tmp_path):
    file = tmp_path / "lacking.yaml"
    file.write_text('scenario: {id: dilemma}\nagents: {player_*: {policy: "{agent}"}}\n')
    with pytest.raises(ConfigError, match=r"lacking.yaml:2: agents.player_\*.policy: needs"):
        load(str(file), ())
