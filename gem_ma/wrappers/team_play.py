"""One play of `teamwork`: the rules ask one agent, a team answers, and each role is paid.

What an answer that was not played would have earned is found by playing the rules again up to here
and then with that answer, as a fork is.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gem_ma.kernel.effects import Ask, Call, Effect, Leave, Reward, Tell, amount, as_messages
from gem_ma.kernel.episode import CallResult, Entry, Episode, Seat
from gem_ma.kernel.errors import CallError
from gem_ma.kernel.types import Action, Message, Turn
from gem_ma.kernel.views import private_copy
from gem_ma.registry import task_of
from gem_ma.wrappers.around import relay
from gem_ma.wrappers.retry import by_agent
from gem_ma.wrappers.team_words import answer_key, leaks, team, told, verified, without_facts

if TYPE_CHECKING:
    from gem_ma.wrappers.teamwork import Teamwork

Part = Generator[Any, Any, Any]  # of a play
VERDICTS = ("approve", "object")
PICKS = ("first", "second")

REVIEW = "Is {who}'s answer right? Say why, and on the last line: approve or object."
REVISE = "Answer again, in the same form. What you say now is played, if nobody objects again."
PLAN = "How should {who} go on? Say your plan."
HINT = "Help {who} to find the answer. Do not say the answer: {who} would not hear it."
SAID = "You said the answer. {who} did not hear it."
WITHHELD = "[withheld: it says the answer]"
ARGUE = "Why is your answer right? Put words that stand in the facts between <quote> and </quote>."
UNREAD = "That was neither {0} nor {1}: it does not count."
JUDGE = "Whose answer is right? Say first, of {0}, or second, of {1}."
OTHERS = "The answers of all: {0}. Answer again, in the same form."
MOST_TOLD = 400  # characters of the answer of each of up to 64
KNOWS = "The right answer is: {0}"
PLAYED = "Played: {0}"


class Cut(Exception):
    """A limit of the rules' own has cut the play."""


class Question(NamedTuple):
    """An Ask of the rules."""

    shown: Any
    legal: Sequence[str] | None
    tools: Sequence[Any] | None

    def to(self, *agents: str) -> Ask:
        return Ask(dict.fromkeys(agents, self.shown), self.legal, self.tools)


