"""Plays whose learned seats are sampled by the servers of another trainer; everybody else plays
along as in any run.

The trainer owns the model: the engine that the config names for the learned policy is not opened.
What the plays come to are samples (`gem_ma.trainers.samples`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gem_ma import credit
from gem_ma.api import Source, load_config
from gem_ma.config.loading import Overrides
from gem_ma.driver.behaviour import Factory
from gem_ma.driver.rollout import Plan, play
from gem_ma.engines.base import Engine, Policy
from gem_ma.engines.local.chat import Chat
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, EngineError
from gem_ma.kernel.types import Reply, Request, Sampling, Usage
from gem_ma.runs.open import open_config
from gem_ma.trainers.course import Start, check_training, chosen, starts_of, trained_by
from gem_ma.trainers.samples import Sample, samples
from gem_ma.training.schedule.alternation import settings_of
from gem_ma.training.schedule.discounts import discounts
from gem_ma.training.schedule.plans import training_plans


class Outside:
    """What one policy of a config learns from, where another library samples it.

    `policy`: as in `Course`. Raises ConfigError for what a `Course` refuses, and where the config
    binds the policy to legal strings, which no other sampler does.
    """

    def __init__(
        self, source: Source, overrides: Overrides = (), *, policy: str | None = None
    ) -> None:
        loaded = load_config(source, overrides)
        loaded.config.only  # noqa: B018 (refuses several: a start would not say which it is of)
        opened = open_config(loaded, seats=False)
        self.worlds = opened.worlds
        config = self.worlds.played[0].config
        settings = trained_by(loaded)
        self.policy = chosen(settings, policy)
        self.settings = settings_of(settings, self.policy)
        check_training(self.settings)
        if config.policies[self.policy].options.get("constrain"):
            raise ConfigError(
                f"policies.{self.policy}.constrain: the servers of another library bind nothing;"
                f" set policies.{self.policy}.constrain=null"
            )
        seats = config.agents.items()
        self.agents = tuple(agent for agent, seat in seats if seat.policy == self.policy)
        if not self.agents:
            raise ConfigError(f"agents: no seat is taken by policy {self.policy!r}")
        self.sampling: Sampling = config.policies[self.policy].sampling
        # the learned seats sample elsewhere, so their model is neither looked for nor loaded
        empty = {
            agent: seat.model_copy(update={"policy": None}) if agent in self.agents else seat
            for agent, seat in seats
        }
        others = config.model_copy(update={"agents": empty, "train": None})
        self.others: dict[str, Policy] = opened.of_policies(others)

    def starts(self, count: int, *, each_agent: bool = False) -> list[Start]:
        """The first so many starts of the training, tasks of the split in turn; `each_agent`: once
        for every agent that learns, else for the first of them."""
        agents = self.agents if each_agent else self.agents[:1]
        return starts_of(self.worlds, self.settings, agents, count)

    def plan(self, start: Start) -> Plan:
        """The play of a start."""
        template = training_plans(self.worlds, self.settings, 0)[0]
        group = f"{start.task}/{start.seed}"
        return replace(template, task=start.task, seed=start.seed, repeat=0, group=group)

    async def play(
        self,
        start: Start,
        engine: Engine | None = None,
        behaviours: Mapping[str, Factory] | None = None,
    ) -> Episode:
        """One play. The learned seats sample from `engine`, or `behaviours` play them."""
        policies = dict(self.others)
        if engine is not None:
            policies[self.policy] = Policy(self.policy, engine, self.sampling, learns=True)
        plan = self.plan(start)
        if engine is None:
            cast = {
                agent: replace(seat, policy=None) if agent in self.agents else seat
                for agent, seat in plan.cast.items()
            }
            plan = replace(plan, cast=cast)
        return await play(plan, policies, behaviours)

    def samples(self, episode: Episode) -> list[Sample]:
        """The samples of a play; `token_advantages` are the return from each turn on, as credit
        and gamma of the config have it. [] where the play failed."""
        how = self.settings.credit
        gamma = discounts(self.settings.credit.gamma, 0)
        table = credit.turns(
            [episode],
            self.policy,
            rule=how.rule,
            gamma=gamma,
            team=how.team,
            truncated=how.truncated,
        )
        return samples(table, table.ret, self.policy)

    def only_episodes(self, trainer: str, returns: str) -> None:
        """Raises ConfigError unless the user knows that a trainer learns from one reward an
        episode."""
        if returns != "episode":
            raise ConfigError(
                f"{trainer} learns from one reward an episode, and the config pays by turn, under"
                f" train.credit and train.estimator; say that this is meant, by returns='episode',"
                " or train with gem-ma train, TRL or verl"
            )


class Drawn(NamedTuple):
    """Sampled ids, an end of turn included, and their log-probabilities."""

    token_ids: Sequence[int]
    logprobs: Sequence[float]


# (prompt ids, request, tokens that may be sampled) -> what was
Draw = Callable[[tuple[int, ...], Request, int], Awaitable[Drawn]]


class Elsewhere:
    """The servers of another trainer as an engine: conversations become ids here, and `draw`
    samples.

    `prompt`, `response`: the most ids that the trainer takes as the prompt of a row and after it;
    it would cut what is longer, in silence, so the play is cut there. `whole`: of both together.
    """

    def __init__(
        self,
        tokenizer: Any,
        draw: Draw,
        policy: str,
        *,
        prompt: int | None = None,
        response: int | None = None,
        whole: int | None = None,
    ) -> None:
        self.chat = Chat(tokenizer, frozenset({tokenizer.eos_token_id}), where="the tokenizer")
        self.policy = policy
        self._draw = draw
        self._most = prompt, response, whole
        self._rows: dict[str, tuple[int, ...]] = {}  # ids of each conversation until now
        self._begun: dict[str, int] = {}  # how long its row's first prompt was

    async def sample(self, request: Request) -> Reply:
        """One answer; `context_overflow` where the trainer's row is full. Raises EngineError for a
        server that gives no log-probabilities."""
        prompt = self.chat.prompt(request)
        room = self._room(request.conversation, prompt, request.sampling.max_tokens)
        if room < 1:
            return Reply(prompt_ids=prompt, finish="context_overflow", usage=Usage(0, 0))
        drawn = await self._draw(prompt, request, room)
        ids = tuple(map(int, drawn.token_ids))
        if not ids or len(drawn.logprobs) != len(ids):
            raise EngineError(
                f"policy {self.policy!r}: {len(ids)} ids came with {len(drawn.logprobs)}"
                " log-probabilities; tell the trainer to compute them as it samples"
            )
        ended = ids[-1] in self.chat.ends
        finish = "stop" if ended else "length"
        text = self.chat.text(ids[:-1] if ended else ids)
        text, calls, thought = self.chat.read(text, request.tools, finish)
        reply = Reply(
            text=text,
            tool_calls=calls,
            prompt_ids=prompt,
            token_ids=ids,
            logprobs=tuple(map(float, drawn.logprobs)),
            finish=finish,
            policy=self.policy,
            usage=Usage(len(prompt), len(ids)),
            reasoning=thought,
        )
        self.chat.sampled(request, reply)
        self._rows[request.conversation] = (*prompt, *ids)
        return reply

    def _room(self, conversation: str, prompt: tuple[int, ...], wanted: int) -> int:
        """Tokens that still go into the row of this conversation."""
        before = self._rows.get(conversation)
        # a prompt that does not go on from what was sampled begins a row of its own
        if before is None or prompt[: len(before)] != before:
            self._begun[conversation] = len(prompt)
        first = self._begun[conversation]
        (most, response, whole) = self._most
        if most is not None and first > most:
            return 0
        room = wanted
        if response is not None:
            room = min(room, response - (len(prompt) - first))
        return room if whole is None else min(room, whole - len(prompt))
