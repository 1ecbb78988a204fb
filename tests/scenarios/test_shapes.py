"""Pictures as questions: drawn alike everywhere, other ones held out, answers balanced and legal."""

from __future__ import annotations

import hashlib
import io
import sys
from collections import Counter
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from gem_ma import make
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Game
from gem_ma.kernel.types import Image
from gem_ma.record.shapes import images_in
from gem_ma.testing import check_scenario

# of the first pictures of four questions; other bytes would break records of this scenario
DIGEST = "3a389bc9"


def opening(scenario, task):
    game = Game(scenario, task, 0)
    (image,) = images_in(game.view("viewer"))
    return game, image


def test_pictures_are_the_same_bytes_on_every_machine():
    scenario = make("shapes")
    digest = hashlib.sha256()
    for task in scenario.tasks("train")[:8]:
        digest.update(opening(scenario, task)[1].data)
    assert digest.hexdigest()[:8] == DIGEST


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (200, 150)])
def test_a_drawn_image_is_a_png_of_these_pixels(size):
    pillow = pytest.importorskip("PIL.Image", reason="needs the vision extra")
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3)).astype(np.uint8)
    read = pillow.open(io.BytesIO(Image.drawn(pixels).data))
    assert (np.asarray(read.convert("RGB")) == pixels).all()


@pytest.mark.parametrize(
    "pixels", [np.zeros((2, 2), np.uint8), np.zeros((2, 2, 3)), [[[0, 0, 0]]], None]
)
def test_what_is_no_picture_is_refused(pixels):
    with pytest.raises(ValueError, match="height, width, 3"):
        Image.drawn(pixels)


def test_no_picture_is_in_both_splits_and_none_comes_twice():
    scenario = make("shapes", tasks=200)
    shown = {
        split: {opening(scenario, task)[1].digest for task in scenario.tasks(split)}
        for split in ("train", "test")
    }
    assert (len(shown["train"]), len(shown["test"])) == (200, 50)
    assert not shown["train"] & shown["test"]


# which of the answers is right is drawn alike for every question of four
@pytest.mark.long
@pytest.mark.parametrize("question", ["colour", "side"])
def test_answers_are_balanced_so_that_none_pays_without_looking(question):
    scenario = make("shapes", questions=[question])
    right = Counter()
    for task in scenario.tasks("test"):
        game, _ = opening(scenario, task)
        legal = game.pending["viewer"].legal
        for choice in legal:
            branch = game.fork()
            branch.send({"viewer": choice})
            paid = sum(entry.value for entry in branch.ledger)
            right[choice] += paid
        assert len(legal) == round(1 / scenario.baselines["chance (success)"])
    assert sum(right.values()) == len(scenario.tasks("test"))
    assert max(right.values()) < 1.2 * sum(right.values()) / len(right)


@pytest.mark.longest
def test_the_rules_hold_and_options_are_checked():
    assert 9 in check_scenario("shapes", seeds=range(4)).passed
    for options in (
        {"questions": "shape"},
        {"questions": ["size"]},
        {"questions": []},
        {"size": 8},
    ):
        with pytest.raises(ConfigError, match="scenario"):
            make("shapes", **options)


def test_digits_are_scans_of_which_every_fifth_is_held_out(monkeypatch):
    """On a module in the place of scikit-learn; the real one is tried in tests/worlds."""
    from gem_ma.worlds import sklearn

    sets = ModuleType("sklearn.datasets")
    scans = np.arange(20)[:, None, None] % 17 * np.ones((20, 8, 8))
    sets.load_digits = lambda: SimpleNamespace(images=scans, target=np.arange(20) % 10)
    monkeypatch.setitem(sys.modules, "sklearn", ModuleType("sklearn"))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", sets)
    sklearn._scans.cache_clear()
    try:
        scenario = make("sklearn:digits", scale=2)
        assert list(scenario.tasks("test")) == ["0", "5", "10", "15"]
        assert len(scenario.tasks("train")) == 16
        game, _ = opening(scenario, "13")
        game.send({"viewer": "3"})
        assert [entry.value for entry in game.ledger] == [1.0]
        with pytest.raises(ConfigError, match="one scenario"):
            make("sklearn:iris")
    finally:
        sklearn._scans.cache_clear()


def test_a_missing_library_is_one_line_that_says_what_to_type(monkeypatch):
    from gem_ma.worlds import sklearn

    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    sklearn._scans.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install .*\[sklearn\]") as refused:
        make("sklearn:digits")
    assert "\n" not in str(refused.value)
