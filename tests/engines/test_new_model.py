"""`gem-ma new model`: what is written, that it is the same for the same seed, and what is
refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gem_ma import Ask, Scenario, make
from gem_ma.cli.new import command
from gem_ma.kernel.errors import ConfigError, ScenarioError, StoreError

torch = pytest.importorskip("torch", reason="needs the train extra")
transformers = pytest.importorskip("transformers", reason="needs the train extra")

from gem_ma.engines.local.tiny import (  # noqa: E402
    make_model,
    pieces,
    place_new,
)


def tokenizer(path: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(path)


def test_pieces_are_words_digits_and_marks() -> None:
    assert list(pieces("Player_0: bet 12, (don't)!")) == [
        "Player_0",
        "##:",
        "bet",
        "1",
        "##2",
        "##,",
        "(",
        "##don",
        "##'",
        "##t",
        "##)",
        "##!",
    ]
    assert list(pieces("")) == []


def test_the_folder_loads_with_the_library_and_holds_its_own_tokenizer(kuhn_model: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(kuhn_model)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert (
        model.config.hidden_size,
        model.config.num_hidden_layers,
        model.config.tie_word_embeddings,
    ) == (64, 2, True)
    assert 90_000 < sum(weight.numel() for weight in model.parameters()) < 130_000
    words = tokenizer(kuhn_model)
    assert model.config.vocab_size == len(words)
    assert (model.generation_config.top_k, model.generation_config.temperature) == (0, 1.0)
    assert model.generation_config.eos_token_id == words.eos_token_id
    assert {"check", "bet", "call", "fold", "J", "Q", "K"} <= set(words.get_vocab())


def test_weights_are_drawn_with_the_named_spreads(kuhn_model: Path) -> None:
    weights = dict(transformers.AutoModelForCausalLM.from_pretrained(kuhn_model).named_parameters())
    assert float(weights["model.embed_tokens.weight"].detach().std()) == pytest.approx(
        0.02, rel=0.1
    )
    assert float(weights["model.layers.0.mlp.down_proj.weight"].detach().std()) == pytest.approx(
        0.7 / 192**0.5, rel=0.05
    )
    assert float(weights["model.layers.1.self_attn.q_proj.weight"].detach().std()) == pytest.approx(
        0.7 / 64**0.5, rel=0.05
    )


def test_an_action_is_one_id_per_word_and_text_comes_back(kuhn_model: Path) -> None:
    words = tokenizer(kuhn_model)
    assert len(words("bet")["input_ids"]) == 1
    assert len(words("check bet")["input_ids"]) == 2
    assert len(set(words("0 1 2 3 4 5 6 7 8 9")["input_ids"])) == 10
    for text in (
        "Kuhn poker. Your card is J.",
        "Moves so far: none. Choose check or bet.",
        "12",
        "1 2",
        "player_0 bet 305.",
    ):
        assert words.decode(words(text)["input_ids"]) == text
    assert words("strawberry")["input_ids"] == [words.unk_token_id]


def test_every_legal_string_of_the_scenario_survives_a_round_trip(tmp_path: Path) -> None:
    make_model(tmp_path / "model", "referential")
    words = tokenizer(tmp_path / "model")
    from gem_ma import Game

    game = Game(make("referential"), seed=0)
    seen = set()
    while game.pending:
        ((agent, asked),) = game.pending.items()
        for legal in asked.legal or ():
            seen.add(legal)
            ids = words(legal)["input_ids"]
            assert (words.decode(ids), len(ids)) == (legal, 2)
        game.send({agent: (asked.legal or ("",))[0]})
    assert len(seen) == 32


def test_the_same_seed_writes_the_same_files_and_another_seed_other_weights(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        torch.manual_seed(seed + len(name))
        make_model(tmp_path / name, "kuhn_poker", seed=seed)
    files = {
        name: {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
        for name in "abc"
    }
    assert files["a"] == files["b"]
    assert files["a"]["model.safetensors"] != files["c"]["model.safetensors"]


def test_a_byte_level_model_encodes_any_text(byte_model: Path) -> None:
    any_text = tokenizer(byte_model)
    for text in ("naïve 💡\n\t ok", "{'a': 1}", "  two  spaces ", "\u4e2d\u6587"):
        assert any_text.decode(any_text(text)["input_ids"]) == text
    assert len(any_text("<tool_call>")["input_ids"]) == 1
    assert transformers.AutoModelForCausalLM.from_pretrained(byte_model).config.vocab_size % 64 == 0


def test_a_command_writes_a_model_and_says_what_it_is(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        command,
        ["model", str(tmp_path / "deep" / "model"), "--scenario", "dilemma", "--json"],
        catch_exceptions=False,
    )
    said = json.loads(done.stdout)
    assert (said["scenario"], said["size"], said["seed"]) == ("dilemma", "word", 0)
    assert said["path"] == str(tmp_path / "deep" / "model")
    assert said["vocabulary"] == len(tokenizer(tmp_path / "deep" / "model"))
    plain = CliRunner().invoke(
        command, ["model", str(tmp_path / "other"), "--scenario", "dilemma"], catch_exceptions=False
    )
    assert "parameters" in plain.stdout


def test_what_is_there_already_is_never_touched(tmp_path: Path, kuhn_model: Path) -> None:
    folder = shutil.copytree(kuhn_model, tmp_path / "model")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(ConfigError, match="exists already"):
        make_model(folder, "kuhn_poker")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        make_model(tmp_path / "file", "kuhn_poker")
    with pytest.raises(StoreError, match="could not be written"):
        make_model(tmp_path / "file" / "below", "kuhn_poker")
    (tmp_path / "empty").mkdir()
    make_model(tmp_path / "empty", "kuhn_poker")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["empty", "file", "model"]


def test_what_comes_up_meanwhile_stays_and_nothing_is_left_beside(tmp_path: Path) -> None:
    mine = tmp_path / "model" / "mine"

    def fails(folder: Path) -> None:
        folder.mkdir()
        (folder / "half").write_text("half")
        raise OSError("no such disk")

    def heard() -> Iterator[str]:
        mine.parent.mkdir()
        mine.write_text("mine")
        yield "a word"

    with pytest.raises(StoreError, match=r"could not be written.*no such disk"):
        place_new(tmp_path / "model", fails)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="exists already"):
        make_model(tmp_path / "model", "kuhn_poker", heard=heard())
    assert [*tmp_path.iterdir()] == [mine.parent] and mine.read_text() == "mine"


def test_two_that_write_one_model_at_a_time_write_one_whole_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"

    def written(words: str, meanwhile: Callable[[], Any] = lambda: None) -> None:
        def write(folder: Path) -> None:
            folder.mkdir()
            (folder / "weights").write_text(words)
            with monkeypatch.context() as patch:
                patch.setattr(os, "getpid", os.getppid)  # another process, and it runs
                meanwhile()
            (folder / "note").write_text(words)

        place_new(target, write)

    def fails() -> None:
        with pytest.raises(StoreError):
            place_new(target, lambda folder: (folder / "weights").write_text("in no folder"))

    written("first", fails)  # the end of the other takes nothing away
    assert {path.name: path.read_text() for path in target.iterdir()} == {
        "weights": "first",
        "note": "first",
    }
    shutil.rmtree(target)
    with pytest.raises(ConfigError, match="exists already"):
        written("slow", lambda: written("quick"))
    assert {path.read_text() for path in target.iterdir()} == {"quick"}
    assert [*tmp_path.iterdir()] == [target]


def test_wrong_names_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="kuhn_poker"):
        make_model(tmp_path / "model", "kuhn_pocker")
    with pytest.raises(ConfigError, match="word, nano, tiny, small, medium"):
        make_model(tmp_path / "model", "kuhn_poker", size="huge")
    assert list(tmp_path.iterdir()) == []


def test_a_llama_with_a_head_of_its_own_is_written_sampled_and_learned(tmp_path: Path) -> None:
    made = make_model(
        tmp_path / "model", "kuhn_poker", architecture="llama", tied=False, positions=300
    )
    assert (made["architecture"], made["tied"], made["positions"]) == ("llama", False, 300)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.lm_head.weight.data_ptr() != model.model.embed_tokens.weight.data_ptr()
    assert model.config.max_position_embeddings == 300
    with pytest.raises(ConfigError, match="qwen3, llama"):
        make_model(tmp_path / "other", "kuhn_poker", architecture="gpt")


@pytest.mark.longest
def test_a_warm_model_listens_where_its_demonstrators_do(tmp_path: Path) -> None:
    heard = {}
    for players in ("noisy_kuhn", "random_legal"):
        arguments = [
            "model",
            str(tmp_path / players),
            "--scenario",
            "kuhn_poker",
            "--clone",
            players,
            "--steps",
            "120",
            "--episodes",
            "300",
            "--json",
        ]
        done = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
        said = json.loads(done.stdout)
        heard[players] = said["listens"]
        assert said["cloned"] == ["player_0", "player_1"]
        assert ("does not listen" in done.stderr) == (players == "random_legal")
        assert json.loads((tmp_path / players / "gem_ma.json").read_text())["cast"] == {
            "player_0": players,
            "player_1": players,
        }
        assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith(".")) == []
    assert heard["noisy_kuhn"] > 0.3 > 0.05 > abs(heard["random_legal"])


@pytest.mark.longest
def test_a_tokenizer_of_transcripts_knows_what_its_demonstrators_say(tmp_path: Path) -> None:
    from gem_ma.training.learner.positions import make_warm_model

    cast = {"assistant": "one_order_clerk", "user": "one_order_customer"}
    made = make_warm_model(
        tmp_path / "model", "retail_one_order", cast, ["user"], steps=2, episodes=8
    )
    assert made["cloned"] == ["user"]


def test_tool_calls_are_demonstrated_in_the_template_s_own_way(byte_model: Path) -> None:
    from gem_ma.engines.base import open_engine
    from gem_ma.kernel.types import Tool, ToolCall

    engine: Any = open_engine("main", f"transformers/{byte_model}")
    chat, tool = (
        engine.engine.chat,
        Tool("look", "Looks.", {"type": "object", "properties": {"id": {"type": "string"}}}),
    )
    target = chat.answer("Let me see.", (ToolCall("c1", "look", {"id": "7"}),), (tool,))
    assert target[-1] in engine.engine.vocabulary.ends
    text, calls, _ = chat.read(chat.text(target[:-1]), (tool,))
    assert (text.strip(), [(call.name, call.arguments) for call in calls]) == (
        "Let me see.",
        [("look", {"id": "7"})],
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--clone", "player_9=noisy_kuhn"], "player_9"),
        (["--clone", "player_0=noisy_kuhn"], "nobody plays 'player_1'"),
        (["--clone", "direct"], "samples from a policy"),
        (["--clone", "noisy_kun"], "noisy_kuhn"),
        (["--clone", "noisy_kuhn", "--agent", "dealer"], "no agent 'dealer'"),
    ],
)
def test_a_warm_start_that_cannot_be_is_refused_in_a_line(
    tmp_path: Path, arguments: list[str], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        CliRunner().invoke(
            command,
            ["model", str(tmp_path / "model"), "--scenario", "kuhn_poker", *arguments],
            catch_exceptions=False,
        )
    assert list(tmp_path.iterdir()) == []


class Broken(Scenario):
    """Raises as soon as it is played."""

    agents = ("a",)

    def play(self, rng: Any, task: Any) -> Any:
        yield Ask({"a": "?"})
        raise RuntimeError("broken rules")


def test_a_scenario_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="broken rules"):
        make_model(tmp_path / "model", Broken())
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    kept = [".model.x.tmp", f".other.{ended.pid}.tmp", f".model.{os.getppid()}.tmp", ".model.tmp"]
    for name in [*kept, f".model.{ended.pid}.tmp", f".model.{10**30}.tmp"]:
        (tmp_path / name).mkdir()
    place_new(tmp_path / "model", lambda folder: folder.mkdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "model"])
