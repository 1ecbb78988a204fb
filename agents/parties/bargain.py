"""Players of `bargain`, in both games and both roles."""

from __future__ import annotations

import re

from gem_ma.agents.bots import Bot, chosen

from gem_ma import Action, Asked

_OFFERED = re.compile(r"You are offered (\d{1,18}) of (\d{1,18})")
_SENT = re.compile(r"\b(\d{1,18}) of \d{1,18} were sent to you, (\d{1,18}) arrive")


class _Bargainer(Bot):
    offered = 0.5  # of the pie
    least = 0.4  # share of the pie that it accepts
    sends = 0.5  # of what it has
    returns = 0.5  # of what has arrived

    async def act(self, asked: Asked) -> Action:
        legal = asked.legal or ("",)
        text = asked.transcript[-1].text
        most = len(legal) - 1
        if told := _OFFERED.search(text):
            # whole numbers: .4 of 10 is no more than 4
            is_enough = int(told[1]) * 100 >= round(self.least * 100) * int(told[2])
            choice = "accept" if is_enough else "refuse"
        elif told := _SENT.search(text):
            # half of an odd number is rounded up
            choice = legal[min(most, int(self.returns * int(told[2]) + 0.5))]
        elif "offer" in text:
            choice = legal[min(most, max(1, round(self.offered * most)))]
        else:
            choice = legal[round(self.sends * most)]
        return chosen(choice)


class Selfish(_Bargainer):
    """Offers the least and accepts anything; sends nothing, and sends nothing back."""

    offered = 0.0
    least = 0.0
    sends = 0.0
    returns = 0.0


class Fair(_Bargainer):
    """Offers half and refuses less than .4; sends half, and sends half of it back."""


class Shrewd(_Bargainer):
    """The best reply to `bargain_fair`: offers .4 and accepts anything; sends all, and sends
    nothing back."""

    offered = 0.4
    least = 0.0
    sends = 1.0
    returns = 0.0
