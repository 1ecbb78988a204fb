"""What `run.seed` draws: plays, clones, the weights of untrained models, the random half of
adapters. And what it never touches."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gem_ma import config
from gem_ma.cli.main import group
from gem_ma.config.loading import Loaded
from gem_ma.runs.plans import open_policies
from gem_ma.runs.store import read_manifest
from tests.broken_runs import broken_and_whole, for_both

CONFIGS = Path(__file__).parents[2] / "configs"
LEARNING = sorted(
    path for path in CONFIGS.glob("*.yaml") if "\ntrain:" in path.read_text(encoding="utf-8")
)
LORA = "policies.speaker.lora={rank: 2, targets: [q_proj]}"
SMALL = (
    "train.steps=2",
    "train.episodes=16",
    "train.save_every=1",
    "evaluate.episodes=8",
    "run.concurrency=16",
    "run.baselines=false",
)
WARM = for_both("train.warm_start.AGENT.episodes=16", "train.warm_start.AGENT.steps=2")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Untrained folders by the seed that they were made from."""
    pytest.importorskip("torch", reason="needs the train extra")
    from gem_ma.engines.local.tiny import make_model

    folder = tmp_path_factory.mktemp("models")
    for seed in (0, 3, 5):
        make_model(folder / str(seed), "referential", seed=seed)
    return {seed: folder / str(seed) for seed in (0, 3, 5)}


def loaded(model: Path, *overrides: str) -> Loaded:
    models = [f"policies.{name}.model=transformers/{model}" for name in ("speaker", "listener")]
    return config.load(CONFIGS / "referential.yaml", [*models, *overrides])


def opened(model: Path, *overrides: str) -> dict[str, Any]:
    return {
        name: policy.core
        for name, policy in open_policies(loaded(model, *overrides).config).items()
    }


def prints(model: Path, *overrides: str) -> list[str]:
    return [engine.fingerprint() for engine in opened(model, *overrides).values()]


# -- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LEARNING, ids=lambda path: path.stem)
def test_every_clone_takes_the_seed_of_the_run_and_seed_0_writes_nothing(path: Path) -> None:
    plain, seeded = (config.load(path, [f"run.seed={seed}"]).config for seed in (0, 7))
    assert plain.train is not None and seeded.train is not None
    assert all("seed" not in policy.options for policy in plain.policies.values())
    assert {warm.seed for warm in plain.train.warm_start.values()} <= {0}
    assert {warm.seed for warm in seeded.train.warm_start.values()} <= {7}
    for policy in seeded.policies.values():
        assert policy.options.get("seed") == (
            7 if policy.model.startswith(("transformers/", "vision/")) else None
        )


def test_a_typed_seed_stays_and_a_resolved_config_holds_all_of_them(tmp_path: Path) -> None:
    given = config.load(
        CONFIGS / "referential.yaml",
        ["run.seed=7", "train.warm_start.speaker.seed=2", "policies.speaker.seed=0"],
    )
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(given.resolved()), encoding="utf-8")
    for one in (given.config, config.load(tmp_path / "again.yaml").config):
        assert one.train is not None
        assert {name: warm.seed for name, warm in one.train.warm_start.items()} == {
            "speaker": 2,
            "listener": 7,
        }
        assert {name: policy.options["seed"] for name, policy in one.policies.items()} == {
            "speaker": 0,
            "listener": 7,
        }


def test_a_record_keeps_what_it_was_made_with(tmp_path: Path) -> None:
    """Folders of older versions: their models lay in their folders, their clones had seed 0."""
    held = config.load(CONFIGS / "referential.yaml").resolved()
    held["run"]["seed"] = 7
    for one in held["train"]["warm_start"].values():
        del one["seed"]
    (tmp_path / "resolved.yaml").write_text(yaml.safe_dump(held), encoding="utf-8")
    (tmp_path / "manifest.json").write_text("{}", encoding="utf-8")
    kept = config.load(tmp_path / "resolved.yaml").config
    assert kept.train is not None and kept.run.seed == 7
    assert {warm.seed for warm in kept.train.warm_start.values()} == {0}
    assert all("seed" not in policy.options for policy in kept.policies.values())


def test_a_config_that_trains_nothing_plays_its_models_as_they_lie_in_their_folders(
    tmp_path: Path,
) -> None:
    (tmp_path / "play.yaml").write_text(
        "scenario: {id: kuhn_poker}\nagents: {player_0: {policy: main}, player_1: random_legal}\n"
        "policies: {main: {model: transformers/somewhere}}\nrun: {seed: 7}\n"
    )
    assert "seed" not in config.load(tmp_path / "play.yaml").config.policies["main"].options


