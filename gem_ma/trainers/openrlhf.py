"""Scenarios inside OpenRLHF: an agent executor whose learned seats are sampled by its vLLM engines.

    # agent.py, for: --train.agent_func_path agent.py
    from gem_ma.trainers.openrlhf import executor
    AgentExecutor = executor("my.yaml", returns="episode")

A prompt of the data set names a start and an agent (`prompts`). It is a play of its own, and that
agent's row of it is learned from: two seats of one policy are two prompts. OpenRLHF puts the reward
of a row on its last token, so what the config pays by turn is summed. Written for OpenRLHF 0.11.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from gem_ma.api import Source
from gem_ma.config.loading import Overrides
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.kernel.types import Request
from gem_ma.trainers.course import Drawn, Elsewhere, Outside, Start
from gem_ma.trainers.samples import Sample

try:
    from openrlhf.utils.agent import AgentExecutorBase
except ImportError as error:
    # no extra of ours: it pins other versions, and builds flash-attn
    raise ConfigError(
        f"the integration wants OpenRLHF ({error}); it runs in an environment of its own, beside"
        " gem-ma"
    ) from error

FAILED = "failed"
ROWS = "rows"


def prompts(source: Source, count: int, overrides: Overrides = ()) -> list[dict[str, str]]:
    """So many rows of a data set, for `--data.input_key prompt`: a start and an agent each."""
    starts = Outside(source, overrides).starts(count, each_agent=True)
    return [{"prompt": str(start), "label": ""} for start in starts]


def executor(
    source: Source,
    overrides: Overrides = (),
    *,
    policy: str | None = None,
    returns: str = "turn",
) -> type:
    """The class that OpenRLHF looks for under the name AgentExecutor.

    `returns`: "episode" says that one reward an episode is meant. Raises ConfigError without it,
    and for what an `Outside` refuses.
    """
    plays = Outside(source, overrides, policy=policy)
    plays.only_episodes("OpenRLHF", returns)

    class AgentExecutor(AgentExecutorBase):
        """Plays starts of the config."""

        async def execute(
            self,
            prompt: str,
            label: str,
            sampling_params: Any,
            max_length: int,
            hf_tokenizer: Any,
            llm_engine: Any,
            images: Any = None,
        ) -> dict[str, Any]:
            """The row of one agent in one play."""
            start = Start.of(prompt)
            start.check(plays.agents)
            check(plays, sampling_params)

            async def draw(ids: tuple[int, ...], request: Request, room: int) -> Drawn:
                how = copy(sampling_params)
                how.max_tokens = room
                output = (await llm_engine.generate(list(ids), how)).outputs[0]
                pairs = zip(output.logprobs or (), output.token_ids, strict=False)
                values = [entry[token].logprob for entry, token in pairs]
                return Drawn(output.token_ids, values)

            engine = Elsewhere(hf_tokenizer, draw, plays.policy, whole=max_length)
            episode = await plays.play(start, engine)
            row = row_of(plays.samples(episode), start.agent)
            end = int(hf_tokenizer.eos_token_id)
            fields = {"prompt": prompt, "label": label, "images": images, "mm_train_inputs": None}
            return {**fields, **written(row, episode, end)}

    return AgentExecutor


def check(plays: Outside, sampling: Any) -> None:
    """Raises ConfigError for what OpenRLHF's loss does not know of how it samples."""
    plays.check_sampling(lambda name, off: getattr(sampling, name, off))
    if getattr(sampling, "logprobs", None) is None:
        raise ConfigError(
            "no log-probabilities are asked for; set --algo.advantage.is_correction_enable, so that"
            " what was sampled is known to the loss"
        )


def row_of(made: Sequence[Sample], agent: str) -> Sample | None:
    """The one row of the agent; None where it never spoke or the play failed. Raises DataError
    where it has several."""
    rows = [sample for sample in made if sample.agent == agent]
    if len(rows) > 1:
        raise DataError(
            f"episode {rows[0].episode}: the history of {agent} was rewritten, so it has"
            f" {len(rows)} rows, and OpenRLHF takes one a prompt; take the window or the summary"
            " out of the config, or train with gem-ma train"
        )
    return rows[0] if rows else None


def written(row: Sample | None, episode: Episode, end: int) -> dict[str, Any]:
    """A row as OpenRLHF takes it; without one, an untrained token and no reward."""
    if row is None:
        return {
            "observation_tokens": [end, end],
            "action_ranges": [],
            "rollout_log_probs": [0.0, 0.0],
            "reward": 0.0,
            "scores": 0.0,
            "truncated": False,
            "extra_logs": {FAILED: float(not episode.end.scored), ROWS: 0.0},
        }
    before = len(row.prompt_ids)
    return {
        "observation_tokens": [*row.prompt_ids.tolist(), *row.response_ids.tolist()],
        "action_ranges": [(before + first, before + last) for first, last in spans(row.mask)],
        "rollout_log_probs": [*[0.0] * before, *row.logprobs.tolist()],
        "reward": row.total,
        "scores": row.total,
        "truncated": row.truncated,
        "extra_logs": {FAILED: 0.0, ROWS: 1.0},
    }


def spans(mask: Any) -> list[tuple[int, int]]:
    """Where sampled ids begin and end, the end not included.

    >>> spans(np.array([True, True, False, True]))
    [(0, 2), (3, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(mask, int), [0]])))
    return [(int(first), int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True)]
