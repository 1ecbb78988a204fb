"""A tiny model made for a scenario: how long its context must be (the longest conversation of some
plays of the default cast, through a tokenizer), and its warm start.

Plays are seeded and bounded in number, steps and time, so a scenario that hangs costs seconds. A
play that fails counts as far as it came.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gem_ma import registry
from gem_ma.config.settings import Config
from gem_ma.config.training import WarmStartSettings
from gem_ma.driver.behaviour import needs_policy
from gem_ma.driver.rollout import Plan, play
from gem_ma.engines.base import Policy, open_engine, stable_seed
from gem_ma.engines.local.tiny import check_new, make_model, place_new
from gem_ma.engines.models.chat import Chat
from gem_ma.engines.models.loading import MARK, NOTE
from gem_ma.kernel.episode import Episode, Limits, Seat
from gem_ma.kernel.errors import ConfigError, GemMaError, ScenarioError
from gem_ma.kernel.scenario import Game, Scenario
from gem_ma.kernel.types import Message, Tool, ToolCall, spoken
from gem_ma.runs.worlds import Worlds
from gem_ma.training.learner import Demonstration
from gem_ma.training.learner.cloning import clone, listens
from gem_ma.training.learner.torch_learner import TorchLearner
from gem_ma.training.loop.local import LocalPlayers
from gem_ma.training.schedule.plans import demonstrations

LEAST = 4096  # positions cost no weights, so a short game gets as many as any
MARGIN = 2.0  # a model talks longer than a script
# bounds of one measurement
PLAYS = 12
MOST_STEPS = 400
WAIT_S = 20.0
DEFAULT = "random_legal"

# agent, all that it saw and said, the tools that it was offered
Talk = tuple[str, tuple[Message, ...], tuple[Tool, ...]]


@dataclass(frozen=True, slots=True)
class Need:
    """What the plays of a scenario took, in tokens: the longest first prompt and the longest
    conversation of one agent, of `plays` plays. `cut`: some were stopped by their number of steps
    or by time, so there are longer conversations."""

    opening: int
    longest: int
    plays: int
    cut: bool

    @property
    def positions(self) -> int:
        """Enough for these, with a margin, as a power of 2."""
        return max(LEAST, 1 << (int(self.longest * MARGIN) - 1).bit_length())


class Measured:
    """Positions for a model of a scenario, as soon as its tokenizer is there: what `make_model`
    takes as `positions`.

    The constructor plays, and raises ScenarioError where not one play ends in time. `wanted`: a
    number that the user typed, which is then used; ConfigError where not even the opening fits
    into it. The call sets `need`.
    """

    def __init__(self, scenario: Scenario, wanted: int | None = None) -> None:
        self.scenario = scenario
        self.wanted = wanted
        self.need = Need(0, 0, 0, False)
        openings: list[Talk] = []
        talks: list[Talk] = []
        ended: list[bool] = []  # by play: whether it came to its end

        def work() -> None:
            for plan in plans(scenario):
                openings.extend(opening(plan))
                episode = asyncio.run(play(plan))
                openings.extend(talks_of(episode, turns=1))
                talks.extend(talks_of(episode))
                ended.append(not episode.end.bootstraps)

        # a thread of its own: rules that loop forever cannot be interrupted, only left
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        worker.join(WAIT_S)
        hangs = worker.is_alive()
        # copies: the thread that was left behind may go on adding
        self.openings = tuple(openings)
        self.talks = tuple(talks)
        self.plays = len(ended)
        self.cut = hangs or not all(ended)
        if hangs and not ended:
            raise ScenarioError(
                f"{scenario.id}: a scripted play does not end within {WAIT_S:g} s; look for what"
                f" hangs with: gem-ma check {scenario.id}"
            )

    def __call__(self, tokenizer: Any) -> int:
        chat = Chat(tokenizer, frozenset({tokenizer.eos_token_id}))
        first = max((length(chat, talk) for talk in self.openings), default=0)
        longest = max((length(chat, talk) for talk in self.talks), default=0)
        self.need = Need(first, max(first, longest), self.plays, self.cut)
        if self.wanted is None:
            return self.need.positions
        if self.wanted <= self.need.opening:
            raise ConfigError(
                f"--positions {self.wanted}: {self.scenario.id} opens with {self.need.opening}"
                " tokens in this tokenizer, so nothing could ever be answered; leave it out (that"
                f" makes {self.need.positions})"
            )
        return self.wanted

    @property
    def source(self) -> str:
        if not self.need.longest:
            return f"nothing of {self.scenario.id} could be played to measure it"
        cut = ", some of them cut short" if self.need.cut else ""
        return (
            f"the longest talk of {self.need.plays} scripted plays{cut} takes {self.need.longest}"
        )

    @property
    def warning(self) -> str | None:
        """One line where the model is too short for what was played."""
        need = self.need
        if self.wanted is None or self.wanted >= need.longest:
            return None
        return (
            f"{self.source} tokens, so plays of {self.scenario.id} will run out of context with"
            f" {self.wanted} positions; leave --positions out (that makes {need.positions})"
        )


def plans(scenario: Scenario, count: int = PLAYS) -> list[Plan]:
    """Plays spread over the tasks of all splits, each agent by its default behaviour, else by any
    legal answer."""
    default = scenario.default_cast
    cast = {agent: Seat(_scripted(default.get(agent, DEFAULT))) for agent in scenario.agents}
    # both splits in turn: an exam may have the longer tasks
    known = [(split, tasks) for split in ("train", "test") if (tasks := _tasks(scenario, split))]
    made = []
    for number in range(count if known else 0):
        split, tasks = known[number % len(known)]
        task = number * tasks // count  # spread over the whole split, not its first tasks
        seed = stable_seed("positions", number)
        limits = Limits(max_steps=MOST_STEPS, timeout_s=WAIT_S / 2)
        plan = Plan(scenario, cast, f"{split}/{task}", seed, limits=limits, call_timeout_s=2.0)
        made.append(plan)
    return made


def opening(plan: Plan) -> list[Talk]:
    try:
        game = Game(plan.scenario, registry.task_of(plan.scenario, plan.task), plan.seed)
        return [
            (agent, tuple(game.view(agent)), tuple(asked.tools))
            for agent, asked in game.pending.items()
        ]
    except GemMaError:  # the play fails alike, and is counted there
        return []


def talks_of(episode: Episode, turns: int | None = None) -> list[Talk]:
    """Each agent's conversation, the last answer included; of its first `turns` turns, without
    the last answer, where that is a number."""
    talks = []
    for agent in dict.fromkeys(turn.agent for turn in episode.turns):
        mine = [turn for turn in episode.turns if turn.agent == agent][:turns]
        said = [m for turn in mine for m in (*turn.observed, spoken(agent, turn.action))]
        talks.append((agent, tuple(said if turns is None else said[:-1]), tuple(mine[-1].tools)))
    return talks


def length(chat: Chat, talk: Talk) -> int:
    """Tokens of a conversation; characters, which are never fewer, where the template cannot
    show it."""
    agent, messages, tools = talk
    try:
        return len(chat.render(agent, messages, tools))
    except GemMaError:
        return sum(len(message.text) for message in messages)


def _scripted(behaviour: str) -> str:
    try:
        return DEFAULT if needs_policy(behaviour, registry.load("agents", behaviour)) else behaviour
    except GemMaError:
        return DEFAULT


def _tasks(scenario: Scenario, split: str) -> int:
    try:
        return len(scenario.tasks(split))
    except ConfigError:  # a scenario without this split
        return 0


ASKED = 5  # one demonstration in five is not cloned, but used to test the clone
DEAF = 0.05  # nats; a clone below it answers about alike whatever it is shown


def make_warm_model(
    path: str | Path,
    scenario: str,
    cast: Mapping[str, str],
    agents: Sequence[str] = (),
    *,
    steps: int = 400,
    episodes: int = 1024,
    **made: Any,
) -> dict[str, Any]:
    """`make_model`, then behaviour cloning of `agents` (all) from plays of `cast`, agent ->
    behaviour; adds {cloned, loss, listens} to what it gives. The tokenizer knows the words of the
    plays.

    `listens`: see `gem_ma.training.learner.cloning.listens`; below DEAF the model ignores what it
    is shown, as do those that it learned from. `made`: further arguments of `make_model`; its
    `seed` draws the plays too. Raises ConfigError for agents and behaviours that do not fit.
    """
    target = Path(path)
    check_new(target)  # before minutes of cloning
    game = registry.make(scenario)
    cloned = list(agents) or list(game.agents)
    _check(game.id, game.agents, cast, cloned)
    seats = {agent: {"behaviour": behaviour} for agent, behaviour in cast.items()}
    numbers = {"episodes": episodes, "steps": steps, "seed": int(made.get("seed", 0))}
    warm = WarmStartSettings.model_validate({"cast": seats, **numbers})
    examples = _examples(scenario, game, warm, cloned)
    # what is asked afterwards was not cloned, or memory would pass for listening
    asked = examples[::ASKED] if len(examples) > ASKED else []
    lessons = [one for number, one in enumerate(examples) if not asked or number % ASKED]

    def write(folder: Path) -> dict[str, Any]:
        facts = make_model(folder, game, heard=dict.fromkeys(_texts(examples)), **made)
        # opened from the folder, as any run will, so that what is cloned is what is written
        engine: Any = open_engine("main", f"{facts['engine']}/{folder}")
        learner = TorchLearner(engine.engine)
        loss = clone(learner, lessons, warm)["loss"]
        learner.publish()  # checks the clone, and lifts the mark that its weights are in doubt
        result = {"cloned": cloned, "loss": loss, "listens": listens(learner, asked)}
        engine.engine.save(folder)
        note = json.loads((folder / NOTE).read_text(encoding="utf-8"))
        del note[MARK]  # that it has not learned
        note |= {"cast": dict(cast), "episodes": episodes, "steps": steps, **result}
        (folder / NOTE).write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
        return {**facts, "path": str(target), **result}

    return place_new(target, write)


def _examples(
    scenario: str, game: Scenario, warm: WarmStartSettings, cloned: Sequence[str]
) -> list[Demonstration]:
    """What these agents were asked and answered in the scripted plays of a warm start."""
    seats = {agent: seat.model_dump(exclude_unset=True) for agent, seat in warm.cast.items()}
    own = {"policy": "main"}
    owners = {agent: own if agent in cloned else seats[agent] for agent in game.agents}
    written = {
        "scenario": {"id": scenario},
        "agents": owners,
        "policies": {"main": {"model": "transformers/"}},
        "train": {"policies": [], "warm_start": {"main": warm.model_dump()}},
    }
    config = Config.model_validate(written)
    nothing: Any = None  # scripted plays sample from nothing, and the model is not made yet
    main = Policy("main", nothing)
    players = LocalPlayers(config, {"main": main})
    return asyncio.run(demonstrations(Worlds.of(config, game), players, main, warm))


def _check(
    scenario: str, known: Sequence[str], cast: Mapping[str, str], cloned: Sequence[str]
) -> None:
    for agent in (*cast, *cloned):
        if agent not in known:
            raise ConfigError(
                f"{scenario} has no agent {agent!r}; its agents are {', '.join(known)}"
            )
    # the agents that are not cloned play too, and a demonstration has no defaults
    empty = [agent for agent in known if agent not in cast]
    if empty:
        raise ConfigError(
            f"nobody plays {empty[0]!r} of {scenario} in the demonstrations; name a behaviour for"
            f" every agent: {', '.join(known)}"
        )
    # no policy is open here: the model that could play is being made
    for agent, behaviour in cast.items():
        if needs_policy(behaviour, registry.load("agents", behaviour)):
            raise ConfigError(
                f"agent {agent!r}: {behaviour} samples from a policy, and demonstrations are"
                " scripted; see: gem-ma list agents"
            )


def _texts(examples: Sequence[Demonstration]) -> Iterator[str]:
    """All words of the plays, so that the tokenizer knows them."""
    for example in examples:
        yield from (message.text for message in example.request.messages)
        yield example.text
        calls = (call for call in example.calls if isinstance(call, ToolCall))
        yield from (json.dumps(call.arguments) for call in calls)