@pytest.mark.parametrize("bad", ["x", "1.5", "true"])
def test_a_seed_that_is_none_is_refused_at_its_place(models: dict[int, Path], bad: str) -> None:
    from gem_ma.kernel.errors import ConfigError

    with pytest.raises(ConfigError, match=r"policies\.speaker\.seed"):
        opened(models[0], f"policies.speaker.seed={bad}")


# -- weights -------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("folder", "seed"), [(0, 3), (3, 2), (3, -3)])
def test_an_untrained_model_is_drawn_as_one_of_the_summed_seed_is_made(
    models: dict[int, Path], folder: int, seed: int
) -> None:
    drawn = prints(models[folder], f"run.seed={seed}")
    assert set(drawn) == set(prints(models[folder + seed]))
    assert set(drawn) != set(prints(models[folder]))


@pytest.mark.long
def test_any_whole_number_is_a_seed(models: dict[int, Path]) -> None:
    found = [prints(models[0], f"run.seed={seed}")[0] for seed in (-1, 1, 1 << 62, 1 << 70)]
    assert len(set(found)) == len(found)


@pytest.mark.long
def test_who_learns_and_who_does_not_begin_with_the_same_draw(models: dict[int, Path]) -> None:
    alone = opened(models[0], "run.seed=3", "train.policies=[speaker]", "train.warm_start={}")
    assert alone["speaker"].fingerprint() == alone["listener"].fingerprint() == prints(models[3])[0]
    adapters = opened(models[0], "run.seed=3", LORA, LORA.replace("speaker", "listener"))
    assert adapters["speaker"].base is adapters["listener"].base
    assert adapters["speaker"].base.fingerprint() == prints(models[3])[0]


@pytest.mark.long
def test_half_precision_rounds_the_same_draw(models: dict[int, Path]) -> None:
    half = [f"policies.{name}.dtype=bfloat16" for name in ("speaker", "listener")]
    assert prints(models[0], "run.seed=3", *half) == prints(models[3], *half)


@pytest.mark.long
def test_the_random_half_of_an_adapter_follows_the_seed_unless_it_has_its_own(
    models: dict[int, Path],
) -> None:
    def halves(*overrides: str) -> dict[str, list[float]]:
        return {
            name: weight.flatten().tolist()
            for name, weight in opened(models[0], LORA, *overrides)["speaker"].weights().items()
        }

    first = halves()
    assert (
        halves("run.seed=0")
        == first
        != halves("run.seed=3")
        == halves("run.seed=3")
        != halves("run.seed=5")
    )
    own = "policies.speaker.lora.seed=1"
    assert halves(own) == halves(own, "run.seed=3")


@pytest.mark.long
@pytest.mark.parametrize("adapter", ["new", "typed seed", "opened"])
def test_the_adapter_of_a_critic_follows_the_seed_of_the_run(
    models: dict[int, Path], tmp_path: Path, adapter: str
) -> None:
    from gem_ma.training.learner.torch_critic import TorchCritic

    opened(models[0], LORA)["speaker"].save(tmp_path / "mine")
    lora = {
        "new": LORA,
        "typed seed": f"{LORA[:-1]}, seed: 4}}",
        "opened": f"policies.speaker.lora={tmp_path / 'mine'}",
    }[adapter]

    def drawn(*overrides: str) -> list[float]:
        critic = TorchCritic(opened(models[0], lora, *overrides)["speaker"])
        return [
            value
            for name, weight in critic.parameters.items()
            if "lora_A" in name
            for value in weight.flatten().tolist()
        ]

    first = drawn()
    assert first and drawn("run.seed=0") == first != drawn("run.seed=3") == drawn(
        "run.seed=3"
    ) != drawn("run.seed=5")
    assert drawn("run.seed=3", "policies.speaker.seed=0") == first  # typed, it holds


def _trained(model: Path, target: Path) -> Path:
    """A copy whose weights somebody changed, the note of the maker still beside them."""
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(model, target)
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: weight + 1 for name, weight in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    return folder


def _without_note(model: Path, target: Path) -> Path:
    folder = shutil.copytree(model, target)
    (folder / "gem_ma.json").unlink()
    return folder


