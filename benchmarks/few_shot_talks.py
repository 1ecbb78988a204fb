"""What monitor and ledger say of real talks: `python benchmarks/few_shot_talks.py CHECKOUT
[--show CODE]` (default: TAU_BENCH_PATH).

CHECKOUT is a tau-bench checkout with its `few_shot_data`. Prints, over the talks that the
benchmark pays, each finding of the monitor with how often it is certain and how often it is only
read from words, and each fault of the ledger. `--show CODE` prints where one was found, with the
talk around it, to be judged by reading.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from pathlib import Path

from gem_ma.scenarios.service_desk.retail import Retail
from gem_ma.scenarios.service_desk.watching.blame import CRITICAL

from tests.few_shot import Talk, talks

AROUND = 4  # steps before what is shown


def show(talk: Talk, code: str) -> None:
    """The findings and faults of this name, with the talk before them."""
    found = [one for one in talk.audit.monitor.findings if one.code == code] + [
        one for one in talk.audit.faults if one.kind == code
    ]
    for one in found:
        print(
            f"--- talk {talk.line}, step {one.step}, {'sure' if one.sure else 'unsure'}:"
            f" {one.evidence}"
        )
        for event in talk.audit.desk.events:
            if one.step - AROUND <= event.step <= one.step:
                print(
                    f"   {event.agent} {event.kind}:"
                    f" {event.text or (event.call and (event.call.name, event.call.arguments)) or event.reason}"
                )


def main(checkout: Path, code: str) -> None:
    played = list(talks(Retail(data=str(checkout), scoring="tau1"), checkout))
    paid = [talk for talk in played if talk.audit.verdict.reward]
    for talk in played if code else ():
        show(talk, code)
    sure, read, faults = Counter[str](), Counter[str](), Counter[str]()
    for talk in paid:
        for finding in talk.audit.monitor.findings:
            (sure if finding.sure else read)[finding.code] += 1
        faults.update({fault.kind for fault in talk.audit.faults})
    strict = sum(
        not any(one.hard and one.sure for one in talk.audit.monitor.findings) for talk in paid
    )
    critical = sum(any(fault.kind in CRITICAL for fault in talk.audit.faults) for talk in paid)
    print(
        f"{len(played)} talks whose task is known, {len(paid)} paid; of these {strict} without a"
        " certain hard violation,"
    )
    print(
        f"{sum(bool(talk.audit.faults) for talk in paid)} with a fault of the user, {critical} with"
        " a critical one"
    )
    print("\nfinding      sure  read from words")
    for name in sorted({*sure, *read}):
        print(f"{name:<12} {sure[name]:>4}  {read[name]:>4}")
    print("\nfault of the user   talks")
    for name, count in sorted(faults.items()):
        print(f"{name:<18} {count:>5}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "checkout", nargs="?", default=os.environ.get("TAU_BENCH_PATH", ""), type=Path
    )
    parser.add_argument("--show", default="", metavar="CODE")
    given = parser.parse_args()
    main(given.checkout, given.show)
