"""What an engine can do beside answering. Each capability is a protocol, and whoever needs it asks
`isinstance(engine, Remembers)`. An engine does not name its capabilities: it has the methods. The
first line of each docstring says what the engine can do, the rest who asks and when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from typing_extensions import get_protocol_members

from gem_ma.kernel.episode import Episode
from gem_ma.kernel.types import Reply, Request, Sampling

Asked = tuple[Any, Request]  # whom a request is for, and the request


@runtime_checkable
class Batches(Protocol):
    """Answers many requests at once, in a thread of its own.

    Asked by `open_engine`, which wraps such an engine in `Batched`. An exception in place of a
    reply goes to the asker of that request alone; one that is raised goes to all of the batch.
    """

    def sample_batch(self, requests: Sequence[Request]) -> Sequence[Reply | Exception]: ...


@runtime_checkable
class Streams(Protocol):
    """Takes requests into a batch that already runs.

    Asked by `Batched` before each batch outside of training. `pull()` gives what has come since
    the last call, `give(n, answer)` answers the n-th that was pulled.
    """

    def stream(
        self, pull: Callable[[], Sequence[Asked]], give: Callable[[int, Reply | Exception], None]
    ) -> None: ...


@runtime_checkable
class Mixes(Protocol):
    """Answers requests of several engines in one batch, as adapters on one base do.

    Asked by `Batched` when it is made: engines whose `shares` is the same object wait in one
    queue. None = this engine shares with nobody now.
    """

    @property
    def shares(self) -> object | None: ...
    def sample_mixed(self, asked: Sequence[Any]) -> Sequence[Reply | Exception]: ...


@runtime_checkable
class Remembers(Protocol):
    """Keeps something of a conversation between its requests.

    Asked by the rollout. `recall` when a play goes on from recorded replies: the next prompt then
    begins with their ids. `forget` before each rollout that must be repeatable: what was computed
    ahead is dropped, what was said is not.
    """

    def recall(self, request: Request, reply: Reply) -> None: ...
    def forget(self) -> None: ...


@runtime_checkable
class Weighs(Protocol):
    """Has weights that can be named and written.

    Asked by `run` and `train` for the manifest, by the league and at the end of a training.
    `fingerprint` is a digest of the weights, `version` counts publishes, `exports` is the name of
    the engine that opens what `save` wrote.
    """

    version: int

    @property
    def exports(self) -> str: ...
    def fingerprint(self) -> str: ...
    def save(self, path: Path) -> None: ...


@runtime_checkable
class Trains(Protocol):
    """Can learn: it gives the learner of its weights.

    Asked of every policy in `train.policies`. The learner follows
    `gem_ma.training.loop.roles.Learner`. `apart`: it learns on weights of its own, since the engine
    is sampled from meanwhile.
    """

    # Any: learners stand floors above the engines, and the training checks what it gets
    def learner(self, sampling: Sampling, *, apart: bool = False) -> Any: ...


@runtime_checkable
class Divides(Protocol):
    """Can learn in several processes, each with a part of its weights.

    Asked by a training of several processes under `train.shard`; `team` are these processes.
    """

    def divided(self, sampling: Sampling, team: Any) -> Any: ...


@runtime_checkable
class Pins(Protocol):
    """Gives an engine of its present weights, which later publishes leave as they are.

    Asked by a training that plays several steps ahead (`train.overlap`).
    """

    def pinned(self) -> Any: ...


@runtime_checkable
class Carries(Protocol):
    """Tells an engine of another process, made from the same config, what it samples with.

    Asked by a training whose plays run in other processes (`--ray`), of the policies that learn.
    `carried` gives the weights and their version, or where they lie; `carry` takes them.
    """

    def carried(self) -> bytes: ...
    def carry(self, data: bytes) -> None: ...


@runtime_checkable
class Exact(Protocol):
    """Tells the probability of each legal string of a request: [len(legal)] floats.

    Asked by the exams of a training, and by `engine_strategy`, for exact exploitability.
    """

    def probabilities(self, request: Request) -> Sequence[float] | Any: ...


@runtime_checkable
class Priced(Protocol):
    """Costs money.

    Asked by `run`, which keeps the replies of interrupted plays, so that none is bought twice; and
    by `check`, for its estimate. `usd` is None where the price is unknown.
    """

    def usd(self, prompt: int, completion: int) -> float | None: ...


@runtime_checkable
class Reachable(Protocol):
    """Samples at a server, or beside this process, at `base_url`, where it is called `name`.

    Asked by `check`, which sends it one tiny request (`ping`); and by the rollout: with
    `silence_fails`, a play in which it said nothing at all is a fault of the server.
    """

    name: str
    base_url: str
    silence_fails: bool

    async def ping(self) -> Reply: ...


@runtime_checkable
class Configured(Protocol):
    """Has defaults of its own for configs, other than those of its constructor.

    Asked of the class when a config is read. `config_defaults`: option -> what a config gets that
    does not say. `seeded`: a config that trains gives it `seed`, by default `run.seed`. `drawn`
    is for the check: what an open engine drew, and from which seed; {} = nothing.
    """

    config_defaults: Mapping[str, Any]
    seeded: bool

    def drawn(self) -> Mapping[str, int]: ...


@runtime_checkable
class Findable(Protocol):
    """Is found by the environment where a config does not say where it is.

    Asked of the class when a config is read. `whereabouts`: options that the environment names
    for a policy with these options, {} for none; the config then holds them, and so does the
    record. Raises ConfigError where the two contradict each other.
    """

    @staticmethod
    def whereabouts(options: Mapping[str, Any]) -> Mapping[str, str]: ...


@runtime_checkable
class Settles(Protocol):
    """Settles by a trial of this machine what a config leaves to it.

    Asked of the class when a config is read. `settled`: options in place of those of a policy, for
    the model `name`; the config then holds them, and so does the record. `pace` is for `run` and
    `train`, of an open engine: a line for the user on what was taken, "" for nothing.
    """

    @staticmethod
    def settled(name: str, options: Mapping[str, Any]) -> Mapping[str, str]: ...
    def pace(self) -> str: ...


# in the order in which they are listed
CAPABILITIES: tuple[type, ...] = tuple(
    each for each in list(vars().values()) if isinstance(each, type) and Protocol in each.__bases__
)


def declares(factory: object, capability: type) -> bool:
    """Whether engines of this class have the methods of the capability, before one is opened."""
    # a protocol's own dictionary: fields that it merely annotates are not in it
    methods = [
        name for name in get_protocol_members(capability) if callable(vars(capability).get(name))
    ]
    return all(callable(getattr(factory, name, None)) for name in methods)


def declared(factory: object) -> tuple[str, ...]:
    """The names of all capabilities that engines of this class have."""
    return tuple(each.__name__ for each in CAPABILITIES if declares(factory, each))


@runtime_checkable
class Typed(Protocol):
    """A person types what it answers, at this terminal.

    Asked by whoever plays, see `gem_ma.engines.base.asks_person`; `show_end` tells the person how
    a play came out.
    """

    def show_end(self, episode: Episode) -> None: ...
