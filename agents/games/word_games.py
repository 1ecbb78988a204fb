"""Players of `wordle` and `hangman`. They know the words that the game lists, else our own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from gem_ma.agents.games.player import GamePlayer, Texts, matches
from gem_ma.scenarios.games.wordle import marks
from gem_ma.scenarios.games.words import all_words

LENGTH = re.compile(r".*word of (\d+) letters")
MARKED = re.compile(r"(?<![a-z])([a-z]++): ([GYX](?: [GYX])*+)")
ASKED = re.compile(r"(?<![a-z])([a-z]++) is (?:not )?(?:in )?the word")
BOARD = re.compile(r"^[a-z_](?: [a-z_])+$", re.MULTILINE)
FREQUENT = "esarintoldcuphgmybfkwvxqzj"  # the most frequent letters of our words first
MOST_WORDS = 60  # that guesses are weighed against

Marked = tuple[str, str]  # a guess, and a mark for each of its letters


def words_in(texts: Texts, legal: Texts) -> list[str]:
    """The words that may be the secret one before anything is known."""
    match = LENGTH.match(texts[0])
    length = int(match[1]) if match else 5
    # a user's list is known by what the game offers
    words = legal or all_words("")
    return [word for word in words if len(word) == length]


def answers_in(texts: Texts) -> list[Marked]:
    """Every guess that was marked."""
    found = matches(MARKED, texts)
    return [(match[1], match[2].replace(" ", "")) for match in found]


def fitting(words: Sequence[str], answers: Sequence[Marked]) -> list[str]:
    """The words that would have got these marks."""
    for guess, answer in answers:
        words = [word for word in words if marks(word, guess) == answer]
    return list(words)


class WordleSimple(GamePlayer):
    """Draws a word that fits the marks of the newest guess, and was not tried."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        answers = answers_in(texts)
        tried = {guess for guess, _ in answers}
        words = fitting(words_in(texts, legal), answers[-1:])
        fresh = [word for word in words if word not in tried]
        return self.any_of(fresh or legal)


class WordleStrong(GamePlayer):
    """Says the word that fits all marks and would tell the rest apart best."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        answers = answers_in(texts)
        words = fitting(words_in(texts, legal), answers)
        if not answers or len(words) < 3:
            return self.any_of(words or legal)
        some = self.rng.sample(words, min(MOST_WORDS, len(words)))

        def kinds(guess: str) -> int:
            return len({marks(word, guess) for word in some})

        return max(some, key=kinds)


def board_of(texts: Texts) -> tuple[str, set[str]]:
    """(letters so far with _ for the others, what was asked for)."""
    boards = BOARD.findall(texts[-1])
    tried = {match[1] for match in matches(ASKED, texts)}
    return boards[-1].replace(" ", "") if boards else "", tried


class HangmanSimple(GamePlayer):
    """Asks for the most frequent letters of English, and says the word when all are known."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        pattern, tried = board_of(texts)
        if pattern and "_" not in pattern:
            return pattern
        letters = [letter for letter in FREQUENT if letter not in tried]
        return letters[0] if letters else self.any_of(legal)


class HangmanStrong(HangmanSimple):
    """Asks for the letter that splits the words which still fit best, and says the last of them."""

    def choose(self, texts: Texts, legal: Texts) -> str:
        pattern, tried = board_of(texts)
        # a letter that was asked for stands nowhere but where it is seen
        hidden = f"[^{''.join(sorted(tried)) or '_'}]"
        fits = re.compile(pattern.replace("_", hidden)).fullmatch
        words = filter(fits, words_in(texts, legal))
        left = [word for word in words if word not in tried]
        if len(left) < 3:
            return left[0] if left else super().choose(texts, legal)
        counts = Counter(letter for word in left for letter in set(word) - tried)

        def off(letter: str) -> tuple[int, str]:
            # how far from halving them; then by name, since sets have no order
            return abs(2 * counts[letter] - len(left)), letter

        return min(counts, key=off)
