"""Words for games of other libraries: lists of this machine, without the network."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gem_ma.kernel.errors import ConfigError
from gem_ma.worlds import wordlists
from gem_ma.worlds.wordlists import common, words_lent


class Corpus:
    """nltk's own list, which is not there."""

    def words(self, lists: Any = None) -> list[str]:
        raise LookupError("Resource words not found")


@pytest.fixture
def nltk(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that fetches, and one that holds Webster's words."""
    module: Any = ModuleType("nltk")
    module.fetched = []
    module.corpus = SimpleNamespace(words=Corpus())
    module.download = module.fetched.append
    english: Any = ModuleType("english_words")
    english.get_english_words_set = lambda names: {"zebra", "Ann", "ant", "aardvark"}
    monkeypatch.setitem(sys.modules, "nltk", module)
    monkeypatch.setitem(sys.modules, "english_words", english)
    wordlists.webster.cache_clear()
    yield module
    wordlists.webster.cache_clear()


def test_a_guest_gets_words_and_fetches_nothing(nltk: Any) -> None:
    held = nltk.corpus.words  # as `from nltk.corpus import words` holds it
    with words_lent("gem"):
        nltk.download("words")
        assert held.words("en") == ["aardvark", "Ann", "ant", "zebra"]
        assert held.words("en-basic") == list(common())
        assert held.words() == held.words(["en", "en-basic"])
        assert len(held.words()) == 4 + len(common())
    assert nltk.fetched == []


def test_what_a_user_has_of_nltk_is_put_back(nltk: Any) -> None:
    download = nltk.download
    with pytest.raises(ValueError, match="in the middle"), words_lent("gem"):
        with words_lent("gem"):  # a guest that starts within another
            pass
        assert nltk.corpus.words.words("en-basic")
        raise ValueError("in the middle")
    assert nltk.download is download
    with pytest.raises(LookupError):
        nltk.corpus.words.words("en")


def test_without_the_package_a_line_says_which_extra_brings_it(
    nltk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "english_words", None)
    with words_lent("textarena"), pytest.raises(ConfigError, match=r"install .*\[textarena\]"):
        nltk.corpus.words.words("en")


def test_our_common_words_are_words_of_three_to_seven_letters() -> None:
    assert len(common()) == len(set(common())) == 1180
    assert {len(word) for word in common()} == {3, 4, 5, 6, 7}
    assert all(word.isascii() and word.isalpha() and word.islower() for word in common())
