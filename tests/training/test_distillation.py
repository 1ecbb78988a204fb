"""On-policy distillation: a frozen policy is the reference of the divergence, alone or beside what
was paid; tables and language models alike."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from gem_ma import config
from gem_ma.config.learning import Divergence, LossSettings
from gem_ma.config.settings import Config
from gem_ma.engines.base import Policy
from gem_ma.engines.small.table import encode
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.runs.plans import open_policies
from gem_ma.runs.worlds import worlds_of
from gem_ma.training.learner.losses import DIVERGENCES, Slope
from gem_ma.training.processes.teams import ALONE
from gem_ma.training.schedule.checks import checked
from gem_ma.training.train import open_parts, run_training
from tests.broken_runs import broken_and_whole, trained

ALONE_KL = {"surrogate": "none", "kl": 1, "kl_form": "k2", "reference": "teacher"}
LOSS = "train.loss={surrogate: none, kl: 1, kl_form: k2, reference: teacher}"
SMALL = ("train.on_collapse=off", "evaluate.every=null", "run.baselines=false")


def test_the_mean_gradient_of_a_form_is_that_of_its_divergence() -> None:
    """By all choices at once: k2 pulls down KL(policy || teacher), k3 KL(teacher || policy)."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(5), 2)
    away = np.log(p / q)
    # by the logits: of the first p (log p/q - KL), of the second p - q
    wanted = {"k2": p * (away - (p * away).sum()), "k3": p - q}
    for form, divergence in DIVERGENCES.items():
        pull = p * divergence(Slope.of(np.log(p)), np.log(q)).slope
        assert np.allclose(pull - p * pull.sum(), wanted[form], atol=1e-12)
    assert get_args(Divergence) == tuple(DIVERGENCES)


# -- tables --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that takes the shortest way of two disks, as a run leaves it."""
    path = tmp_path_factory.mktemp("master") / "run"
    words = (*SMALL, "evaluate.episodes=64", "train.steps=12")
    summary = trained(path, config.load("hanoi_table", words).config)
    assert summary["after"]["sampled"]["success"] > 0.95
    return path / "models" / "player"


def hanoi(master: Path, *words: str) -> Config:
    few = ("train.steps=4", "train.save_every=1", "evaluate.episodes=128")
    teacher = f"policies.teacher.model=table/{master}"
    return config.load("hanoi_table", [*SMALL, *few, teacher, *words]).config


@pytest.mark.longest
@pytest.mark.parametrize("how", [LOSS, "train.loss={kl: 1, kl_form: k2, reference: teacher}"])
def test_a_student_comes_to_the_play_of_its_teacher(how: str, master: Path) -> None:
    """One play in ten gets there by chance; a teacher speaks to every token of the others too."""
    for seed in range(2):
        rows: list[Any] = []
        words = (f"run.seed={seed}", "train.episodes=16")
        plain = run_training(hanoi(master, *words))
        taught = run_training(
            hanoi(master, *words, how),
            on_step=lambda step, row, rows=rows: rows.append(row["policies"]["player"]),
        )
        away = [row["kl_reference"] for row in rows]
        assert away[0] > 1 and away[-1] < 0.5 * away[0], seed
        scores = [done["after"]["sampled"]["success"] for done in (plain, taught)]
        print(f"seed {seed}: {scores[0]:.2f} by reward alone, {scores[1]:.2f} with a teacher")
        assert scores[1] > scores[0] + 0.1, seed
        assert taught["unchanged"] == ["teacher"] and "learned_nothing" not in taught


@pytest.mark.longest
def test_in_the_reward_a_teacher_is_followed_too(master: Path) -> None:
    rows: list[Any] = []
    how = "train.loss={kl: 1, kl_in: reward, reference: teacher}"
    settings = hanoi(master, how, "train.steps=6", "train.estimator.name=reinforce")
    run_training(settings, on_step=lambda step, row: rows.append(row["policies"]["player"]))
    assert rows[-1]["kl_reference"] < 0.5 * rows[0]["kl_reference"]


@pytest.mark.longest
def test_a_killed_run_ends_as_an_unbroken_one(tmp_path: Path, master: Path) -> None:
    broken_and_whole(tmp_path, hanoi(master, LOSS, "train.overlap=2"), 2)


