"""Signs of health of a policy, measured in recorded episodes: how it answers, where it decides, who
wins in mirror play, whether it reads what only it is shown.

Pure functions of the record. Which values mean a collapse is judged in
`gem_ma.training.selfplay.collapse`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Malformed, Message, Reply, Turn
from gem_ma.scores.exploitability import Strategy

PROBES = 64  # views that are probed; each costs a pass of the policy
Encode = Callable[[str], Sequence[int]]  # text of an answer -> its ids, end of turn included


def health(
    episodes: Sequence[Episode], policy: str, encode: Encode | None = None
) -> dict[str, float]:
    """How a policy answers in these episodes; {} where it did not.

    Over all `turns`: the mean `length` of its last replies in tokens and the share of `invalid`
    answers (a closed choice that could not be read, a malformed tool call). Over `decisions`,
    turns with several legal strings: the share of `one_action`, the commonest of each closed
    choice, the estimated `entropy` at the decision token in nats, and `format_entropy` at all
    other sampled tokens of the same replies, where there are any. Both estimates are means of
    the sampled tokens' surprise. `encode` gives the ids of an answer's text, where the policy
    has a tokenizer.
    """
    turns = _sampled(episodes, policy)
    if not turns:
        return {}
    choices: dict[tuple[str, ...], list[tuple[Turn, Reply]]] = {}
    for turn, reply in turns:
        if turn.legal is not None and len(turn.legal) > 1:  # one legal string decides nothing
            choices.setdefault(turn.legal, []).append((turn, reply))
    decisions = sum(map(len, choices.values()))
    measured = {
        "turns": float(len(turns)),
        "length": sum(len(reply.token_ids) for _, reply in turns) / len(turns),
        "invalid": sum(_unreadable(turn) for turn, _ in turns) / len(turns),
        "decisions": float(decisions),
    }
    if not decisions:
        return measured
    # by closed choice: actions of different choices do not compare
    commonest = sum(
        Counter(turn.action.parsed for turn, _ in part).most_common(1)[0][1]
        for part in choices.values()
    )
    measured["one_action"] = commonest / decisions  # unreadable answers are one action too
    asked = choices.items()
    places = [place for legal, part in asked for place in decision_tokens(legal, part, encode)]
    if places:
        # the mean of -log p over samples of p is its entropy; no further pass of the model
        surprise = sum(-reply.logprobs[place] for reply, place in places)
        measured["entropy"] = surprise / len(places)
    others = [
        -value for reply, place in places for n, value in enumerate(reply.logprobs) if n != place
    ]
    if others:
        measured["format_entropy"] = sum(others) / len(others)
    return measured


def _unreadable(turn: Turn) -> bool:
    malformed = any(isinstance(call, Malformed) for call in turn.action.tool_calls)
    return malformed or turn.illegal


def _sampled(episodes: Sequence[Episode], policy: str) -> list[tuple[Turn, Reply]]:
    sampled = []
    for turn in (turn for episode in episodes if episode.end.scored for turn in episode.turns):
        replies = [reply for reply in turn.replies if reply.policy == policy and reply.token_ids]
        if replies:
            # the last one acted; a behaviour may ask its model several times for one act
            sampled.append((turn, replies[-1]))
    return sampled


def decision_tokens(
    legal: Sequence[str], part: Sequence[tuple[Turn, Reply]], encode: Encode | None = None
) -> list[tuple[Reply, int]]:
    """The readable answers to one closed choice, each with the place in its sampled ids at which it
    decides.

    That is the first place at which the ids of the legal strings differ. Where the sampled ids
    do not hold the ids of what was meant (no tokenizer here, another wording), it is the first
    at which recorded answers with different meanings differ, and where all mean the same, the
    least certain one.
    """
    read = [
        (turn.action.parsed, reply)
        for turn, reply in part
        if turn.action.parsed is not None and len(reply.logprobs) == len(reply.token_ids)
    ]
    if not read:
        return []
    spelled = {text: tuple(encode(text)) for text in legal} if encode is not None else {}
    differ = _first_difference(list(spelled.values()))
    held = [_where(reply.token_ids, spelled.get(parsed, ())) for parsed, reply in read]
    fallback = _recorded_difference(read)
    places = []
    for (parsed, reply), start in zip(read, held, strict=True):
        # a string that is the beginning of another one ends before the two differ
        exact = start is not None and differ is not None and differ < len(spelled[parsed])
        guess = min(fallback, len(reply.logprobs) - 1)
        places.append((reply, (start or 0) + (differ or 0) if exact else guess))
    return places


def _recorded_difference(read: Sequence[tuple[str, Reply]]) -> int:
    sequences = list({parsed: reply.token_ids for parsed, reply in read}.values())
    if len(sequences) > 1:
        place = _first_difference(sequences)
        return place if place is not None else min(map(len, sequences)) - 1
    # all meant the same: a decision is where the model was least sure, words of form are certain
    length = min(len(reply.logprobs) for _, reply in read)
    return min(range(length), key=lambda n: sum(reply.logprobs[n] for _, reply in read))


def _first_difference(sequences: Sequence[Sequence[int]]) -> int | None:
    """The first place at which not all ids are the same; None where they agree as far as the
    shortest goes."""
    columns = enumerate(zip(*sequences, strict=False))
    return next((n for n, ids in columns if len(set(ids)) > 1), None)


def _where(ids: Sequence[int], part: Sequence[int]) -> int | None:
    """Where the ids hold these ids in a row."""
    width = len(part)
    starts = range(len(ids) - width + 1) if width else ()
    return next((n for n in starts if tuple(ids[n : n + width]) == tuple(part)), None)


def first_share(episodes: Sequence[Episode]) -> tuple[float, int] | None:
    """Share of games that the first agent wins, half the ties included, and the number of games;
    None without any."""
    games = (e for e in episodes if e.end.scored and len(e.cast) > 1)
    scored = [list(game.returns().values()) for game in games]
    if not scored:
        return None
    # against the best of the others; with more than two agents an even share is not a half
    points = [0.5 if own == max(rest) else float(own > max(rest)) for own, *rest in scored]
    return sum(points) / len(points), len(points)


def private_effect(
    strategy: Strategy, episodes: Sequence[Episode], agents: Sequence[str], probes: int = PROBES
) -> float | None:
    """How much a decision's probabilities change, at most, when what only this agent was shown is
    exchanged for that of another episode.

    Two recorded views of one agent are such an exchange when they agree in all that others saw
    or said and in the legal strings, and differ in what only this agent was shown. Largest
    difference of a probability over such pairs of the first `probes` views; None where there is
    no pair.
    """
    groups: dict[tuple[Any, ...], dict[tuple[Message, ...], list[float]]] = {}
    seen = 0
    for episode in episodes:
        transcripts = {agent: episode.transcript(agent) for agent in episode.cast}
        for agent in agents:
            others = [seen_by for other, seen_by in transcripts.items() if other != agent]
            # public is what others saw too; by message, since the record has no such mark
            shared = {message for messages in others for message in messages}
            view: tuple[Message, ...] = ()
            for turn in (turn for turn in episode.turns if turn.agent == agent):
                view = (*view, *turn.observed)
                if turn.legal is not None and len(turn.legal) > 1 and seen < probes:
                    told = ((m, m.sender == agent or m in shared) for m in view)
                    public = tuple(m.text if known else None for m, known in told)
                    group = groups.setdefault((agent, turn.legal, public), {})
                    if view not in group:
                        chances = [float(chance) for chance in strategy(agent, view, turn.legal)]
                        # among readable answers: a policy that learns to be read has not listened
                        group[view] = [chance / (sum(chances) or 1.0) for chance in chances]
                        seen += 1
                view = (*view, Message(turn.action.text, agent, turn.action.tool_calls))
    pairs = [views.values() for views in groups.values() if len(views) > 1]
    columns = [column for views in pairs for column in zip(*views, strict=True)]
    return max((max(column) - min(column) for column in columns), default=None)
