"""Scenarios inside verl: an agent loop whose learned seats are sampled by verl's servers, with a
return for each turn.

    from gem_ma.trainers.verl import rows
    datasets.Dataset.from_list(rows("my.yaml", 512)).to_parquet("train.parquet")

    # loop.yaml, for: actor_rollout_ref.rollout.agent.agent_loop_config_path=loop.yaml
    - {name: gem_ma, _target_: gem_ma.trainers.verl.GemLoop}

and `algorithm.adv_estimator=gem_ma_rebn`.

Each seat of the learned policy is an output of its own, which the trainer of `trainer.use_v1`
takes. verl puts the reward of a row on its last token and gives the seats of a play one advantage;
here each turn's share lies on the turn's last token, and the estimator reads it from there. Written
for verl 0.9.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.types import Request
from gem_ma.system.extras import install
from gem_ma.trainers.course import Drawn, Elsewhere, Outside, Start
from gem_ma.trainers.samples import Sample

try:
    from verl.experimental.agent_loop.agent_loop import (
        AgentLoopBase,
        AgentLoopMetrics,
        AgentLoopOutput,
        register,
    )
    from verl.trainer.ppo.core_algos import register_adv_est
except ImportError as error:
    raise ConfigError(f"the integration wants verl ({error}); type: {install('verl')}") from error

NAME = "gem_ma"
ESTIMATORS = ("gem_ma_rebn", "gem_ma_reinforce")


def rows(source: str, count: int, *, policy: str | None = None) -> list[dict[str, Any]]:
    """So many rows of a data set for verl; `source` is a config's file or name, which the workers
    read again."""
    plays = outside(source, policy)
    return [
        {
            "data_source": NAME,
            "agent_name": NAME,
            # its text is never shown to the model: plays make their own prompts
            "prompt": [{"role": "user", "content": str(start)}],
            "extra_info": {"source": source, "policy": plays.policy, "start": str(start)},
        }
        for start in plays.starts(count)
    ]


@cache
def outside(source: str, policy: str | None = None) -> Outside:
    """The plays of a config; opened once in a worker."""
    return Outside(source, policy=policy)


class SeatOutput(AgentLoopOutput):
    """One row of a seat. `token_rewards` [response]: at the last token of each turn, its return
    less that of the next; their sum from a token on is the return of the token's turn."""

    token_rewards: list[float] = []

    def as_dict(self) -> dict[str, Any]:
        """As verl has it, but for the place of the rewards."""
        import torch

        made: dict[str, Any] = super().as_dict()
        made.pop("token_rewards", None)  # no column that verl knows
        # verl writes `reward_score` on the last token, and that of the last seat to all seats
        made["rm_scores"] = torch.tensor(self.token_rewards, dtype=torch.float32)
        return made


@register(NAME)
class GemLoop(AgentLoopBase):
    """The loop that verl's workers run for each row of the data set."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """One play: an output for each row of a learned seat. None where the play failed: verl
        then learns from the others."""
        info = kwargs["extra_info"]
        plays = outside(str(info["source"]), str(info["policy"]))
        rollout = self.rollout_config
        check(plays, self.config)
        server = self.server_manager
        key = str(kwargs.get("uid", ""))

        async def draw(prompt: tuple[int, ...], request: Request, room: int) -> Drawn:
            # one id a conversation: verl keeps it on one server, whose prefix cache it is in
            made = await server.generate(
                request_id=f"{key}/{id(engine)}/{request.conversation}",
                prompt_ids=list(prompt),
                sampling_params={**sampling_params, "max_tokens": room, "logprobs": True},
            )
            return Drawn(made.token_ids, made.log_probs or ())

        engine = Elsewhere(
            self.tokenizer,
            draw,
            plays.policy,
            prompt=rollout.prompt_length,
            response=rollout.response_length,
        )
        episode = await plays.play(Start.of(str(info["start"])), engine)
        return [_output(sample, episode) for sample in plays.samples(episode)]


def check(plays: Outside, config: Any) -> None:
    """Raises ConfigError for what verl would silently learn otherwise than it was played; `config`
    is its own."""
    rollout = config.actor_rollout_ref.rollout
    # of the training: an exam of verl samples as it likes
    plays.check_sampling(rollout.get, "rollout.")
    if not rollout.get("calculate_log_probs", True):
        raise ConfigError(
            "rollout.calculate_log_probs=False: what was sampled is not known; set it"
        )
    named = (config.get("algorithm") or {}).get("adv_estimator")
    if named is not None and str(named) not in ESTIMATORS:
        raise ConfigError(
            f"algorithm.adv_estimator={named} reads one reward a play, and gives all seats the"
            f" same advantage; take {' or '.join(ESTIMATORS)}"
        )
    if not (config.get("trainer") or {}).get("use_v1", True):
        raise ConfigError(
            "trainer.use_v1=False: the older trainer puts the reward of a row on its last token;"
            " leave it out"
        )


def _output(sample: Sample, episode: Episode) -> SeatOutput:
    rewards = shares(sample)
    return SeatOutput(
        prompt_ids=sample.prompt_ids.tolist(),
        response_ids=sample.response_ids.tolist(),
        response_mask=sample.mask.astype(int).tolist(),
        response_logprobs=sample.logprobs.tolist(),
        token_rewards=rewards.tolist(),
        reward_score=float(rewards.sum()),
        num_turns=len(set(sample.turn[sample.mask].tolist())),
        metrics=AgentLoopMetrics(),
        extra_fields={
            "agent": sample.agent,
            "part": sample.part,
            "total": sample.total,
            "end": episode.end.value,
            "reward_extra_info": {},
        },
    )


def shares(sample: Sample) -> Any:
    """[T]: at the last sampled id of each turn, the turn's return less that of the next turn of
    the row. Whatever gamma is, their sum from an id on is the return of its turn."""
    made = np.zeros(len(sample.mask))
    following = 0.0
    for turn in sorted(set(sample.turn[sample.mask].tolist()), reverse=True):
        places = np.flatnonzero(sample.turn == turn)
        value = float(sample.token_advantages[places[-1]])
        made[places[-1]] = value - following
        following = value
    return made


def gains(token_level_rewards: Any, response_mask: Any) -> Any:
    """[B, T]: the return of each sampled token's turn, 0 elsewhere."""
    mask = response_mask.to(token_level_rewards.dtype)
    return token_level_rewards.flip(-1).cumsum(-1).flip(-1) * mask


@register_adv_est("gem_ma_reinforce")
def reinforce(token_level_rewards: Any, response_mask: Any, **_: Any) -> tuple[Any, Any]:
    """The return from each turn on. [B, T] twice: advantages and returns."""
    ret = gains(token_level_rewards, response_mask)
    return ret, ret


@register_adv_est("gem_ma_rebn")
def rebn(token_level_rewards: Any, response_mask: Any, **_: Any) -> tuple[Any, Any]:
    """Return batch normalisation: returns of all replies of the batch, less their mean, over their
    spread. [B, T] twice: advantages and returns."""
    import torch

    ret = gains(token_level_rewards, response_mask)
    mask = response_mask.bool()
    # one number a reply: by token, long replies would weigh more in mean and spread
    last = mask & ~torch.nn.functional.pad(mask[:, 1:], (0, 1))
    chosen = ret[last]
    if len(chosen) == 0:
        return torch.zeros_like(ret), ret
    spread = chosen.std(unbiased=False)
    centred = (ret - chosen.mean()) * mask
    # alike returns teach nothing; noise of rounding would be blown up to size 1
    return (centred / spread if spread > 1e-8 else torch.zeros_like(ret)), ret
