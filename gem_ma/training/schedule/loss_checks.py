"""Does `train.loss:` fit together, and with the policies that it names? Part of `checks`; `where`
is the section as a message names it.

What needs an open model (that a learner has a reference, that two tokenizers are one) is asked when
a training opens.
"""

from __future__ import annotations

from gem_ma.config.learning import LossSettings
from gem_ma.config.settings import Config
from gem_ma.config.training import TrainSettings
from gem_ma.credit.estimators import estimator
from gem_ma.credit.estimators.registry import ESTIMATORS
from gem_ma.kernel.errors import ConfigError
from gem_ma.training.learner.losses import surrogate
from gem_ma.training.learner.mismatch import unlearnable
from gem_ma.training.learner.pairs import PAIRED

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
    idle: list[tuple[str, str]] = []
    for name, keys in IDLE.items():
        if loss.surrogate == name:
            idle += [(key, f"surrogate {name}") for key in keys]
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
