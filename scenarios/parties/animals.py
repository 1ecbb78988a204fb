"""A table of animals and what is true of them, and how few questions name one of them.

A set of animals is a whole number: bit i stands for the i-th of `ANIMALS`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain

# attribute -> words that a card which forbids it forbids
ATTRIBUTES = {
    "has fur": ("fur", "furry", "hair", "hairy", "wool"),
    "has feathers": ("feather", "feathered", "plume", "bird"),
    "lays eggs": ("egg", "lay", "laid", "laying", "hatch"),
    "can fly": ("fly", "flies", "flying", "flew", "flight", "wing"),
    "lives in water": ("water", "swim", "swimming", "sea", "river", "fish"),
    "has four legs": ("leg", "four", "legged", "foot", "feet", "paw"),
    "eats meat": ("meat", "eat", "eater", "eating", "hunt", "hunter", "prey"),
    "is kept on farms": ("farm", "farmer", "kept", "keep", "tame"),
    "is bigger than a person": ("big", "bigger", "large", "larger", "huge", "person"),
    "lives wild in Africa": ("africa", "african", "wild", "savanna"),
    "is awake at night": ("night", "awake", "nocturnal", "dark", "sleep"),
}
# one digit for each attribute, in their order. What it says here is what is true, also where
# somebody knows better
ANIMALS = {
    "horse": "10000101100",
    "sheep": "10000101000",
    "duck": "01111001000",
    "goose": "01110001000",
    "turkey": "01100001000",
    "lion": "10000110111",
    "zebra": "10000100110",
    "elephant": "00000100110",
    "hippo": "00001100111",
    "wolf": "10000110001",
    "bear": "10000110100",
    "mouse": "10000100001",
    "squirrel": "10000100000",
    "beaver": "10001100001",
    "otter": "10001110000",
    "seal": "10001010100",
    "whale": "00001010100",
    "salmon": "00101010000",
    "octopus": "00101010001",
    "eagle": "01110010000",
    "swan": "01111000000",
    "pigeon": "01110000000",
    "ostrich": "01100000110",
    "penguin": "01101010000",
    "crocodile": "00101110111",
    "turtle": "00101100000",
    "frog": "00101110001",
    "snake": "00100010000",
    "lizard": "00100110000",
    "tortoise": "00100100000",
    "snail": "00100000001",
    "butterfly": "00110000000",
}
PLURALS = {"goose": "geese", "mouse": "mice", "wolf": "wolves", "butterfly": "butterflies"}
PLACES = {animal: 1 << place for place, animal in enumerate(ANIMALS)}
# attribute -> the animals of which it is true
WITH = {
    attribute: sum(PLACES[animal] for animal, digits in ANIMALS.items() if digits[place] == "1")
    for place, attribute in enumerate(ATTRIBUTES)
}
_WORD = re.compile(r"[a-z]+")


def is_true(animal: str, attribute: str) -> bool:
    return bool(WITH[attribute] & PLACES[animal])


def narrowed(animals: int, attribute: str, answer: str) -> int:
    """Those of these animals of which the answer, `yes` or `no`, is true."""
    return animals & WITH[attribute] if answer == "yes" else animals & ~WITH[attribute]


def members(animals: int) -> list[str]:
    """Their names, in the order of the table."""
    return [animal for animal, bit in PLACES.items() if animals & bit]


# -- how few questions it takes -------------------------------------------------------------------


@lru_cache(maxsize=64)
def least(count: int) -> float:
    """The fewest turns that name one of so many in the mean, where any part of them could be asked
    for; no table does better. A turn is a question or a guess, the last one is the right guess.

    >>> [least(count) for count in (1, 2, 4, 8, 16, 32)]
    [1.0, 1.5, 2.5, 3.5, 4.5, 5.5]
    """
    if count == 1:
        return 1.0
    parts = ((part, count - part) for part in range(1, count // 2 + 1))
    asked = min(1 + (a * least(a) + b * least(b)) / count for a, b in parts)
    return min(asked, 1 + (count - 1) / count * least(count - 1))


@lru_cache(maxsize=100_000)
def best(animals: int) -> tuple[float, str]:
    """(the fewest turns in the mean that name one of these animals, each as likely, with honest
    answers, the question or guess that begins so). Exact: only what cannot be better is left
    out."""
    count = animals.bit_count()
    if count == 1:
        return 1.0, members(animals)[0]
    asks = [(attribute, (animals & true, animals & ~true)) for attribute, true in WITH.items()]
    # a wrong guess leaves the others
    guesses = [(animal, (animals & ~PLACES[animal],)) for animal in members(animals)]
    fewest = float("inf")
    move = ""
    for name, parts in asks + guesses:
        sizes = [part.bit_count() for part in parts]
        if 0 in sizes:
            continue
        hoped = sum(size * least(size) for size in sizes)
        if 1 + hoped / count < fewest - 1e-12:
            later = sum(size * best(part)[0] for size, part in zip(sizes, parts, strict=True))
            if 1 + later / count < fewest - 1e-12:
                fewest = 1 + later / count
                move = name
    return fewest, move


# -- forbidden words ------------------------------------------------------------------------------


def forbidden_words(animal: str, attributes: Iterable[str]) -> tuple[str, ...]:
    """What a card forbids to say: the animal, and the words of these attributes."""
    own = (animal, PLURALS[animal]) if animal in PLURALS else (animal,)
    return (*own, *chain.from_iterable(ATTRIBUTES[attribute] for attribute in attributes))


def says_one_of(text: str, words: Iterable[str]) -> bool:
    """Whether the text says one of these words, in the singular or with an s behind it, or spells
    it by letters or pieces, with whatever stands between them.

    >>> says_one_of("It is a B-E a r.", ["bear"]), says_one_of("It may bear a child", ["bee"])
    (True, False)
    """
    forms = {form for word in words for form in (word, word + "s")}
    longest = max(map(len, forms), default=0)
    # accents and what cannot be seen cut a word in pieces, which are runs again
    plain = unicodedata.normalize("NFKD", text).casefold()
    return any(spelled in forms for spelled in _runs(_WORD.findall(plain), longest))


def _runs(words: Sequence[str], longest: int) -> Iterator[str]:
    """Each word, and each run of neighbours as one word, of so many letters at most."""
    for start in range(len(words)):
        run = ""
        for word in words[start:]:
            run += word
            if len(run) > longest:
                break
            yield run