@pytest.mark.long
@pytest.mark.parametrize("logit", [2000.0, np.inf])
def test_a_table_that_is_sure_of_itself_teaches_with_finite_numbers(
    logit: float, master: Path
) -> None:
    """exp(-2000) is 0 in floats, and its logarithm is not a number to learn from."""
    settings = hanoi(master, LOSS, "train.steps=2", "policies.player.optimizer=sgd")
    policies = open_policies(settings)
    teacher: Any = policies["teacher"].core
    teacher.logits = {key: np.zeros(len(row)) for key, row in teacher.logits.items()}
    for row in teacher.logits.values():
        row[0] = logit
    parts = open_parts(settings, worlds_of(settings), policies, None, ALONE)
    learner: Any = parts.learners["player"]
    turns = parts.updates.prepare(parts_played(parts), ["player"])[0].turns

    def update() -> dict[str, float]:
        how, nothing = LossSettings(**ALONE_KL), np.zeros(len(turns))  # type: ignore[arg-type]
        done: dict[str, float] = learner.update(
            turns, nothing, lr=1.0, settings=how, rng=random.Random(0)
        )
        return done

    if np.isinf(logit):
        with pytest.raises(EngineError, match="'teacher' gives a choice of 'player' no prob"):
            update()
    else:
        numbers = update()
        assert np.isfinite(list(numbers.values())).all() and numbers["kl_reference"] > 100
    assert all(np.isfinite(row).all() for row in learner.weights.values())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("train.loss.reference=teacher",), "reference: .* train.loss.kl is 0"),
        (("train.loss={kl: 1, reference: master}",), "reference: no policy is called 'master'"),
        (("train.loss={kl: 1, reference: player}",), "reference: 'player' learns itself"),
        ((LOSS, "policies.teacher.temperature=0"), "policies.teacher.temperature: a reference"),
        ((LOSS, "policies.teacher.top_k=2"), "policies.teacher.top_k: a reference"),
        (("train.loss.kl_form=k2",), "kl_form: .* train.loss.kl is 0"),
        (("train.loss={kl: 1, kl_form: k2, kl_in: reward}",), "kl_form: .* kl_in: reward"),
        (("train.loss.surrogate=none",), "surrogate: none learns from the divergence"),
        (
            (LOSS, "train.estimator.name=grpo", "train.group_size=2", "train.refill=1"),
            "train.refill: .* none",
        ),
        (
            ("train.per_policy.player.loss={kl: 1, reference: nobody}",),
            "train.per_policy.player.loss.reference: no policy",
        ),
    ],
)
def test_what_makes_no_sense_is_one_line(words: tuple[str, ...], line: str, master: Path) -> None:
    settings = hanoi(master, *words)
    with pytest.raises(ConfigError, match=line) as refused:
        checked(settings, settings.policies)
    assert "\n" not in str(refused.value)


def test_a_teacher_of_one_policy_alone_is_opened(master: Path) -> None:
    loss = "{surrogate: none, kl: 1, reference: teacher}"
    settings = hanoi(master, f"train.per_policy.player.loss={loss}")
    assert set(open_policies(settings)) == {"player", "teacher"}
    assert set(open_policies(hanoi(master))) == {"player"}


# -- language models -----------------------------------------------------------------------------


def kuhn(student: Path, teacher: Path | str, *words: str) -> Config:
    small = ("train.episodes=8", "train.steps=4", "evaluate.episodes=4", "train.warm_start={}")
    models = (f"policies.main.model=transformers/{student}", f"policies.teacher.model={teacher}")
    return config.load("kuhn_tiny", [*SMALL, *small, *models, *words]).config