class TeamPlay:
    """The team's play around one of the rules, which is noted as the rules saw it."""

    def __init__(self, made: Teamwork, rng: random.Random, task: Any) -> None:
        self.made = made
        self.rng = rng
        self.task = task
        self.solo = made.inner.agents[0]
        # the rules' own play: what their agent was shown and did, what was called and paid
        self.unread: list[Message] = []
        self.turns: list[Turn] = []
        self.calls: list[CallResult] = []
        self.ledger: list[Entry] = []
        self.cut = False
        self.knows = ""  # who was told the right answer
        self.right: Sequence[str] = ()  # its forms
        self.wrong = ""  # what the other debater stands for, where sides are assigned
        self.facts: list[str] = []
        self.counts: Counter[str] = Counter()
        # copies of a stream cost more than many a turn, and only these patterns need one
        self.began: Any = rng.getstate() if made.looks_back or made.draws_first else None
        self.states: list[Any] = []  # of `rng`, as each action went to the rules
        self.paid_alike = made.actors  # whom the rules' payments go to, where roles are paid
        # objectors of the answer that is being paid, and what the draft would have earned
        self.objected: tuple[tuple[str, ...], float] = ((), 0.0)
        self.gained = 0.0  # since the rules were last answered
        self.order: list[str] = []

    def run(self) -> Part:
        """The effects of the whole play."""
        made = self.made
        yield Tell({agent: Message.system(made.briefing(agent)) for agent in made.agents})
        # from a copy: the rules draw what they draw without a team
        for agent, secret in made.deal(self._as_begun(), self.task).items():
            if secret:
                self.knows = agent
                self.right = secret
                yield Tell({agent: team(KNOWS.format(secret[0]))})
        if made.pattern == "teach" and not self.knows:
            self.right = made.right_answers(self._as_begun(), self.task)
        if debaters := made.named("debater"):
            # apart from the stream of `deal`: who is first tells nothing of who is right
            lots = random.Random(f"teamwork order/{self.began[1][:8]}")
            self.order = lots.sample(debaters, len(debaters))
        try:
            yield from relay(made.inner.play(self.rng, self.task), self._handled)
        except Cut:
            return
        yield from self._settled()

    def _as_begun(self) -> random.Random:
        """The stream as the play got it."""
        if self.began is None:
            return self.rng
        copy = random.Random()
        copy.setstate(self.began)
        return copy

    def _handled(self, effect: Effect) -> Part:
        solo = self.solo
        to: Any = getattr(effect, "to", None)
        if isinstance(effect, Call):
            return (yield from self._called(effect))
        if isinstance(effect, (Ask, Tell)) and _is_of(to, solo):
            content = to[solo]
            self.unread += as_messages(content) or ()
            if isinstance(effect, Tell):
                return (yield Tell(self._shown(content, self.made.agents)))
            legal = by_agent(effect.legal, to).get(solo)
            return (yield from self._asked(content, legal, by_agent(effect.tools, to).get(solo)))
        if isinstance(effect, Reward) and _is_of(effect.values, solo):
            return (yield from self._paid(effect))
        if isinstance(effect, Leave) and effect.agent == solo:
            yield from self._settled()
            self.cut = effect.cut
            for agent in self.made.agents:
                yield Leave(agent, effect.cut)
            return None
        return (yield effect)  # the kernel says what is wrong with it

    def _shown(self, content: Any, agents: Sequence[str]) -> dict[str, Any]:
        """What the rules show their agent, by agent of the team."""
        shown = dict.fromkeys(agents, content)
        if self.made.options.get("facts"):
            rest, facts = without_facts(content)
            # each of the two debaters may be told alone
            self.facts += [fact for fact in facts if fact not in self.facts]
            if "judge" in shown:
                shown["judge"] = rest
        return shown

    def _called(self, call: Call) -> Part:
        step = len(self.turns) - 1
        try:
            value = yield call
        except CallError as error:
            self.calls.append(CallResult(step, None, str(error)))
            raise
        self.calls.append(CallResult(step, deepcopy(value)))
        return value

    # -- payments ---------------------------------------------------------------------------------

    def _paid(self, reward: Reward) -> Part:
        solo = self.solo
        value = reward.values[solo]
        team_paid = self.made.agents if self.made.credit == "team" else self.paid_alike
        if team_paid:
            yield Reward(dict.fromkeys(team_paid, value), reward.why)
        original = None if reward.original is None else amount(reward.original.get(solo, 0.0))
        paid = amount(value)
        self.gained += paid
        self.ledger.append(Entry(len(self.turns) - 1, solo, paid, str(reward.why), original))
        return None

    def _settled(self) -> Part:
        """Pays the reviewers, once it is known what the last answer earned."""
        objectors, draft = self.objected
        better = self.gained - draft
        if objectors and better:
            how = "better" if better > 0 else "worse"
            self.counts[how] += 1
            yield Reward(dict.fromkeys(objectors, better), f"review: a change for the {how}")
        self.objected = ((), 0.0)
        self.gained = 0.0

    def _worth(self, action: Action) -> Part:
        """What the rules would pay for this answer, until they ask again."""
        now = self.rng.getstate()
        rng = self._as_begun()
        inner = self.made.inner.play(rng, self.task)
        known = deque(self.calls)
        acts = [turn.action for turn in self.turns] + [action]
        states = [*self.states, now]
        asked = 0
        paid = 0.0
        answer: Any = None
        failed: CallError | None = None
        try:
            while True:
                effect = inner.send(answer) if failed is None else inner.throw(failed)
                answer = None
                failed = None
                if isinstance(effect, Ask):
                    if asked == len(acts):
                        return paid
                    rng.setstate(states[asked])
                    answer = {self.solo: private_copy(acts[asked])}
                    asked += 1
                elif isinstance(effect, Reward) and asked == len(acts):
                    paid += amount(effect.values[self.solo])
                elif isinstance(effect, Call):
                    try:
                        answer = _result(known.popleft()) if known else (yield effect)
                    except CallError as error:
                        failed = error
        except StopIteration:
            return paid
        finally:
            inner.close()

    # -- answers ----------------------------------------------------------------------------------

    def _asked(self, shown: Any, legal: Any, tools: Any) -> Part:
        yield from self._settled()
        place = len(self.turns)
        if self.made.most_decisions is not None and place >= self.made.most_decisions:
            self.cut = True
            yield Tell(self._shown(shown, self.made.agents))
            for agent in self.made.agents:
                yield Leave(agent, cut=True)
            raise Cut
        every = self.made.options.get("every", 1)
        consults = place % every == 0 if every else place == 0
        question = Question(shown, legal, tools)
        action = yield from getattr(self, f"_{self.made.pattern}")(question, consults)
        if self.made.looks_back:
            self.states.append(self.rng.getstate())
        observed = tuple(self.unread)
        self.unread = []
        choices = None if legal is None else tuple(legal)
        turn = Turn(place, self.solo, observed, choices, tuple(tools or ()), action)
        self.turns.append(turn)
        return {self.solo: private_copy(action)}

    def _propose_review(self, question: Question, consults: bool) -> Part:
        reviewers = self.made.named("reviewer")
        yield Tell(self._shown(question.shown, reviewers))
        draft = action = (yield question.to("proposer"))["proposer"]
        objected: dict[str, None] = {}
        for _ in range(self.made.options["rounds"] if consults else 0):
            yield Tell(dict.fromkeys(reviewers, Message(told(action), "proposer")))
            ask = team(REVIEW.format(who="proposer"))
            reviews = yield Ask(dict.fromkeys(reviewers, ask), VERDICTS)
            against = [x for x in reviewers if reviews[x].parsed == "object"]
            if unread := [x for x in reviewers if reviews[x].parsed is None]:
                yield Tell(dict.fromkeys(unread, team(UNREAD.format(*VERDICTS))))
            self.counts["reviews"] += len(reviewers)
            self.counts["objections"] += len(against)
            said = [Message(self.made.heard(reviews[x]) or "?", x) for x in reviewers]
            if not against:
                yield Tell({"proposer": said})
                break
            objected.update(dict.fromkeys(against))
            action = (
                yield Ask({"proposer": (*said, team(REVISE))}, question.legal, question.tools)
            )["proposer"]
        if answer_key(action) != answer_key(draft) and self.made.looks_back:
            self.objected = (tuple(objected), (yield from self._worth(draft)))
        yield Tell(dict.fromkeys(reviewers, team(PLAYED.format(told(action)))))
        return action

    def _plan_execute(self, question: Question, consults: bool) -> Part:
        return (yield from self._advised(question, "planner", "executor", PLAN, consults))

    def _teach(self, question: Question, consults: bool) -> Part:
        return (yield from self._advised(question, "teacher", "pupil", HINT, consults))

    def _advised(
        self, question: Question, adviser: str, actor: str, words: str, consults: bool
    ) -> Part:
        yield Tell(self._shown(question.shown, (adviser,)))
        if consults:
            ask = {adviser: team(words.format(who=actor))}
            said = self.made.heard((yield Ask(ask, self.made.signals or None))[adviser])
            self.counts["hints"] += 1
            if self.made.pattern == "teach" and leaks(said, self.right):
                self.counts["leaks"] += 1
                said = WITHHELD
                yield Tell({adviser: team(SAID.format(who=actor))})
                if cost := self.made.options["leak"]:
                    blamed = self.made.agents if self.made.credit == "team" else (adviser,)
                    yield Reward(dict.fromkeys(blamed, -cost), "teach: the answer was said")
            # whether it was withheld depends on the answer
            yield Tell({actor: Message(said or "?", adviser)}, reveals=(adviser,))
        action = (yield question.to(actor))[actor]
        yield Tell({adviser: Message(told(action), actor)})
        return action

    def _vote(self, question: Question, consults: bool) -> Part:
        voters = self.made.named("voter")
        answers = yield question.to(*voters)
        for _ in range(self.made.options["rounds"] - 1):
            others = "; ".join(f"{x}: {told(answers[x])[:MOST_TOLD]}" for x in voters)
            ask = dict.fromkeys(voters, team(OTHERS.format(others)))
            answers = yield Ask(ask, question.legal, question.tools)
        keys = {x: answer_key(answers[x]) for x in voters}
        votes = Counter(keys.values())
        top = [key for key in votes if votes[key] == max(votes.values())]
        self.counts["votes"] += len(voters)
        self.counts["ties"] += len(top) > 1
        is_lot = self.made.options["ties"] == "lot" and len(top) > 1
        won = self.rng.choice(top) if is_lot else top[0]
        self.counts["agreed"] += votes[won]
        action = next(answers[x] for x in voters if keys[x] == won)
        yield Tell(
            dict.fromkeys(voters, team(f"{PLAYED.format(told(action))} ({votes[won]} votes)"))
        )
        if self.made.looks_back:
            self.paid_alike = tuple(x for x in voters if keys[x] == won)
            for key in votes:
                unplayed = [x for x in voters if keys[x] == key != won]
                worth = (yield from self._worth(answers[unplayed[0]])) if unplayed else 0.0
                if worth:
                    yield Reward(dict.fromkeys(unplayed, worth), "vote: its own answer, not played")
        return action

    def _debate_judge(self, question: Question, consults: bool) -> Part:
        debaters = self.made.named("debater")
        yield Tell(self._shown(question.shown, ("judge",)))
        self.order.reverse()  # who is heard first changes with every decision
        claims = yield from self._claims(question, debaters)
        keys = {x: answer_key(claims[x]) for x in debaters}
        said = [Message(told(claims[x]), x) for x in self.order]
        # an answer that was given shows who knows the right one
        yield Tell(
            {x: [m for m in said if m.sender != x] for x in self.made.agents}, reveals=debaters
        )
        if len(set(keys.values())) == 1:
            self.counts["agreements"] += 1
            yield Tell({"judge": team(PLAYED.format(told(claims[debaters[0]])))})
            return claims[debaters[0]]
        for _ in range(self.made.options["rounds"]):
            yield from self._argued()
        ask = Ask({"judge": team(JUDGE.format(*self.order))}, PICKS)
        pick = (yield ask)["judge"].parsed
        if pick is None:
            # the rules get no answer: that is the judge's fault, and the judge's loss
            yield Tell(dict.fromkeys(self.made.agents, team(UNREAD.format(*PICKS))))
            return Action("")
        won = self.order[PICKS.index(pick)]
        lost = self.order[1 - PICKS.index(pick)]
        self.counts["picks"] += 1
        self.counts["first"] += pick == "first"
        yield Tell(dict.fromkeys(debaters, team(PLAYED.format(told(claims[won])))))
        if self.made.credit == "role":
            yield Reward({won: 1.0, lost: -1.0}, "debate: whom the judge believed")
        return claims[won]

    def _claims(self, question: Question, debaters: Sequence[str]) -> Part:
        """The answer that each debater stands for."""
        legal = question.legal or ()
        wrong = [choice for choice in legal if choice not in self.right]
        if not self.knows or len(wrong) == len(legal) or not wrong:
            return (yield question.to(*debaters))
        if self.wrong not in wrong:
            # once for all decisions: the claim that comes again would be the right one
            self.wrong = self.rng.choice(wrong)
        claims = {x: self.right[0] if x == self.knows else self.wrong for x in debaters}
        for agent, claim in claims.items():
            yield Tell({agent: (*(as_messages(question.shown) or ()), team(f"Yours is: {claim}"))})
        return {x: Action(claim, (), claim) for x, claim in claims.items()}

    def _argued(self) -> Part:
        """One round of arguments, which the judge and the other debater hear."""
        signals = self.made.signals or None
        at_once = self.made.options["order"] == "at once"
        for speakers in [self.order] if at_once else [[x] for x in self.order]:
            actions = yield Ask(dict.fromkeys(speakers, team(ARGUE)), signals)
            said = []
            for agent in speakers:
                text, right, wrong = verified(self.made.heard(actions[agent]), self.facts)
                self.counts["quotes"] += right + wrong
                self.counts["verified"] += right
                said.append(Message(text or "?", agent))
            yield Tell({x: [m for m in said if m.sender != x] for x in self.made.agents})


