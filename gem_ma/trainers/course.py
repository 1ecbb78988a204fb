"""A config as the trainer of another library reads it: where plays start, the plays, and what one
policy learns from them.

The seats, tasks, credit and estimator are those of the config. Loss, optimiser and number of steps
are the other trainer's, so those keys of `train:` are not read. Everybody else plays along as in
any run: frozen, scripted, or behind an API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

from gem_ma import credit
from gem_ma.api import Source, load_config
from gem_ma.config.loading import Overrides
from gem_ma.config.training import TrainSettings
from gem_ma.credit.estimators import estimator
from gem_ma.credit.table import TurnTable
from gem_ma.driver.behaviour import Factory
from gem_ma.driver.rollout import Plan, play
from gem_ma.engines.base import Engine, Policy
from gem_ma.engines.local.transformers import Transformers
from gem_ma.engines.models.chat import Chat
from gem_ma.kernel.episode import Episode
from gem_ma.kernel.errors import ConfigError, DataError, EngineError
from gem_ma.kernel.spelling import in_quotes
from gem_ma.kernel.types import Reply, Request, Sampling, Usage
from gem_ma.runs.open import open_config
from gem_ma.runs.playing import wait
from gem_ma.trainers.samples import Sample, samples
from gem_ma.training.learner.losses import PAIRED
from gem_ma.training.loop.local import LocalPlayers
from gem_ma.training.loop.updates import advantages_of, credited_turns
from gem_ma.training.schedule.plans import training_plans
from gem_ma.training.schedule.settings import discounts, settings_of


class Start(NamedTuple):
    """Where a play starts, and whose row of it is learned from. Its text is a prompt of another
    trainer: `train/3 4611686018427387904 player`."""

    task: str
    seed: int
    agent: str

    def __str__(self) -> str:
        return f"{self.task} {self.seed} {self.agent}"

    @classmethod
    def of(cls, text: str) -> Start:
        """The start that a prompt names. Raises DataError."""
        try:
            # from the right: a task may hold a space
            task, seed, agent = text.rsplit(" ", 2)
            return cls(task, int(seed), agent)
        except (ValueError, AttributeError):  # of a chat, where a text is meant
            raise DataError(
                f"a prompt names a task, a seed and an agent, as in 'train/3 7 player'; got"
                f" {text!r}: take the prompts of `starts`"
            ) from None

    def check(self, agents: Sequence[str]) -> None:
        """Raises DataError where the agent is none of these: its row would teach nothing."""
        if self.agent not in agents:
            raise DataError(
                f"prompt {str(self)!r}: {self.agent} does not learn; {', '.join(agents)} may"
                " stand there, so take the prompts of this config"
            )


class Learned:
    """The seats of a config that one policy learns from, for the trainer of another library.

    `policy` is by default the only one of `train.policies`; others that stand there play with the
    weights that they have. Raises ConfigError where the config trains nobody, where several could
    be meant, and for what no other trainer does: forks, leagues, warm starts, critics, shaping.
    """

    def __init__(
        self, source: Source, overrides: Overrides, policy: str | None, *, seats: bool = True
    ) -> None:
        loaded = load_config(source, overrides)
        loaded.config.only  # noqa: B018 (refuses several: a start would not say which it is of)
        self.opened = open_config(loaded, seats=seats)
        self.worlds = self.opened.worlds
        self.config = self.worlds.played[0].config
        if loaded.config.train is None:
            raise ConfigError(f"{loaded.stem}: has no section train:, so there is nothing to learn")
        self.policy = chosen(loaded.config.train, policy)
        self.settings = settings_of(loaded.config.train, self.policy)
        check_training(self.settings)
        self.agents = tuple(
            agent for agent, seat in self.config.agents.items() if seat.policy == self.policy
        )
        if not self.agents:
            raise ConfigError(f"agents: no seat is taken by policy {self.policy!r}")

    def first_starts(self, agents: Sequence[str], count: int) -> list[Start]:
        """The first so many starts of the training, tasks of the split in turn; each once for every
        one of these agents."""
        once = self.settings.model_copy(update={"group_size": 1, "seats": "fixed"})
        starts: list[Start] = []
        step = 0
        while len(starts) < count:
            for plan in training_plans(self.worlds, once, step):
                starts += [Start(plan.task, plan.seed, agent) for agent in agents]
            step += 1
        return starts[:count]

    def plan(self, start: Start, repeat: int = 0) -> Plan:
        template = training_plans(self.worlds, self.settings, 0)[0]
        group = f"{start.task}/{start.seed}"
        return replace(template, task=start.task, seed=start.seed, repeat=repeat, group=group)

    def turns(self, episodes: Sequence[Episode], gamma: credit.Gamma) -> TurnTable:
        return credited_turns(episodes, self.policy, self.settings, gamma, self.worlds)


class Course(Learned):
    """What one policy of a config learns from, played with its weights of now. See `Learned`."""

    def __init__(
        self, source: Source, overrides: Overrides = (), *, policy: str | None = None
    ) -> None:
        super().__init__(source, overrides, policy)
        self.policies: dict[str, Policy] = self.opened.of_policies(self.config)
        self.players = LocalPlayers(self.config, self.policies, [self.policy])
        self.state: dict[str, float] = {}  # of an estimator that keeps a baseline
        self.named: Counter[Start] = Counter()  # how often each start has been played
        self.steps = 0

    def starts(self, count: int) -> list[Start]:
        """So many starts; those of agents that learn in one play stand side by side."""
        return self.first_starts(self.agents, count)

    def aside(self) -> Course:
        """The same course for plays that nothing is learned from: what they name and count stays
        theirs, so that a training with evaluations is the training without them."""
        other = copy(self)
        other.named = Counter()
        other.state = dict(self.state)
        return other

    def progress(self) -> dict[str, Any]:
        """What later plays and advantages depend on, as JSON has it; `restore` goes on from it."""
        named = {str(start): count for start, count in self.named.items()}
        return {"named": named, "state": dict(self.state), "steps": self.steps}

    def restore(self, progress: Mapping[str, Any]) -> None:
        self.named = Counter({Start.of(name): n for name, n in progress["named"].items()})
        self.state = dict(progress["state"])
        self.steps = progress["steps"]

    def play(self, starts: Sequence[Start]) -> tuple[list[Episode], list[tuple[str, int, int]]]:
        """The plays from these starts, and for each start the id of its play.

        The n-th time that a start is named is a play of its own, in one group with the others.
        Starts that differ only in the agent share theirs. Raises DataError for an agent that does
        not learn, EngineError where every play failed.
        """
        for start in starts:
            start.check(self.agents)
        ids: list[tuple[str, int, int]] = []
        plans: dict[tuple[str, int, int], Plan] = {}
        for start in starts:
            # over all calls: what is sampled follows from the plan, and an id is never given twice
            plan = self.plan(start, self.named[start])
            self.named[start] += 1
            plans.setdefault(plan.id, plan)
            ids.append(plan.id)
        episodes: list[Episode] = wait(self.players.play([*plans.values()], learning=True))
        self.steps += 1
        return episodes, ids

    def learn(self, episodes: Sequence[Episode]) -> list[Sample]:
        """The samples of the policy: credit and estimator as the config has them."""
        gamma = discounts(self.settings.credit.gamma, self.steps - 1)
        table = self.turns(episodes, gamma)
        advantages, self.state = advantages_of(
            table, self.settings, gamma, several=False, state=self.state
        )
        engine = self.policies[self.policy].core
        bound = None
        if isinstance(engine, Transformers) and engine.binding.constrain:
            bound = engine.binding.allowed
        return samples(table, advantages, self.policy, bound)


def chosen(settings: TrainSettings, policy: str | None) -> str:
    """The policy that learns. Raises ConfigError."""
    known = ", ".join(settings.policies)
    if policy is None and len(settings.policies) != 1:
        raise ConfigError(
            f"train.policies: {known or 'nobody'}; this trainer teaches one policy: say which, by"
            " policy=NAME"
        )
    if policy is not None and policy not in settings.policies:
        raise ConfigError(f"train.policies: {policy!r} does not learn; there are {known}")
    return settings.policies[0] if policy is None else policy


def check_training(settings: TrainSettings) -> None:
    """Raises ConfigError for what the config wants of a training and no other trainer does."""
    name = settings.estimator.name
    wanted = {
        "opponents": settings.opponents is not None,
        "fork": settings.fork is not None,
        "refill": bool(settings.refill),
        "curriculum": settings.curriculum is not None,
        "loss.reference": settings.loss.reference is not None,
        # rewards are ours, the loss is theirs: what is charged to a reward in ours would be lost
        "loss.kl_in": settings.loss.kl_in != "loss",
        f"loss.surrogate: {settings.loss.surrogate} (pairs)": settings.loss.surrogate in PAIRED,
        "max_policy_lag": settings.max_policy_lag is not None,
        "warm_start": bool(settings.warm_start),
        "alternate": bool(settings.alternate),
        "seats": settings.seats != "fixed",
        "overlap": settings.overlap,
        "estimator.shaping": settings.estimator.shaping is not None,
        f"estimator.name: {name} (a critic)": estimator(name).critic,
    }
    if refused := [name for name, there in wanted.items() if there]:
        raise ConfigError(
            f"train.{refused[0]}: another library's trainer would not do it, and nothing would say"
            " so; take it out of the config, or train with gem-ma train"
        )


class Outside(Learned):
    """What one policy of a config learns from, where the servers of another library sample it: the
    engine that the config names for it is not opened. Everybody else plays along as in any run.

    See `Learned`; raises ConfigError too where the config binds the policy to legal strings, which
    no other sampler does.
    """

    def __init__(
        self, source: Source, overrides: Overrides = (), *, policy: str | None = None
    ) -> None:
        super().__init__(source, overrides, policy, seats=False)
        own = self.config.policies[self.policy]
        if own.options.get("constrain"):
            raise ConfigError(
                f"policies.{self.policy}.constrain: the servers of another library bind nothing;"
                f" set policies.{in_quotes(self.policy)}.constrain=null"
            )
        self.sampling: Sampling = own.sampling
        # the learned seats sample elsewhere, so their model is neither looked for nor loaded
        empty = {
            agent: seat.model_copy(update={"policy": None}) if agent in self.agents else seat
            for agent, seat in self.config.agents.items()
        }
        others = self.config.model_copy(update={"agents": empty, "train": None})
        self.others: dict[str, Policy] = self.opened.of_policies(others)

    def starts(self, count: int, *, each_agent: bool = False) -> list[Start]:
        """So many starts; `each_agent`: once for every agent that learns, else for the first."""
        return self.first_starts(self.agents if each_agent else self.agents[:1], count)

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
        table = self.turns([episode], discounts(self.settings.credit.gamma, 0))
        return samples(table, table.ret, self.policy)

    def check_sampling(self, get: Callable[[str, Any], Any], where: str = "") -> None:
        """Raises ConfigError for a way to sample that the loss of a trainer does not know, or that
        is not the config's; `get` gives its settings by name."""
        heat = float(get("temperature", 1.0))
        if heat != self.sampling.temperature:
            raise ConfigError(
                f"{where}temperature={heat:g}: the config samples at {self.sampling.temperature:g};"
                " make them equal"
            )
        for name, off in (("top_p", (1, 1.0)), ("top_k", (0, -1))):
            if (value := get(name, off[0])) not in off:
                raise ConfigError(
                    f"{where}{name}={value}: the trainer's loss does not know which ids were cut"
                    " off; leave it out"
                )

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
