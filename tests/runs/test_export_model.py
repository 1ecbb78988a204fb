"""What a run has trained, as a folder for others: plain transformers and peft compute what the run's
own policy computes, the card repeats the run, and what is not the run's is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gem_ma.cli.main import main
from gem_ma.scores.exams import exam_rows
from tests.hostile import one_line

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("peft", reason="needs the train extra")
transformers = pytest.importorskip("transformers", reason="needs the train extra")

from gem_ma.engines.local.transformers import Transformers  # noqa: E402
from gem_ma.kernel.errors import DataError  # noqa: E402

CONFIG = """
scenario: {{id: kuhn_poker}}
agents: {{player_0: {{policy: whole}}, player_1: {{policy: small}}}}
policies:
  whole: {{model: transformers/{model}, max_tokens: 4}}
  small: {{model: transformers/{model}, max_tokens: 4, lora: {{rank: 2}}, temperature: 0.9}}
run: {{seed: {seed}, concurrency: 8}}
train: {{policies: [whole, small], steps: 1, episodes: 8, lr: 0.01, estimator: {{name: rebn}}}}
evaluate: {{episodes: 4}}
"""


def trained(folder: Path, model: Path, seed: int = 0) -> Path:
    """A step of Kuhn poker: `whole` learns all its weights, `small` an adapter."""
    (folder / "kuhn.yaml").write_text(CONFIG.format(model=model, seed=seed))
    words = [str(folder / "kuhn.yaml"), "--out", str(folder / "kuhn"), "--quiet"]
    assert main(["train", *words]) == 0
    return folder / "kuhn"


@pytest.fixture(scope="module")
def run(thin_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("published"), thin_model)


def exported(run: Path, out: Path, *more: str) -> Path:
    assert main(["export", str(run), "--to", "model", "-o", str(out), *more]) == 0
    return out


def logits(model: Any) -> Any:
    with torch.no_grad():
        return model(torch.arange(12).reshape(2, 6)).logits


def loaded(card: Path) -> Any:
    """The model that the code on a card loads."""
    names: dict[str, Any] = {}
    text = card.read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    exec(compile(text, str(card), "exec"), names)  # our own text
    return names["model"]


def own(folder: Path) -> Any:
    """Logits of a model folder, as its policy in gem_ma computes them."""
    engine = Transformers(str(folder), policy="p")
    with engine.active():
        return logits(engine.model)


@pytest.mark.longest
def test_plain_transformers_and_peft_compute_what_the_policy_of_the_run_does(
    run: Path, thin_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = transformers.AutoModelForCausalLM
    begun = logits(loader.from_pretrained(thin_model, dtype="float32").eval())
    whole = exported(run, tmp_path / "whole", "--policy", "whole")
    alone = exported(run, tmp_path / "alone", "--policy", "small")
    merged = exported(run, tmp_path / "merged", "--policy", "small", "--merged")
    monkeypatch.chdir(tmp_path)  # the card names the folder by its name
    found = {folder: loaded(folder / "README.md") for folder in (whole, alone, merged)}
    for folder, model in found.items():
        name = "whole" if folder == whole else "small"
        wanted = own(run / "models" / name)
        assert torch.allclose(logits(model.eval()), wanted, rtol=0, atol=1e-5), folder
        assert not torch.allclose(begun, wanted, rtol=0, atol=1e-4)  # it has learned
        # and as a model of a config here
        assert torch.allclose(own(folder), wanted, rtol=0, atol=1e-5)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        plain = transformers.AutoTokenizer.from_pretrained(thin_model)
        assert tokenizer.chat_template == plain.chat_template and tokenizer.chat_template
        sampling = transformers.GenerationConfig.from_pretrained(folder)
        assert (sampling.do_sample, sampling.max_new_tokens) == (True, 4)
        assert sampling.temperature == (1.0 if name == "whole" else 0.9) and sampling.eos_token_id
    assert not (alone / "model.safetensors").exists() and (alone / "base.json").exists()
    assert not (merged / "adapter_config.json").exists()


@pytest.mark.longest
def test_the_card_says_what_the_run_wrote_down(run: Path, thin_model: Path, tmp_path: Path) -> None:
    (tmp_path / ".out.part").mkdir()
    (tmp_path / ".out.part" / "old").touch()  # of an export that was killed
    out = exported(run, tmp_path / "out", "--policy", "small")
    assert not (out / "old").exists()
    card = (out / "README.md").read_text("utf-8")
    summary = json.loads((run / "summary.json").read_text())
    rows = exam_rows(summary)
    assert any(row.name == "sampled: episodes" and "4 ok" in row.after for row in rows)
    assert all(f"| {' | '.join(row)} |" in card for row in rows)
    manifest = json.loads((run / "manifest.json").read_text())
    began = manifest["models"]["small"]["digest"]
    for digest in (summary["weights"]["small"], began, manifest["resolved"]):
        assert f"| {digest} |" in card
    for file in out.iterdir():
        if file.name != "README.md":
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            assert f"| `{file.name}` | {digest} |" in card
    for words in ("| adapter, float32 |", "| kuhn_poker (version ", "| player_1 |", "| whole |"):
        assert words in card
    assert (run / "resolved.yaml").read_text().rstrip() in card
    assert "library_name: peft" in card and "license:" not in card.split("---")[1]
    # a folder of this machine is nobody's model on a hub
    assert "base_model:" not in card


def refused(capsys: pytest.CaptureFixture[str], run: Path, out: Path, *more: str) -> str:
    words = ["export", str(run), "--to", "model", "-o", str(out), *more]
    assert main(words) in (1, 2)
    told = capsys.readouterr().err
    assert len(told.splitlines()) == 1, told
    assert not [path for path in out.parent.glob(f"*{out.name}*") if path.name != "taken"]
    return told


@pytest.mark.long
def test_what_is_not_there_to_export_is_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    capsys.readouterr()
    out = tmp_path / "out"
    assert "--policy: whole, small" in refused(capsys, run, out)
    assert "did you mean 'small'" in refused(capsys, run, out, "--policy", "smal")
    (tmp_path / "taken").mkdir()
    told = refused(capsys, run, tmp_path / "taken", "--policy", "small")
    assert "stands there already" in told
    assert main(["export", str(run), "--to", "csv", "--merged"]) == 2
    assert main(["export", str(run), "--to", "model", "--only", "won"]) == 2
    capsys.readouterr()
    words = ["guess_number_table", "train.steps=1", "train.episodes=8", "evaluate.episodes=4"]
    assert main(["train", *words, "--out", str(tmp_path / "table"), "--quiet"]) == 0
    assert main(["run", "dilemma", "-n", "1", "--out", str(tmp_path / "played"), "--quiet"]) == 0
    capsys.readouterr()
    assert "is table" in refused(capsys, tmp_path / "table", out)
    assert "nobody learned" in refused(capsys, tmp_path / "played", out)


def changed(run: Path, copy: Path, **keys: Any) -> Path:
    """A copy of the run whose summary says otherwise."""
    shutil.copytree(run, copy)
    summary = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(json.dumps({**summary, **keys}))
    return copy


def test_a_run_that_learned_nothing_has_not_ended_or_was_edited_gives_no_model(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    small = ("--policy", "small")
    out = tmp_path / "out"
    idle = changed(run, tmp_path / "idle", unchanged=["small"])
    assert "has learned nothing" in refused(capsys, idle, out, *small)
    idle = changed(run, tmp_path / "still", learned_nothing={"small": "it said nothing"})
    assert "it said nothing" in refused(capsys, idle, out, *small)
    odd = changed(run, tmp_path / "odd", models={"small": 3})
    assert "damaged" in refused(capsys, odd, out, *small)
    begun = changed(run, tmp_path / "begun")
    (begun / "summary.json").unlink()
    assert "gem-ma resume" in refused(capsys, begun, out, *small)
    edited = changed(run, tmp_path / "edited")
    text = (edited / "resolved.yaml").read_text()
    (edited / "resolved.yaml").write_text(text.replace("episodes: 8", "episodes: 800"))
    assert "was edited" in refused(capsys, edited, out, *small)


@pytest.mark.parametrize("policy", ["whole", "small"])
def test_weights_that_are_not_those_of_the_run_are_refused(
    run: Path, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # beside the run, since an adapter names its base by the way from its folder
    damaged = changed(run, run.parent / f"damaged-{policy}")
    capsys.readouterr()
    (weights,) = (damaged / "models" / policy).glob("*.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1  # the last bit but a few of one number
    weights.write_bytes(data)
    told = refused(capsys, damaged, tmp_path / "out", "--policy", policy)
    assert "not the weights that the run wrote down" in told
    weights.write_bytes(data[:-8])
    told = refused(capsys, damaged, tmp_path / "out", "--policy", policy)
    assert "cannot be" in told
    weights.unlink()
    assert refused(capsys, damaged, tmp_path / "out", "--policy", policy)


@pytest.mark.longest
def test_an_adapter_on_a_base_that_was_drawn_is_exported_merged(
    thin_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path, thin_model, seed=3)
    capsys.readouterr()
    assert "--merged" in refused(capsys, run, tmp_path / "out", "--policy", "small")
    out = exported(run, tmp_path / "out", "--policy", "small", "--merged")
    model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype="float32").eval()
    wanted = own(run / "models" / "small")
    assert torch.allclose(logits(model), wanted, rtol=0, atol=1e-5)


def test_a_weight_that_two_layers_have_in_common_takes_no_change(
    thin_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Transformers(str(thin_model), policy="p", lora={"rank": 2})
    monkeypatch.setattr(engine.base.adapters, "changes", lambda key: [("lm_head.weight", 0)])
    with pytest.raises(DataError, match=r"lm_head\.weight, which this model has in common"):
        engine.merged()


def test_a_folder_with_files_that_hang_or_lead_away_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import os

    odd = changed(run, run.parent / "odd")
    (weights,) = (odd / "models" / "small").glob("*.safetensors")
    weights.unlink()
    os.mkfifo(weights)
    words = ["export", str(odd), "--to", "model", "--policy", "small", "-o", str(tmp_path / "out")]
    assert one_line(capsys, words, most=1) == 2