def _noted(text: str) -> Any:
    def made(model: Path, target: Path) -> Path:
        folder = shutil.copytree(model, target)
        (folder / "gem_ma.json").write_text(text, encoding="utf-8")
        return folder

    return made


def _exported(model: Path, target: Path) -> Path:
    opened(model)["speaker"].save(target)
    return target


def _cloned(model: Path, target: Path) -> Path:
    from gem_ma.training.learner.positions import make_warm_model

    make_warm_model(
        target,
        "referential",
        {"speaker": "noisy_speaker", "listener": "noisy_listener"},
        steps=2,
        episodes=16,
    )
    return target


OTHERS = {
    "trained in place": _trained,
    "without a note": _without_note,
    "a note of an older version": _noted('{"seed": 0}'),
    "no object": _noted("[1]"),
    "no JSON": _noted("{"),
    "no seed": _noted('{"untrained": "0"}'),
    "exported": _exported,
    "cloned by new model": _cloned,
}


@pytest.mark.long
@pytest.mark.parametrize("kind", OTHERS)
def test_a_folder_of_any_other_kind_is_never_drawn_anew(
    models: dict[int, Path], tmp_path: Path, kind: str
) -> None:
    folder = OTHERS[kind](models[0], tmp_path / "model")
    assert prints(folder, "run.seed=3") == prints(folder)


# -- runs ----------------------------------------------------------------------------------------


def train(*words: object) -> dict[str, Any]:
    done = CliRunner().invoke(
        group,
        ["train", *map(str, words), "--quiet", "--json"],
        standalone_mode=False,
        catch_exceptions=False,
    )
    return dict(json.loads(done.stdout))


@pytest.mark.longest
@pytest.mark.parametrize(
    "lora", [(), (LORA, LORA.replace("speaker", "listener"))], ids=["full", "lora"]
)
def test_a_broken_run_of_drawn_models_ends_as_a_whole_one(
    models: dict[int, Path], tmp_path: Path, lora: tuple[str, ...]
) -> None:
    four = ("train.steps=4", "train.save_every=2", "train.episodes=8")
    broken_and_whole(tmp_path, loaded(models[0], *SMALL, *four, *WARM, "run.seed=3", *lora).config)


@pytest.mark.longest
def test_the_manifest_tells_the_weights_of_each_seed_and_a_trained_model_goes_on_as_it_is(
    models: dict[int, Path], tmp_path: Path
) -> None:
    words = [
        CONFIGS / "referential.yaml",
        *(f"policies.{name}.model=transformers/{models[0]}" for name in ("speaker", "listener")),
        *SMALL,
    ]
    words += [*WARM, "run.seed=3", LORA]
    ended = train(*words, "--out", tmp_path / "run")
    assert read_manifest(tmp_path / "run")["models"]["listener"]["digest"] == prints(models[3])[0]
    # the same command again
    assert train(*words, "--out", tmp_path / "run")["weights"] == ended["weights"]
    resolved = yaml.safe_load((tmp_path / "run" / "resolved.yaml").read_text(encoding="utf-8"))
    assert [resolved["policies"][name]["seed"] for name in ("speaker", "listener")] == [3, 3]
    for seed in (0, 3, 5):  # an adapter brings the seed of its base along
        again = prints(tmp_path / "run" / "models" / "speaker", f"run.seed={seed}")
        assert again[0] == ended["weights"]["speaker"]


@pytest.mark.longest
def test_check_says_what_is_drawn_from_which_seed(models: dict[int, Path]) -> None:
    from gem_ma.training.schedule.checks import seeds

    def said(*more: str) -> str:
        return seeds(loaded(models[0], *more).config, opened(models[0], *more))

    assert (
        said()
        == "run.seed 0 draws the plays; the clone of speaker: 0; the clone of listener: 0; as its"
        " folder has it: speaker, listener"
    )
    assert said("run.seed=3").endswith(
        "the clone of listener: 3; weights of speaker: 3; weights of listener: 3"
    )
    assert "weights and adapter of speaker: 3" in said("run.seed=3", LORA)
    words = [
        "check",
        str(CONFIGS / "kuhn_tiny.yaml"),
        f"policies.main.model=transformers/{models[0]}",
        "run.seed=3",
    ]
    done = CliRunner().invoke(group, words, standalone_mode=False, catch_exceptions=False)
    assert "run.seed 3 draws the plays; the clone of main: 3; weights of main: 3" in done.output
