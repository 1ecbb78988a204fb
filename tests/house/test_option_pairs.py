"""Two options of a training at once that nobody tried together: refused in one line before anything
is learned, or a training that a kill does not change."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from gem_ma import config
from gem_ma.kernel.errors import ConfigError
from tests.broken_runs import broken_and_whole

SMALL = (
    "train.steps=4",
    "train.episodes=8",
    "train.save_every=2",
    "evaluate.episodes=4",
    "evaluate.every=2",
    "run.baselines=false",
)
OPTIONS = {
    "ahead": ("train.overlap=2",),
    "mixed": ("train.overlap=1", "train.admission=continuous", "run.concurrency=3"),
    "refill": ("train.refill=2", "train.group_size=4", "train.estimator={name: grpo}"),
    "tries": ("evaluate.tries=2",),
    "best": ("train.checkpoints.best=sampled.return.player_0",),
    "reward": ("train.loss.kl=.1", "train.loss.kl_in=reward"),
    "pairs": ("train.loss.surrogate=dpo", "train.group_size=4", "train.estimator={name: grpo}"),
    "teacher": ("policies.t={model: table/softmax}", "train.loss={reference: t, kl: .5}"),
    "moving": ("train.estimator={name: rae}",),
    "fork": ("train.fork={width: 2}",),
    "league": ("train.opponents={latest: .5, uniform: .5}", "train.pool={every: 2, size: 2}"),
    "late": ("train.max_policy_lag=0",),
    "chunks": ("train.chunk=3",),
}
PAIRS = list(combinations(OPTIONS, 2))


# each fifth: every option is there, in few pairs
@pytest.mark.long
@pytest.mark.parametrize("pair", PAIRS[::5], ids="-".join)
def test_two_options_are_refused_or_survive_a_kill(pair: tuple[str, str], tmp_path: Path) -> None:
    words = [*SMALL, *OPTIONS[pair[0]], *OPTIONS[pair[1]]]
    try:
        broken_and_whole(tmp_path, config.load("kuhn_table", words).config)
    except ConfigError as refused:
        assert "\n" not in str(refused) and str(refused).startswith("train.")
        assert not (tmp_path / "broken").exists()
