"""Keys that a config no longer has, each with what to use instead. docs/config_changes.md is the
same table for readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from gem_ma.config.document import Document, Keys


class Removed(NamedTuple):
    """A key that went. `off`: the values that asked for nothing, which folders of older runs
    hold; they are dropped without a word."""

    key: str
    off: tuple[Any, ...]
    instead: str


REMOVED = (
    Removed("train.loss.dual_clip", (None,), "use surrogate: cispo, which bounds every ratio"),
    Removed(
        "train.loss.sequence_mask",
        (None,),
        "use tis, and train.max_policy_lag where plays are old",
    ),
    Removed(
        "train.loss.kl_target",
        (None,),
        "use a fixed kl; target_kl ends a step whose policy has moved too far",
    ),
    Removed(
        "train.loss.kl_refresh",
        (None,),
        "train again from the exported weights: they are the reference of the new run",
    ),
    Removed(
        "train.loss.moments",
        ("float32",),
        "use lora at the policy, or train.shard with several processes",
    ),
    Removed(
        "train.loss.pass_logits", (1 << 25,), "it is chosen for you; pass_tokens bounds a pass"
    ),
    Removed("train.curriculum.band", ([0.1, 0.9],), "the band is 0.1 to 0.9; explore stays"),
    Removed("train.curriculum.decay", (0.98,), "it is 0.98; explore stays"),
    Removed("train.fork.selector", ("random",), "a drawn branch is forked next"),
    Removed("train.pool.q", (2.0, 2), "it is 2; prioritised: even is the flatter weight"),
    Removed("train.pool.prior", (2.0, 2), "it is 2; size and every stay"),
    Removed("train.pool.decay", (0.98,), "it is 0.98; size and every stay"),
)
# values that went, of keys that stay
VALUES = {
    ("train.on_collapse", "rollback"): (
        "use warn; `gem-ma train` from an earlier checkpoint with a lower lr goes back"
    ),
    ("train.on_collapse", "mix_pool"): "use warn, and give uniform a share of train.opponents",
}
# what a policy says in its own way has the keys of these sections too
_BY_POLICY = ("train", "per_policy")


def check_removed(document: Document) -> None:
    """Adds a fault with its advice for every key and value that went; drops those that asked for
    nothing."""
    for removed in REMOVED:
        for path in _places(document, tuple(removed.key.split("."))):
            if document.get(*path) in removed.off:
                document.get(*path[:-1]).pop(path[-1])
            else:
                document.fault(path, f"this key is no longer there; {removed.instead}")
    for (key, value), instead in VALUES.items():
        keys: Keys = tuple(key.split("."))
        if document.get(*keys) == value:
            document.fault(keys, f"{value} is no longer there; {instead}")


def _places(document: Document, path: Keys) -> Iterator[Keys]:
    """The places of the config that hold this key: of all policies together, and of single
    ones."""
    policies = document.get(*_BY_POLICY)
    names = list(policies) if isinstance(policies, dict) else []
    for place in (path, *((*_BY_POLICY, name, *path[1:]) for name in names)):
        above = document.get(*place[:-1])
        if isinstance(above, dict) and place[-1] in above:
            yield place
