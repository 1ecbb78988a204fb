"""Per-turn rewards of a service talk as watchers: named terms, each switchable, with a weight and a
guard. Without any term only the outcome pays.

Both are paid `outcome`: the grader's verdict at the end; with `strict`, only where the monitor is
sure of no hard violation. The assistant is paid

- `progress`: potential P = -d/d0 over canonical facts (d to the nearest goal, d0 = its size), paid
  as gamma*P' - P
- `information`: finding the customer, and the first read of each record that the solution needs, by
  shown ids; sums to `weight`
- `validity`: minus `weight` for an error, an action that is none, an identical call; not for the
  first try to find the customer
- `policy`: minus `hard` or `soft` for each sure finding of the monitor, `words` of it for a clear
  one of words, to minus `cap`
- `communication`: each required fact told after what founds it; sums to `weight`, taken back from
  who tells too many numbers
- `effort`: minus `weight` a turn, `repeat` for a text said before, `question` for what was told
  already, down to minus `cap`
- `abstention`: the due refusal or transfer, with nothing changed

and the user

- `role`: minus `weight` for each sure fault of the ledger, `words` of it for the others, to minus
  `cap`; plus `stop` for an end with all settled
- `game`: its own stake: its share of the outcome, or, as an adversary, what each hard finding earns
  while it is faultless

Guards. `progress` in mode `invariant` sets P = 0 at the end, so no weight changes which policies
are best at the run's own `gamma`; mode `dense` keeps the last P and may change it. A record that
can no longer be changed counts double where it is wrong. `effort` is paid to the full at an end
without success, so that giving up early saves nothing. `game` is lost, and what it paid taken
back, at the user's first fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gem_ma.scenarios.service_desk.desk.log import Watcher
from gem_ma.scenarios.service_desk.rewards.conduct import (
    EffortPay,
    GamePay,
    PolicyPay,
    RolePay,
    ValidityPay,
)
from gem_ma.scenarios.service_desk.rewards.goals import (
    AbstentionPay,
    CommunicationPay,
    InformationPay,
    ProgressPay,
)
from gem_ma.scenarios.service_desk.rewards.scene import Scene
from gem_ma.scenarios.service_desk.rewards.terms import (
    Settings,
)

# -- watchers -------------------------------------------------------------------------------------


def watchers(settings: Settings, scene: Scene) -> list[Watcher]:
    """The watchers that pay, in the order of `TERMS`; the outcome is the scenario's own to pay."""
    return [
        made
        for name, term in settings.terms.items()
        if name in PAYERS
        for made in PAYERS[name](term, scene, settings)
    ]


Make = Callable[[Any, Scene, Settings], list[Watcher]]
PAYERS: dict[str, Make] = {
    "progress": lambda term, scene, settings: [ProgressPay(term, scene, settings.gamma)],
    "information": lambda term, scene, settings: [InformationPay(term.weight, scene)],
    "validity": lambda term, scene, settings: [ValidityPay(term, scene.domain)],
    "policy": lambda term, scene, settings: [PolicyPay(term, scene.monitor)],
    "communication": lambda term, scene, settings: [CommunicationPay(term.weight, scene)],
    "effort": lambda term, scene, settings: [EffortPay(term, scene)],
    "abstention": lambda term, scene, settings: [AbstentionPay(term.weight, scene)],
    "role": lambda term, scene, settings: [RolePay(term, scene)],
    "game": lambda term, scene, settings: (
        [GamePay(term, scene)] if settings.user_reward == "adversarial" else []
    ),
}
NEEDS_LEDGER, NEEDS_MONITOR = (
    frozenset({"role", "game"}),
    frozenset({"policy", "information", "game"}),
)
