"""Numbers as tables, pages and lines print them."""

from __future__ import annotations

# three decimals tell something of numbers between
LEAST = 0.01
MOST = 1e9


def decimal(value: float | None, *beside: float | None, plus: bool = False) -> str:
    """A number with three decimals; where it and all that stand `beside` it are too small or too
    large for that, with three significant digits. "n/a" for None.

    >>> decimal(0.5), decimal(0.0), decimal(-2), decimal(0.25, plus=True)
    ('0.500', '0.000', '-2.000', '+0.250')
    >>> decimal(1.234e-6), decimal(0.00125), decimal(0.00125, 0.5), decimal(2e300)
    ('1.23e-06', '0.00125', '0.001', '2e+300')
    """
    if value is None:
        return "n/a"
    largest = max(abs(number) for number in (value, *beside) if number is not None)
    form = "f" if largest == 0 or LEAST <= largest < MOST else "g"
    return f"{value:+.3{form}}" if plus else f"{value:.3{form}}"