@pytest.fixture(scope="module")
def other(kuhn_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other weights behind the same tokenizer, and a head of another width."""
    torch = pytest.importorskip("torch", reason="needs the train extra")
    from transformers import AutoModelForCausalLM

    path = tmp_path_factory.mktemp("other") / "model"
    shutil.copytree(kuhn_model, path)
    model = AutoModelForCausalLM.from_pretrained(path)
    model.resize_token_embeddings(model.config.vocab_size + 24)
    torch.manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.15 * torch.randn_like(weight)
    model.save_pretrained(path)
    return path


@pytest.mark.longest
@pytest.mark.parametrize("words", [(), ("policies.main.constrain=legal",)])
def test_a_language_model_is_pulled_as_a_loop_over_tokens_says(
    kuhn_model: Path, other: Path, words: tuple[str, ...]
) -> None:
    torch = pytest.importorskip("torch", reason="needs the train extra")
    settings = kuhn(kuhn_model, f"transformers/{other}", LOSS, *words)
    policies = open_policies(settings)
    teacher: Any = policies["teacher"].core
    # as of another chat template, which leaves control tokens free that the learner never samples
    teacher.banned = torch.zeros_like(teacher.banned)
    parts = open_parts(settings, worlds_of(settings), policies, None, ALONE)
    learner: Any = parts.learners["main"]
    step = parts_played(parts)
    turns = parts.updates.prepare(step, ["main"])[0].turns
    before = {name: weight.detach().clone() for name, weight in learner.parameters.items()}
    binding, size = learner.engine.binding, learner.engine.vocabulary.size
    losses = []
    for turn in turns.turns:
        for reply in turn.replies:
            allowed = binding.allowed(turn.legal, reply.token_ids, ())
            for at, token in enumerate(reply.token_ids):
                ids = torch.tensor([[*reply.prompt_ids, *reply.token_ids[:at]]])
                mask = learner.engine.banned.clone()
                if allowed is not None and allowed[at] is not None:
                    mask[[n for n in range(size) if n not in set(allowed[at])]] = -torch.inf
                said = [
                    (one.model(ids, use_cache=False).logits[0, -1, :size] + mask).log_softmax(-1)
                    for one in (learner.engine, teacher)
                ]
                losses.append((said[0][token] - said[1][token].detach()) ** 2 / 2)
    weights = list(learner.parameters.values())
    wanted = torch.autograd.grad(torch.stack(losses).mean(), weights)
    learner.optimizer = torch.optim.SGD(weights, lr=1.0)
    how = LossSettings(**ALONE_KL, minibatches=1, grad_clip=1e9)  # type: ignore[arg-type]
    nothing = np.random.default_rng(0).normal(size=len(turns))  # what was paid teaches nothing
    numbers = learner.update(turns, nothing, lr=1.0, settings=how, rng=random.Random(0))
    for (name, old), slow in zip(before.items(), wanted, strict=True):
        assert torch.allclose(old - learner.parameters[name].detach(), slow, atol=1e-5), name
    assert numbers["kl_reference"] > 0.05 and numbers["loss"] > 0


def parts_played(parts: Any) -> Any:
    """What is played for the first step."""
    import asyncio

    return asyncio.run(parts.collector.planned(0, parts.players)())


@pytest.mark.longest
def test_a_language_model_comes_nearer_to_its_teacher(kuhn_model: Path, other: Path) -> None:
    words = ("train.lr=0.003", "train.steps=6", "train.episodes=32")
    away = []
    for loss in (LOSS, LOSS.replace("none, kl: 1", "clipped, kl: 1e-9")):
        rows: list[Any] = []
        run_training(
            kuhn(kuhn_model, f"transformers/{other}", *words, loss),
            on_step=lambda step, row, rows=rows: rows.append(row["policies"]["main"]),
        )
        away.append(rows[-1]["kl_reference"] / rows[0]["kl_reference"])
    print(f"nats to the teacher, of those at the start: {away[0]:.2f}, without it {away[1]:.2f}")
    assert away[0] < 0.9 and away[1] > 1.2


@pytest.mark.longest
def test_the_base_of_an_adapter_teaches_it_while_the_next_steps_are_played(
    kuhn_model: Path,
) -> None:
    """One module and one lock for student, teacher and plays."""
    words = ("policies.main.lora={rank: 4}", "train.overlap=2", "train.lr=0.05")
    how = "train.loss={kl: 0.1, kl_form: k2, reference: teacher, minibatches: 1}"
    rows: list[Any] = []
    settings = kuhn(kuhn_model, f"transformers/{kuhn_model}", how, *words)
    summary = run_training(settings, on_step=lambda step, row: rows.append(row["policies"]["main"]))
    assert rows[0]["kl_reference"] < 1e-6 < rows[-1]["kl_reference"]
    assert summary["unchanged"] == ["teacher"]


@pytest.mark.long
def test_a_teacher_of_other_ids_is_one_line(kuhn_model: Path, byte_model: Path) -> None:
    settings = kuhn(kuhn_model, f"transformers/{byte_model}", LOSS)
    with pytest.raises(
        ConfigError, match="'teacher' has another vocabulary than 'main'"
    ) as refused:
        run_training(settings)
    assert "\n" not in str(refused.value)


def test_a_teacher_of_another_kind_is_one_line(kuhn_model: Path, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_bytes(encode({}))
    with pytest.raises(ConfigError, match=r"'teacher' has no weights in this process .*Table"):
        run_training(kuhn(kuhn_model, f"table/{table}", LOSS))
    mixed = hanoi(table, LOSS)
    policies = open_policies(mixed)
    policies["teacher"] = Policy("teacher", object())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'player' is a table, so 'teacher' has to be one"):
        open_parts(mixed, worlds_of(mixed), policies, None, ALONE)