def _is_of(values: Any, agent: str) -> bool:
    """Whether an effect's values are for this agent and no other."""
    return isinstance(values, Mapping) and set(values) == {agent}


def _result(recorded: CallResult) -> Any:
    """What a call came to; raises CallError where it failed."""
    if recorded.error is not None:
        raise CallError(recorded.error)
    return deepcopy(recorded.value)


def solo_play(made: Teamwork, episode: Episode) -> tuple[Episode, TeamPlay]:
    """A record as the rules saw it, of their one agent, and the team's play: played again with what
    was done and called, until the record ends."""
    rng = random.Random(episode.seed)
    played = TeamPlay(made, rng, task_of(made, episode.task))
    _again(played.run(), rng, episode)
    seat = next((episode.cast[x] for x in made.actors if x in episode.cast), Seat())
    inner = replace(
        episode,
        cast={played.solo: seat},
        turns=tuple(played.turns),
        calls=tuple(played.calls),
        forks=(),
        final={played.solo: tuple(played.unread)},
        ledger=tuple(played.ledger),
        cut=(played.solo,) if played.cut else (),
    )
    return inner, played


def _again(play: Part, rng: random.Random, episode: Episode) -> None:
    """Plays on as long as the record says what was done. Not `replay`: other wrappers, and tools,
    have taken their own turns out of the record."""
    turns: dict[str, deque[Turn]] = {}
    for turn in episode.turns:
        turns.setdefault(turn.agent, deque()).append(turn)
    calls = deque(episode.calls)
    forks = deque(episode.forks)
    step = -1
    answer: Any = None
    failed: CallError | None = None
    try:
        while True:
            effect = play.send(answer) if failed is None else play.throw(failed)
            answer = None
            failed = None
            if isinstance(effect, Ask):
                if not all(turns.get(agent) for agent in effect.to):
                    return
                acts = {agent: turns[agent].popleft() for agent in effect.to}
                step = max(turn.step for turn in acts.values())
                while forks and forks[0][0] <= step:
                    rng.seed(forks.popleft()[1])
                answer = {agent: private_copy(turn.action) for agent, turn in acts.items()}
            elif isinstance(effect, Call):
                # calls of tools belong to turns that were taken out
                while calls and calls[0].step < step:
                    calls.popleft()
                if not calls or calls[0].step > step:
                    return
                try:
                    answer = _result(calls.popleft())
                except CallError as error:
                    failed = error
    except StopIteration:
        return
    finally:
        play.close()
