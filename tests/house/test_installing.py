"""Advice on extras names where the package came from, since no index has it."""

import json
from pathlib import Path

import pytest

from gem_ma.system import extras as installing


class Noted:
    def __init__(self, text: str | None) -> None:
        self.text = text

    def read_text(self, name: str) -> str | None:
        return self.text


def test_a_checkout_is_installed_from_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(installing.CHECKOUT)
    assert (
        installing.install("train", "api") == 'pip install ".[train,api]"'
        and installing.install() == 'pip install "."'
    )
    assert installing.install("reasoning_gym") == 'pip install ".[reasoning-gym]"'
    monkeypatch.chdir(installing.CHECKOUT / "tests")
    assert installing.install("train") == 'pip install "..[train]"'


@pytest.mark.parametrize(
    ("note", "advice"),
    [
        (
            {"url": "file:///x/gem_ma-0.1.0-py3-none-any.whl", "archive_info": {}},
            "gem-ma[train] @ file:///x/gem_ma-0.1.0-py3-none-any.whl",
        ),
        (
            {"url": "https://host/gem_ma.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "gem-ma[train] @ git+https://host/gem_ma.git@abc",
        ),
        (None, "gem-ma[train]"),
        ("{broken", "gem-ma[train]"),
        ([1], "gem-ma[train]"),
    ],
)
def test_a_package_is_installed_from_where_pip_had_it(
    note: object, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = note if isinstance(note, str) or note is None else json.dumps(note)
    monkeypatch.setattr(installing, "CHECKOUT", tmp_path)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Noted(text))
    assert installing.install("train") == f'pip install "{advice}"'
