"""What a learned policy sampled in one episode of a training, token by token: its log-probability,
and what credit and estimator made of the turn.

Advantages stand in no record: they are computed again from the recorded plays of the same weights,
by the run's own settings. That is exact for estimators without a memory. What cannot be known
again is said in `note`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gem_ma import credit
from gem_ma.config.settings import Config
from gem_ma.credit.estimators import estimate
from gem_ma.credit.estimators.registry import estimator
from gem_ma.credit.table import TurnTable
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import GemMaError
from gem_ma.kernel.types import Reply, Turn
from gem_ma.training.schedule.settings import discounts, settings_of

Pieces = Callable[[Turn, Reply], list[str]]
MOST = 4_000  # tokens of an episode that are sent


def learned(
    episode: Episode, batch: Sequence[Episode], policy: str, config: Config, pieces: Pieces
) -> dict[str, Any]:
    """The turns that train `policy`, each with `reward`, `return`, `advantage` and its tokens
    `[text, log-probability]`. `batch`: the plays that it was learned with, this one among them."""
    if config.train is None or policy not in config.train.policies:
        return {"policy": policy, "turns": [], "note": f"{policy} does not learn in this run"}
    settings = settings_of(config.train, policy)
    version = version_of(episode, policy)
    step = 0 if version is None else version
    how = settings.credit
    gamma = discounts(settings.credit.gamma, step)
    try:
        table = credit.turns(
            batch,
            policy,
            rule=how.rule,
            gamma=gamma,
            team=how.team,
            truncated=how.truncated,
        )
        advantages, note = _advantages(table, settings, gamma, how.cut)
    except (GemMaError, ArithmeticError) as error:
        return {"policy": policy, "turns": [], "note": str(error)}
    rows = [row for row in range(len(table.turns)) if table.episodes[row].id == episode.id]
    turns = []
    left = MOST
    for row in rows:
        turn = table.turns[row]
        replies = [reply for reply in turn.replies if reply.policy == policy]
        tokens = [token for reply in replies for token in _tokens(turn, reply, pieces)]
        turns.append(
            {
                "step": int(table.step[row]),
                "agent": str(table.agent[row]),
                "k": int(table.k[row]),
                "version": int(table.version[row]),
                "reward": float(table.reward[row]),
                "return": float(table.ret[row]),
                "advantage": None if advantages is None else float(advantages[row]),
                "tokens": tokens[: max(0, left)],
            }
        )
        left -= len(tokens)
    plays = f"{len(batch)} plays by {policy} v{version}"
    return {"policy": policy, "turns": turns, "note": f"{note} over {plays}", "weights": version}


def version_of(episode: Episode, policy: str) -> int | None:
    """Which weights of a policy played; None where it said nothing."""
    replies = (reply for turn in episode.turns for reply in turn.replies)
    return next((reply.version for reply in replies if reply.policy == policy), None)


def _advantages(table: TurnTable, settings: Any, gamma: Any, cut: str) -> tuple[Any, str]:
    named = settings.estimator
    if estimator(named.name).critic:
        return None, "advantages need the critic of that moment, which no record keeps; returns"
    values, state = estimate(
        named.name, table, named.key, {}, gamma=gamma, cut=cut, **named.options
    )
    begun = ", begun here (its running state is not in the record)" if state else ""
    shaped = "; shaping is left out" if named.shaping is not None else ""
    return values, f"advantages by {named.name}{begun}{shaped}"


def _tokens(turn: Turn, reply: Reply, pieces: Pieces) -> list[list[Any]]:
    logprobs: list[float | None] = [*(reply.logprobs or ())]
    logprobs += [None] * (len(reply.token_ids) - len(logprobs))
    return [
        [text, None if logprob is None else round(float(logprob), 5)]
        for text, logprob in zip(pieces(turn, reply), logprobs, strict=True)
    ]


def pieces_of(run: Path, policy: str) -> Pieces:
    """How ids of a policy read: with the tokenizer that lies beside its weights, of a table the
    legal answers; else `#ID`."""
    file = run / "models" / policy / "tokenizer.json"
    known: Any = None
    if file.is_file() and not file.is_symlink():
        try:
            from tokenizers import Tokenizer

            known = Tokenizer.from_file(str(file))
        # not installed, or no tokenizer of this kind: the numbers stand for themselves
        except Exception:
            known = None

    def pieces(turn: Turn, reply: Reply) -> list[str]:
        ids = list(reply.token_ids)
        if known is not None:
            return [known.decode([id_], skip_special_tokens=False) or f"#{id_}" for id_ in ids]
        # a table samples the number of a legal answer
        if turn.legal and len(ids) == 1 and ids[0] < len(turn.legal):
            return [turn.legal[ids[0]]]
        return [f"#{id_}" for id_ in ids]

    return pieces
