"""Twenty questions: one knows which animal it is and answers yes or no, others ask and guess. What
is true stands in a table that all know, so a lie is decidable. As taboo the one who knows gives
clues, without what its card forbids.

Type `gem-ma run twenty_questions 'agents.*=twenty_questions_strong'`;
`docs/parties/twenty_questions.md` has the rules.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from gem_ma.scenarios.parties.animals import (
    ANIMALS,
    ATTRIBUTES,
    PLACES,
    forbidden_words,
    is_true,
    least,
    narrowed,
    says_one_of,
)
from gem_ma.scenarios.parties.checked import flag, one_of, whole

from gem_ma import Ask, Episode, Message, Reward, Scenario, Tell, dealt
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Play
from gem_ma.kernel.talk import FORMS

ANSWERER = "answerer"
ANSWERS = ("yes", "no")
STATEMENTS = tuple(f"{attribute}: {answer}" for attribute in ATTRIBUTES for answer in ANSWERS)
CANNOT_SAY = "cannot say"
TYPED = (*STATEMENTS, CANNOT_SAY)
ASK = "ask"
MOST_SAID = 400  # characters of free words that are heard

Guess = Generator[Any, Any, str | None]  # a part of a turn, and which animal was guessed in it


class TwentyQuestions(Scenario):
    """One answers yes or no, others ask which animal it is: lies are decidable by a table; also as
    taboo."""

    rates = ("found",)
    more_is_better = ("found", "information")
    less_is_better = ("turns", "lies", "fouls")

    def __init__(
        self,
        animals: int = 16,
        guessers: int = 1,
        turns: int | None = None,
        form: str = "questions",
        talk: str = "signals",
        answerer: str = "partner",
        fine: float = 1.0,
        pay: str = "own",
        forbidden: int = 3,
        briefing: bool = True,
    ) -> None:
        """One of 2 to 32 `animals` is to be named by 1 to 63 `guessers` in up to `turns` (else 20,
        or one for each guesser), which go round. `form`: questions | taboo (the answerer gives a
        clue each turn; its card forbids so many `forbidden` attributes, 0 to 10). `talk`: none
        (guesses alone) | signals (of the table) | free (questions or clues in words).

        `answerer`: partner (it is paid what guessers are in the mean) | rival (the opposite, and it
        pays them a `fine` for each lie). `pay`: own | all (guessers share alike). Without a
        `briefing` all are told the animals alone, no rules and no table. Raises ConfigError."""
        self.animals = tuple(ANIMALS)[: whole("animals", animals, 2, len(ANIMALS))]
        count = whole("guessers", guessers, 1, 63)
        self.guessers = tuple(f"guesser_{number}" for number in range(count))
        self.agents = (ANSWERER, *self.guessers)
        self.turns = whole("turns", max(20, count) if turns is None else turns, 1, 200)
        self.is_taboo = one_of("form", form, ("questions", "taboo")) == "taboo"
        self.talk = one_of("talk", talk, FORMS)
        is_rival = one_of("answerer", answerer, ("partner", "rival")) == "rival"
        if is_rival and self.is_taboo:
            raise ConfigError("scenario.answerer: a rival gives no clues, so taboo takes a partner")
        number = isinstance(fine, (int, float)) and not isinstance(fine, bool)
        if not number or not 0 <= fine <= 100:
            raise ConfigError(f"scenario.fine: a number from 0 to 100; got {fine!r}")
        self.fine = fine if is_rival else 0.0
        self.pays_all = one_of("pay", pay, ("own", "all")) == "all" or count == 1
        self.forbidden = whole("forbidden", forbidden, 0, len(ATTRIBUTES) - 1)
        self.side = -1 if is_rival else 1
        self.zero_sum = is_rival
        self.cooperative = self.pays_all and not is_rival
        if is_rival:
            self.teams = {"answerer": (ANSWERER,), "guessers": self.guessers}
        # what may be asked or guessed: a tuple that is made once costs the kernel least
        self.moves = (*ATTRIBUTES, *self.animals)
        self.openings = (ASK, *self.animals)
        steps = {"none": 1, "signals": 2, "free": 2 if self.is_taboo else 3}
        self.ends_within = self.turns * steps[talk]
        named = f"One of {animals} animals is to be named: {', '.join(self.animals)}."
        self.briefing = self._briefing(named) if flag("briefing", briefing) else named
        self.baselines = {
            "guesses one by one (turns)": (animals + 1) / 2,
            "halving at its best (turns)": least(animals),
        }

    def deal(self, rng: random.Random, task: Any) -> dict[str, tuple[str, ...]]:
        """The animal, and what the answerer's card forbids."""
        animal = rng.choice(self.animals)
        card = rng.sample(list(ATTRIBUTES), self.forbidden) if self.is_taboo else ()
        return {ANSWERER: (animal, *card)}

    # -- the play ---------------------------------------------------------------------------------

    def play(self, rng: random.Random, task: Any) -> Play:
        animal, *card = self.deal(rng, task)[ANSWERER]
        yield Tell(self._rules(animal, card))
        # by lot: in a race it matters who is the first
        first = rng.randrange(len(self.guessers))
        words = forbidden_words(animal, card)
        clues = None if self.talk == "free" else _allowed(tuple(card))
        lies: list[str] = []
        for turn in range(1, self.turns + 1):
            who = self.guessers[(first + turn) % len(self.guessers)]
            count = f"Turn {turn} of {self.turns}."
            if self.is_taboo and self.talk != "none":
                yield from self._clue(count, clues, words)
            if self.is_taboo or self.talk == "none":
                guess = (yield Ask({who: f"{count} Your guess?"}, legal=self.animals))[who].parsed
            else:
                guess = yield from self._question(who, count, animal, lies)
            yield self._paid(who, -1 / self.turns, f"turn {turn}")
            if guess == animal:
                yield self._paid(who, 1.0, "found")
                break
            if guess:
                yield Tell(dict.fromkeys(self.agents, f"{who} guesses {guess}: wrong."))
        if lies and self.fine:
            # the answerer has paid them where it told them, which guessers could not know
            fines = dict.fromkeys(self.guessers, self.fine * len(lies))
            yield Reward(fines, why="fines for lies")
        false = f" Lies: {', '.join(lies)}." if lies else ""
        yield Tell(dict.fromkeys(self.agents, f"It was: {animal}.{false}"))

    def _question(self, who: str, count: str, animal: str, lies: list[str]) -> Guess:
        """A turn in which an agent asks or guesses. Gives the animal that it guessed, else None."""
        if self.talk == "free":
            asked = (yield Ask({who: f"{count} Ask, or guess?"}, legal=self.openings))[who].parsed
            if asked != ASK:
                return asked
            text = (yield Ask({who: "Your question?"}))[who].text[:MOST_SAID]
            question = Message(text, who)
            yield Tell({guesser: question for guesser in self.guessers if guesser != who})
            # the answer names what it answers: so it is of the table, whatever the question was
            acts = yield Ask({ANSWERER: (question, "What do you answer?")}, legal=TYPED)
            said = acts[ANSWERER].parsed or CANNOT_SAY
        else:
            asked = (yield Ask({who: f"{count} Ask or guess."}, legal=self.moves))[who].parsed
            if asked not in ATTRIBUTES:
                return asked
            acts = yield Ask({ANSWERER: f"{who} asks: {asked}?"}, legal=ANSWERS)
            said = f"{asked}: {acts[ANSWERER].parsed or CANNOT_SAY}"
        yield Tell(dict.fromkeys(self.guessers, f"Answer to {who}: {said}."))
        if is_false(said, animal):
            lies.append(said)
            if self.fine:
                yield Reward({ANSWERER: -self.fine}, why="a lie")
        return None

    def _clue(self, count: str, legal: Sequence[str] | None, words: Sequence[str]) -> Play:
        action = (yield Ask({ANSWERER: f"{count} Your clue?"}, legal=legal))[ANSWERER]
        if legal:
            clue = action.parsed or CANNOT_SAY
            yield Tell(dict.fromkeys(self.guessers, f"Clue: {clue}."))
        elif says_one_of(action.text[:MOST_SAID], words):
            # that it is one tells what the card forbids
            yield Tell(dict.fromkeys(self.agents, "Clue: a foul."), reveals=(ANSWERER,))
        else:
            clue = Message(action.text[:MOST_SAID], ANSWERER)
            yield Tell(dict.fromkeys(self.guessers, clue))

    def _paid(self, who: str, value: float, why: str) -> Reward:
        """What a guesser, or all of them, and so the answerer are paid."""
        paid = dict.fromkeys(self.guessers if self.pays_all else (who,), value)
        paid[ANSWERER] = self.side * value * len(paid) / len(self.guessers)
        return Reward(paid, why=why)

    def _rules(self, animal: str, card: Sequence[str]) -> dict[str, str]:
        own = f"{self.briefing} You are the answerer. It is: {animal}."
        if card:
            no = forbidden_words(animal, card) if self.talk == "free" else card
            own += f" Your card forbids: {', '.join(no)}."
        return {ANSWERER: own, **dict.fromkeys(self.guessers, self.briefing)}

    def _briefing(self, named: str) -> str:
        """What all are told."""
        how = {
            "none": "The guessers guess in turn.",
            "signals": "In its turn a guesser asks whether something of the table is true, which"
            " the answerer answers, or guesses.",
            "free": "In its turn a guesser asks in its own words or guesses; the answerer says"
            " what of the table is true or false.",
        }[self.talk]
        if self.is_taboo and self.talk != "none":
            how = (
                "Each turn the answerer gives a clue, and one of the guessers guesses. The"
                " answerer's card forbids some clues; one that says a forbidden word is a foul, and"
                " is not heard."
            )
        true = "; ".join(
            f"{attribute}: {', '.join(x for x in self.animals if is_true(x, attribute)) or 'none'}"
            for attribute in ATTRIBUTES
        )
        aim = "the opposite of what" if self.side < 0 else "what"
        fine = f" Each lie costs it {self.fine:g} for them." if self.fine else ""
        return (
            f"{named} {how} There are {self.turns} turns. Each costs 1/{self.turns}, and whoever"
            f" names it gets 1{'; all guessers are paid alike' if self.pays_all else ''}. The"
            " answerer, who knows it, gets"
            f" {aim} guessers get in the mean.{fine} The table: {true}."
        )

    # -- how it is read ---------------------------------------------------------------------------

    def role(self, episode: Episode, agent: str) -> str:
        return agent.partition("_")[0]

    def success(self, episode: Episode) -> bool | None:
        if not episode.end.scored:
            return None
        return any(entry.why == "found" for entry in episode.ledger)

    def measures(self, episode: Episode) -> Mapping[str, float | None]:
        """Whether it was found; turns, questions or clues, lies and fouls; bits that one of them
        gives: of a question before its answer is known, of a clue after it."""
        animal, *card = dealt(self, episode)[ANSWERER]
        left = sum(PLACES[name] for name in self.animals)
        lies = 0
        bits = []
        for said in _heard(episode):
            if said in PLACES:
                left &= ~PLACES[said]
                continue
            attribute, _, answer = said.partition(": ")
            lies += is_false(said, animal)
            part = narrowed(left, attribute, answer)
            bits.append(_bits(left.bit_count(), part.bit_count(), self.is_taboo))
            left = part
        paid = [entry.why for entry in episode.ledger if entry.agent == ANSWERER]
        asked = [turn for turn in episode.turns if turn.agent == ANSWERER]
        is_typed = self.talk != "free" or not self.is_taboo
        measured = {
            "found": float("found" in paid),
            "turns": float(sum(why.startswith("turn ") for why in paid)),
            "questions": float(len(asked)),
            "lies": float(lies) if is_typed else None,
            "information": sum(bits) / len(bits) if bits else None,
        }
        if not is_typed:
            words = forbidden_words(animal, card)
            clues = [turn.action.text[:MOST_SAID] for turn in asked if turn.legal is None]
            measured["fouls"] = float(sum(says_one_of(clue, words) for clue in clues))
        return measured


def _heard(episode: Episode) -> Iterator[str]:
    """What all heard, in order: animals that were guessed, and what was said of the table."""
    asked = ""
    for turn in episode.turns:
        said = turn.action.parsed
        if turn.agent == ANSWERER:
            if said in ANSWERS:
                said = f"{asked}: {said}"
            if said in STATEMENTS:
                yield said
        elif said in PLACES:
            yield said
        elif said:
            asked = said


@lru_cache(maxsize=512)
def _allowed(card: tuple[str, ...]) -> tuple[str, ...]:
    """The clues of the table that a card does not forbid."""
    return tuple(said for said in STATEMENTS if said.partition(": ")[0] not in card)


def is_false(said: str, animal: str) -> bool:
    """Whether a statement, such as `can fly: yes`, is false of the animal; what says nothing is
    not."""
    attribute, _, answer = said.partition(": ")
    return answer in ANSWERS and is_true(animal, attribute) != (answer == "yes")


def _bits(left: int, part: int, is_known: bool) -> float:
    """Bits by which an answer narrows what is left, of which it is true for a part: known, or in
    the mean over both answers."""
    if not 0 < part < left:
        return 0.0
    share = part / left
    if is_known:
        return -math.log2(share)
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)
