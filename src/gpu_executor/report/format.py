"""How the report writes numbers."""

from __future__ import annotations

import math


def format_time(milliseconds: float) -> str:
    """Three significant digits, in µs, ms or s."""
    for factor, unit in ((1e-3, "s"), (1.0, "ms"), (1e3, "µs")):
        value = milliseconds * factor
        if value >= 1 or unit == "µs":
            return f"{round_digits(value)} {unit}"
    raise AssertionError


def format_rate(per_second: float) -> str:
    """Three significant digits, with an SI prefix."""
    return f"{format_prefixed(per_second)}/s"


def format_bandwidth(bytes_per_second: float) -> str:
    return f"{format_prefixed(bytes_per_second)}B/s"


def format_prefixed(value: float) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{round_digits(value / factor)} {prefix}"
    return f"{round_digits(value)} "


def format_count(count: float) -> str:
    """Multiples of 2^10 and 2^20 as 4 K or 1 M, other counts in full."""
    whole = round(count)
    for factor, suffix in ((1 << 20, " M"), (1 << 10, " K")):
        if whole >= factor and whole % factor == 0:
            return f"{whole // factor}{suffix}"
    return f"{whole:,}"


def format_bytes(count: int) -> str:
    """In GiB or MiB."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if count >= factor:
            return f"{round_digits(count / factor)} {unit}"
    return f"{count:,} bytes"


def format_power(value: float) -> str:
    """A power of two as such."""
    return f"2^{round(math.log2(value))}"


def format_ratio(value: float) -> str:
    return f"{round_digits(value)}x"


def format_range(low: float, high: float) -> str:
    """Two ratios as 1.2x to 3x; one if both read alike."""
    first, last = format_ratio(low), format_ratio(high)
    return first if first == last else f"{first} to {last}"


def round_digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    decimals = 1 if abs(value) >= 9.995 else 2 if abs(value) >= 0.9995 else 3
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".")
