"""What blame found, in words for people who know none of its names."""

from __future__ import annotations

from gem_ma.scenarios.service_desk.desk.log import ASSISTANT, USER
from gem_ma.scenarios.service_desk.watching.blame import UNFAIR, Blame

from gem_ma import Episode

MOST = 160  # letters of what shows it
# cause -> what its side did
DID = {
    "AUTH": "acted for a customer who was not identified",
    "SUBJECT": "used a record of somebody else",
    "CONSENT": "made a change without a yes",
    "MISMATCH": "made another change than the one agreed on",
    "FABRICATED": "used an id that nobody had shown",
    "ONE_CALL": "made a call beside a text or another call",
    "TWICE": "changed a second time what may change once",
    "UNFOUNDED": "told a number or an id that nothing shown leads to",
    "wrong_write": "made a change that leads away from the goal",
    "no_write_after_consent": "did not make the change that had a yes",
    "undue_refusal": "refused what can be done",
    "bad_refusal": "refused for another reason than the due one, or without a look at it",
    "missing_fact": "did not tell a fact that was wanted",
    "not_served": "left the task undone",
    "limit": "did not get there within the bounds of the talk",
    "fault": "broke a rule that ends the talk",
    "hallucinated_slot": "made up a value, and a call used it",
    "confirm_wrong": "said yes to a change that is not its own",
    "loop": "said the same for the third time",
    "off_task": "asked for what is not in its task",
    "silent": "said nothing, turn after turn",
    "wrong_end": "left for the wrong reason",
    "not_asked": "never asked for a fact that it alone knew was wanted",
    "early_stop": "left content before anything was done",
}
# what shows these says no more
PLAIN = ("TRANSFER", "no_write_after_consent", "undue_refusal")


def told(whose: Blame, episode: Episode) -> tuple[int | None, str, str]:
    """`Scenario.fault` of a play that was lost by this."""
    turns = episode.turns[: whose.step + 1]
    if whose.side not in (ASSISTANT, USER):
        what = "the task is no fair test" if whose.cause in UNFAIR else "a limit cut the talk"
        return turns[-1].step if turns else None, "", f"{what} ({whose.cause})"
    did = DID.get(whose.cause, whose.cause)
    shown = whose.evidence
    if whose.cause == "TRANSFER":  # the evidence says which kind it is; the call is on record
        did = shown.partition(": ")[0]
    if whose.cause in PLAIN:
        shown = ""
    if len(shown) > MOST:
        shown = f"{shown[:MOST]} ..."
    sentence = f"{whose.side} {did}" + (f": {shown}" if shown else "")
    # the last act of the side itself: a talk may end by the other one's
    own = [turn.step for turn in turns if turn.agent == whose.side]
    unsure = "" if whose.sure else " (unsure: as far as texts can be read)"
    return own[-1] if own else None, whose.side, sentence + unsure
