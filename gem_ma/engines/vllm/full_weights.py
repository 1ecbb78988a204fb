"""All weights of a vLLM server, by its development routes: it reads a model folder that both sides
see, and carries a name for what it holds.

The name (`weight_version`) is part of the running process: a server that was restarted has the
weights of its start again and answers with status 200, but no longer has the name.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from weakref import WeakValueDictionary

from gem_ma.engines.api.faults import Fault
from gem_ma.engines.api.remote import Body, Remote
from gem_ma.kernel.errors import ConfigError, EndpointError, EngineError

FLAG = "start it with VLLM_SERVER_DEV_MODE=1, on loopback or behind a proxy: that mode has no walls"
OURS = "gem-ma."  # how a name of a publish begins


class Owner:
    """Names for the publishes of one policy, and the servers that it changes. `prefix`: of its
    names, which other processes of the same training share."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.made = 0
        self.prefix = f"{OURS}{uuid.uuid4().hex[:12]}."

    def next_name(self) -> str:
        """A name that was never given before, by any process."""
        self.made += 1
        return f"{self.prefix}{self.made}"

    def gave(self, name: str) -> bool:
        """Whether this policy gave the name."""
        return name.startswith(self.prefix)


# address -> who publishes there. Weak: a policy that is gone changes no server any more.
_OWNERS: WeakValueDictionary[str, Owner] = WeakValueDictionary()


def claim(address: str, owner: Owner) -> None:
    """From now on nobody else in this process may sample there; whoever claimed it last, may."""
    _OWNERS[address] = owner


def check_owner(address: str, owner: Owner | None, where: str) -> None:
    """Raises ConfigError where another policy of this process publishes all its weights there."""
    holder = _OWNERS.get(address)
    if holder is not None and holder is not owner:
        raise ConfigError(
            f"{where}: policy {holder.policy!r} publishes all its weights to {address}; give each"
            " policy a server of its own, or train adapters: lora: {rank: 8}"
        )


class FullWeights:
    """The weights of the server behind `remote`. `tiny`: a small request of that server, which
    shows whether it is there."""

    def __init__(self, remote: Remote, tiny: Body) -> None:
        self.remote = remote
        self.tiny = tiny
        self.root = remote.base_url.removesuffix("/v1")
        self.where = f"{remote.where}: {remote.host}"

    async def name(self) -> str:
        """The name of what it holds now. Raises ConfigError where it does not say."""
        name = (await self._call("/weight_info", None)).get("weight_version")
        if not isinstance(name, str):
            raise ConfigError(f"{self.where} does not name its weights; {FLAG}")
        return name

    async def size(self) -> int:
        """How many GPUs it has. Raises ConfigError where it does not say."""
        size = (await self._call("/get_world_size", None)).get("world_size")
        if not isinstance(size, int) or size < 1:
            raise ConfigError(f"{self.where} does not say how many GPUs it has; {FLAG}")
        return size

    async def load(self, folder: str, name: str) -> None:
        """Takes the weights of a model folder under this name. Raises EngineError."""
        # nothing may be sampled between the two, and what is cached is of the weights of before
        await self._call("/pause?mode=abort", {})
        try:
            await self._call(
                "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}}
            )
            await self._call("/reset_prefix_cache", {})
            # last: a load that broke off has the old name, so it is found out
            await self._call("/update_weight_version", {"new_version": name})
        except EngineError as error:
            if isinstance(error, EndpointError):
                raise
            with suppress(EngineError):  # or it would answer nobody any more
                await self._call("/resume", {})
            raise EngineError(
                f"{self.where} did not take the weights in {folder}: {error}",
                retryable=error.retryable,
            ) from error
        await self._call("/resume", {})

    async def _call(self, path: str, body: Body | None) -> Body:
        try:
            return await self.remote.call(
                self.root + path, body, self.tiny, adapt=self.stop_at_once
            )
        except EndpointError as error:
            if "(404: Not Found)" in str(error):
                raise ConfigError(f"{self.where} takes no weights; {FLAG}") from error
            raise

    def stop_at_once(self, fault: Fault, sent: Body) -> bool:
        """A server that cannot take a folder says so with status 500, every time."""
        if fault.status == 500:
            raise self.remote.refused(fault)
        return False
