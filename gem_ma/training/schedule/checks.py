"""Does `train:` fit together? Faults that no schema can see, before a run folder is made: in names,
groups, sampling, seeds, discounts and losses. Plays and opens nothing.

Every message begins with the key that is wrong, so that `config.Loaded.placing` can add its line.
What needs an open model (that a learner has a reference, that two tokenizers are one) is asked
when a training opens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gem_ma import registry
from gem_ma.config.learning import CreditSettings, LossSettings
from gem_ma.config.loading import Loaded
from gem_ma.config.playing import AgentSettings
from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.credit.estimators import ESTIMATORS, columns, estimator
from gem_ma.credit.table import KEYS
from gem_ma.driver.behaviour import needs_policy
from gem_ma.engines.capabilities import Configured
from gem_ma.kernel.errors import ConfigError
from gem_ma.kernel.scenario import Scenario
from gem_ma.runs.open import Opened, open_config
from gem_ma.runs.worlds import Worlds
from gem_ma.scores.judge import Judge
from gem_ma.training.learner.losses import PAIRED, surrogate
from gem_ma.training.learner.parity import SAMPLED, unlearnable
from gem_ma.training.schedule.plans import TRAINING_SEEDS, plays_per_start
from gem_ma.training.schedule.settings import is_schedule, settings_of
from gem_ma.training.tracking import options_of
from gem_ma.wrappers.around import rules_of

# of a learned policy: it is part of file names; @ belongs to snapshots and critics
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")


def checked(config: Config, policies: Iterable[str], worlds: Worlds | None = None) -> TrainSettings:
    """The section `train:`. Raises ConfigError, with its key, for faults that no schema can see:
    in names of policies, estimators and columns, and in numbers that must divide each other.

    `worlds`: those of the config, where it has several or names seats by pattern.
    """
    settings = config.train
    if settings is None:
        raise ConfigError("the config has no section `train:`, so there is nothing to learn")
    for name in dict.fromkeys((*settings.policies, *settings.warm_start)):
        if name not in policies:
            raise ConfigError(
                f"train: no policy is called {name!r}; policies are {', '.join(policies) or 'none'}"
            )
        if settings.policies.count(name) > 1:
            raise ConfigError(
                f"train.policies: names {name!r} twice; a policy learns once from each step"
            )
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"policies.{name}: a learned policy names files, so its name has letters, digits"
                " and _ . + - only, 100 at most"
            )
        # the loss must see the distribution that is sampled from
        policy = config.policies.get(name)
        if policy is not None and (wrong := unlearnable(policy.sampling)):
            got = f"{wrong} {getattr(policy, wrong):g}"
            raise ConfigError(f"policies.{name}.{wrong}: {SAMPLED}; got {got}")
    # names first: what follows reads the settings of each policy, and would fail on a wrong name
    check_names(settings)
    options_of(settings.log)
    casts = [config.agents] if worlds is None else [one.agents for one in worlds.configs]
    check_opponents(config, settings, casts)
    # without learners the common settings are still checked, by a policy of no name
    for name in settings.policies or ("",):
        special = settings.per_policy.get(name)
        own = settings_of(settings, name)
        apart = f"train.per_policy.{name}"
        _check_estimator(own, f"{apart if special and special.estimator else 'train'}.estimator")
        check_loss(config, own, f"{apart if special and special.loss else 'train'}.loss")
    _check_starts(settings, casts)
    _check_rates(settings)
    _check_critic(settings)
    if worlds is not None and settings.curriculum is not None:
        _check_curriculum(settings, worlds)
    # beyond it an exam could ask what was trained on
    if config.evaluate.seed + config.evaluate.episodes > TRAINING_SEEDS:
        raise ConfigError(
            f"evaluate.seed: must lie below {TRAINING_SEEDS}, where training seeds begin; got"
            f" {config.evaluate.seed}"
        )
    return settings


def _check_rates(settings: TrainSettings) -> None:
    still = all(settings_of(settings, name).lr_final == 1 for name in settings.policies or ("",))
    if settings.lr_decay != "linear" and still:
        raise ConfigError(
            f"train.lr_decay: {settings.lr_decay} does nothing while train.lr_final is 1; set it to"
            " the share of lr that is left at the end, such as 0.1"
        )


def _check_critic(settings: TrainSettings) -> None:
    each = [settings_of(settings, name) for name in settings.policies]
    idle = [key for own in each for key in own.critic.model_dump(exclude_defaults=True)]
    if idle and not any(estimator(own.estimator.name).critic for own in each):
        raise ConfigError(
            f"train.critic.{idle[0]}: does nothing, since no estimator of this training has a"
            " critic (gae has); remove it"
        )


def _check_starts(settings: TrainSettings, casts: Sequence[Mapping[str, AgentSettings]]) -> None:
    # tools stand around a world's agents, and would stay where their player had been
    if settings.seats != "fixed" and any(
        len({str(seat.tools) for seat in cast.values()}) > 1 for cast in casts
    ):
        raise ConfigError(
            f"train.seats: under {settings.seats} players change seats, and tools stay with the"
            " agent; give all agents of a world the same tools, or set train.seats: fixed"
        )
    # a start that lacks some of its plays would make groups of unequal size
    sides = math.lcm(*(plays_per_start(settings.seats, len(cast)) for cast in casts))
    if settings.episodes % (settings.group_size * sides):
        size = settings.group_size
        undivided = f"{settings.episodes} episodes cannot be divided into"
        if sides == 1:
            raise ConfigError(f"train.group_size: {undivided} groups of {size}")
        each = f" of {size} episodes each" if size > 1 else ""
        raise ConfigError(f"train.seats: {undivided} starts, which have {sides} seatings{each}")


def _check_curriculum(settings: TrainSettings, worlds: Worlds) -> None:
    """There must be tasks to choose among, and somebody who says which plays succeeded."""
    ids = ", ".join(dict.fromkeys(world.scenario.id for world in worlds.played))
    if all(Judge.of(world.scenario).success is None for world in worlds.played):
        raise ConfigError(
            f"train.curriculum: {ids} does not say which plays succeed, and tasks are chosen by"
            " that; write its method success(episode), or remove train.curriculum"
        )
    if all(len(world.scenario.tasks(settings.split)) < 2 for world in worlds.played):
        raise ConfigError(
            f"train.curriculum: {ids} has one task in the split {settings.split!r}, so there is"
            " nothing to choose; remove train.curriculum"
        )


def remarks(settings: TrainSettings) -> dict[str, str]:
    """What `train:` implies without saying it: a word -> a line for the user."""
    if not settings.overlap:
        return {}
    caps = {name: settings_of(settings, name).loss.tis for name in settings.policies}
    weighed = [f"{n} by min(p / p sampled, {c:g}) (loss.tis)" for n, c in caps.items() if c]
    bare = [f"{name} not at all (loss.tis is null)" for name, cap in caps.items() if cap is None]
    behind = "one update" if settings.overlap == 1 else f"{int(settings.overlap)} updates"
    weights = ", ".join((*weighed, *bare)) or "none"
    line = f"every step is played {behind} behind (train.overlap); importance weights of tokens:"
    return {"off-policy": f"{line} {weights}"}


def seeds(config: Config, cores: Mapping[str, Any]) -> str:
    """Which seed draws what, in one line; `cores`: the open engines by policy."""
    lines = [f"run.seed {config.run.seed} draws the plays"]
    if config.train is not None:
        # a config may fix it apart from run.seed, so that several runs begin from one clone
        lines += [
            f"the clone of {name}: {warm.seed}" for name, warm in config.train.warm_start.items()
        ]
    # parts of a model that its folder did not hold were made from a seed: an adapter, a head
    seeded = {n: one for n, one in cores.items() if isinstance(one, Configured) and one.seeded}
    drawn = {name: core.drawn() for name, core in seeded.items()}
    lines += [
        f"{' and '.join(parts)} of {name}: {next(iter(parts.values()))}"
        for name, parts in drawn.items()
        if parts
    ]
    left = [name for name, parts in drawn.items() if not parts]
    return "; ".join([*lines, *[f"as its folder has it: {', '.join(left)}"] * bool(left)])


def _check_estimator(settings: TrainSettings, where: str) -> None:
    chosen = settings.estimator
    try:
        entry = estimator(chosen.name)
    except ConfigError as error:
        raise ConfigError(f"{where}.name: {error}") from error
    # an empty key is a key (one group); None is "as the estimator has it"
    key = columns(entry.key if chosen.key is None else chosen.key)
    unknown = [name for name in key if name not in KEYS]
    if unknown:
        raise ConfigError(
            f"{where}.key: no column is called {unknown[0]!r}; columns are {', '.join(KEYS)}"
        )
    # not refused without learners: such a config only plays exams
    if settings.policies:
        _check_groups(settings, where, key)
    if chosen.shaping is not None and entry.ledger:
        raise ConfigError(
            f"{where}.shaping: {chosen.name} reads the ledger itself, so shaped rewards would not"
            " reach it"
        )
    for option, value in chosen.options.items():
        if option not in entry.options:
            raise ConfigError(
                f"{where}.options.{option}: {chosen.name} has no such option; it has"
                f" {', '.join(entry.options) or 'none'}"
            )
        if problem := entry.problem(option, value):
            raise ConfigError(f"{where}.options.{option}: wants {problem}; got {value}")


def _check_groups(settings: TrainSettings, where: str, key: tuple[str, ...]) -> None:
    """Groups must have something to compare."""
    name = settings.estimator.name
    entry = estimator(name)
    if entry.tree and settings.fork is None:
        raise ConfigError(
            f"{where}.name: {name} compares what was done in one state, and without train.fork"
            " hardly two turns share one; set train.fork, as in {width: 4}, or name team_grpo,"
            " which compares plays of one start"
        )
    # a group of one episode has the advantage 0 everywhere: the run would learn nothing
    if "group" in key and settings.group_size == 1 and settings.fork is None:
        raise ConfigError(
            f"{where}: {name} centres within groups of episodes that share a start, and this config"
            " plays every start once; set train.group_size or train.fork, or name another key, such"
            " as [task, agent]"
        )
    if settings.refill and ("group" not in key or not entry.silent or entry.tree):
        raise ConfigError(
            f"train.refill: under {where} {name} a play teaches beside those of other starts too,"
            " so no start is idle; set train.refill=0, or name grpo or another estimator that"
            " centres within a group"
        )
    if settings.refill and settings.group_size == 1:
        raise ConfigError(
            "train.refill: every start is played once, so each would be idle; set train.group_size"
        )


def check_names(settings: TrainSettings) -> None:
    """Raises ConfigError for a policy of `alternate` or `per_policy` that does not learn, and for
    settings in `per_policy` that are not valid."""
    named = [("alternate", name) for name in settings.alternate]
    named += [("per_policy", name) for name in settings.per_policy]
    for key, name in named:
        if name not in settings.policies:
            raise ConfigError(
                f"train.{key}.{name}: no policy of train.policies has this name; they are"
                f" {', '.join(settings.policies) or 'none'}"
            )
    for name in settings.per_policy:
        settings_of(settings, name)  # raises; a schema alone cannot see the merged section


def check_credit(worlds: Worlds, settings: TrainSettings) -> None:
    """Raises ConfigError where an agent would learn without a discount, or with another one than
    the shaping of its rewards assumes; and where a team shares nothing, or is not there."""
    for name in settings.policies:
        _check_team(worlds, settings_of(settings, name).credit)
    for world in worlds.played:
        scenario = world.scenario
        who = ((agent, _learners(world.config, settings, agent)) for agent in scenario.agents)
        for agent, policy in ((agent, policy) for agent, names in who for policy in names):
            gamma = settings_of(settings, policy).credit.gamma
            if isinstance(gamma, Mapping) and not is_schedule(gamma) and agent not in gamma:
                raise ConfigError(
                    f"train.credit.gamma: gamma names no value for agent {agent!r}; it has"
                    f" {', '.join(gamma)}"
                )
            # potential-based shaping leaves the best policy alone only under its own discount
            wanted = scenario.discounts.get(agent)
            value = gamma[agent] if isinstance(gamma, Mapping) and not is_schedule(gamma) else gamma
            # a schedule fits only where it stands still: both of its ends must be the discount
            ends = [value["from"], value["to"]] if isinstance(value, Mapping) else [value]
            if wanted is not None and set(ends) != {wanted}:
                learned = " to ".join(f"{end:g}" for end in ends)
                raise ConfigError(
                    f"train.credit.gamma: {scenario.id} shapes the rewards of {agent!r} for a"
                    f" discount of {wanted:g}, and it would learn with {learned}; make the two"
                    " equal (scenario.gamma)"
                )


def _check_team(worlds: Worlds, credit: CreditSettings) -> None:
    if credit.team is not None and not credit.rule.startswith("team_mix"):
        raise ConfigError(
            f"train.credit.team: nothing is shared under {credit.rule}; add"
            " train.credit.rule=team_mix(0.5), or leave it out"
        )
    for world in worlds.played if credit.team == "teams" else ():
        rules = rules_of(world.scenario)
        if not rules.teams and type(rules).team is Scenario.team:
            raise ConfigError(
                f"train.credit.team: {world.scenario.id} has no teams; name the agents that share,"
                " or leave it out so that all do"
            )


def _learners(config: Config, settings: TrainSettings, agent: str) -> list[str]:
    """The learned policies that may play an agent: its own, or every seated one where players
    change seats."""
    seated = list(config.agents) if settings.seats != "fixed" else [agent]
    names = [config.agents[seat].policy for seat in seated if seat in config.agents]
    return [name for name in dict.fromkeys(names) if name is not None and name in settings.policies]


# of each surrogate of the house: the keys that it does not read; a loss of one's own may read all
IDLE = {
    "none": ("clip_high", "ratio", "aggregation"),
    **dict.fromkeys(PAIRED, ("aggregation",)),
}


def check_loss(config: Config, settings: TrainSettings, where: str) -> None:
    """Raises ConfigError, with its key, for what contradicts itself or would do nothing."""
    if settings.loss.surrogate in PAIRED:
        _check_pairs(settings, where)
    else:
        try:
            surrogate(settings.loss.surrogate)
        except ConfigError as error:
            raise ConfigError(f"{where}.surrogate: {error}") from error
    _check_divergence(settings, where)
    _check_teacher(config, settings, where)
    _check_nothing(settings, where)
    _check_idle(settings.loss, where)


def _check_idle(loss: LossSettings, where: str) -> None:
    """Keys that the chosen loss does not read, with another value than their default."""
    idle = [(key, f"surrogate {loss.surrogate}") for key in IDLE.get(loss.surrogate, ())]
    if loss.ratio != "token":  # a turn or part has one ratio then, and counts once
        idle.append(("aggregation", f"ratio {loss.ratio}"))
    for key, under in idle:
        value = getattr(loss, key)
        if value != type(loss).model_fields[key].default:
            raise ConfigError(f"{where}.{key}: does nothing under {under}; remove it")


def _check_divergence(settings: TrainSettings, where: str) -> None:
    """The keys that say how `loss.kl` counts."""
    loss = settings.loss
    name = settings.estimator.name
    paired = loss.surrogate in PAIRED
    # pairs are compared with a reference whatever the weight of the divergence
    idle = ["reference"] if loss.reference is not None and not paired else []
    idle += ["kl_in"] if loss.kl_in == "reward" else []
    idle += ["kl_form"] if loss.kl_form != "k3" else []
    if not loss.kl and idle:
        raise ConfigError(
            f"{where}.{idle[0]}: does nothing, since train.loss.kl is 0; set a weight to begin with"
        )
    if not paired and loss.pair_beta != LossSettings().pair_beta:
        raise ConfigError(
            f"{where}.pair_beta: does nothing under surrogate {loss.surrogate}; set surrogate: dpo"
        )
    if loss.kl_in == "reward" and loss.kl_form != "k3":
        raise ConfigError(
            f"{where}.kl_form: does nothing under kl_in: reward, which takes log p sampled - log p"
            " reference itself off the reward; remove one of the two"
        )
    if loss.kl_in == "reward" and estimator(name).ledger:
        raise ConfigError(
            f"{where}.kl_in: {name} reads the ledger itself, so what the reward is charged would"
            " not reach it"
        )


def _check_pairs(settings: TrainSettings, where: str) -> None:
    """A loss of pairs compares whole plays of one start, and knows no ratios."""
    loss = settings.loss
    what = f"{where}.surrogate: {settings.loss.surrogate}"
    if settings.policies and settings.group_size == 1:
        raise ConfigError(
            f"{what} compares plays of one start, and each is played once; set train.group_size"
        )
    if settings.fork is not None:
        raise ConfigError(
            f"{what} compares whole plays, and those of train.fork begin in the middle; remove"
            " train.fork"
        )
    if estimator(settings.estimator.name).centred != "total":
        names = ", ".join(name for name, entry in ESTIMATORS.items() if entry.centred == "total")
        raise ConfigError(
            f"{what} compares plays by what each came to, and {settings.estimator.name} scores"
            f" turns; set train.estimator.name to one of {names}"
        )
    if settings.credit.cut == "skip":
        raise ConfigError(
            f"{what} compares whole plays, so it cannot leave out single turns; set"
            " train.credit.cut: learn"
        )
    idle = [f"ratio: {loss.ratio}"] * (loss.ratio != "token")
    idle += [f"kl_in: {loss.kl_in}"] * (loss.kl_in != "loss")
    if loss.clip_high is not None:
        idle.append(f"clip_high: {loss.clip_high}")
    if idle:
        raise ConfigError(f"{what} knows no {idle[0]}; remove it")


def _check_teacher(config: Config, settings: TrainSettings, where: str) -> None:
    """The policy that is the reference."""
    loss = settings.loss
    if loss.reference is None:
        return
    place = f"{where}.reference"
    if loss.reference not in config.policies:
        raise ConfigError(
            f"{place}: no policy is called {loss.reference!r}; policies are"
            f" {', '.join(config.policies)}"
        )
    if loss.reference in settings.policies:
        raise ConfigError(
            f"{place}: {loss.reference!r} learns itself, and a reference stays as it is; name a"
            " policy that is not in train.policies"
        )
    teacher = config.policies[loss.reference]
    if key := unlearnable(teacher.sampling):
        raise ConfigError(
            f"policies.{loss.reference}.{key}: a reference says how likely it finds every token, so"
            f" it has temperature above 0, top_p 1 and top_k 0; got {getattr(teacher, key):g}"
        )


def _check_nothing(settings: TrainSettings, where: str) -> None:
    """A loss that ignores rewards needs something else to learn from."""
    loss = settings.loss
    if loss.surrogate != "none":
        return
    if not (loss.entropy or (loss.kl and loss.kl_in == "loss")):
        raise ConfigError(
            f"{where}.surrogate: none learns from the divergence (kl_in: loss) or the entropy bonus"
            " alone, and both are off; set train.loss.kl, and mostly a reference"
        )
    if settings.refill:
        raise ConfigError(
            f"train.refill: under {where}.surrogate none every play teaches, however it was paid;"
            " set train.refill=0"
        )


def check_opponents(
    config: Config, settings: TrainSettings, casts: Sequence[Mapping[str, AgentSettings]]
) -> None:
    """Raises ConfigError for opponents that this config cannot have; `casts`: who sits in each
    world that it plays."""
    wanted = settings.opponents
    if wanted is None:
        return
    for name in wanted.anchors:
        if name in settings.policies:
            raise ConfigError(
                f"train.opponents.anchors.{name}: an anchor stands still, and this policy learns"
            )
        # an anchor is a policy or a behaviour; a behaviour that wants a policy has none here
        try:
            sampled = name not in config.policies and needs_policy(
                name, registry.load("agents", name)
            )
        except ConfigError as error:
            raise ConfigError(f"train.opponents.anchors.{name}: {error}") from error
        if sampled:
            raise ConfigError(
                f"train.opponents.anchors.{name}: this behaviour samples from a policy; name the"
                " policy instead"
            )
    # a record with such a name could not say who played
    odd = [name for name in config.policies if "@" in name]
    if odd:
        raise ConfigError(
            f"policies.{odd[0]}: with train.opponents, a name with @ is that of a snapshot"
        )
    learned = max(sum(seat.policy in settings.policies for seat in cast.values()) for cast in casts)
    if wanted.uniform + wanted.prioritised > 0 and learned < 2:
        raise ConfigError(
            "train.opponents: the pool holds snapshots of learned policies, and no other agent is"
            " played by one; use anchors"
        )
    if wanted.latest < 1 and all(len(cast) < 2 for cast in casts):
        raise ConfigError("train.opponents: this scenario has one agent, which has no opponents")


# What a config that learns must pass before a run folder is made for it.


def open_training(loaded: Loaded, *, seats: bool = True, offline: bool = False) -> Opened:
    """As `open_config`. Raises ConfigError, with file and line, where `train:` does not fit
    together."""

    def check(worlds: Worlds) -> None:
        settings = checked(loaded.config, loaded.config.policies, worlds)
        check_credit(worlds, settings)

    return open_config(loaded, "train", check=check, seats=seats, offline=offline)
