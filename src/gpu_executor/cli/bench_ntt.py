"""What `gpu-executor bench ntt` prints: tables, and what their columns are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_executor.bench.transform_peers import Duel
from gpu_executor.bench.transforms import Row, growth
from gpu_executor.cli.screen import milliseconds, table


def transforms(rows: Sequence[Row]) -> Any:
    """Every size of one field."""
    made = table(
        f"Number-theoretic transforms in {rows[0].field}",
        *("size", "to reversed\norder", "to natural\norder"),
        *("back from\nreversed", "back from\nnatural", "NumPy to\nNumPy", "growth"),
    )
    for row, grown in zip(rows, growth(rows), strict=True):
        made.add_row(
            f"2^{row.log_n}" if row.rows == 1 else f"{row.rows} x 2^{row.log_n}",
            milliseconds(row.to_reversed_ms),
            milliseconds(row.to_natural_ms),
            milliseconds(row.back_from_reversed_ms),
            milliseconds(row.back_from_natural_ms),
            milliseconds(row.numpy_ms),
            f"{grown:.2f}",
        )
    return made


LEGEND = (
    "On the card from natural to bit-reversed or natural order, and the inverse back from such to "
    "natural order: recorded once, submitted again and again and not waited for. NumPy to NumPy: "
    "from words in the host's memory to words there, in natural order, each waited for. growth: "
    "the time to natural order over n log2 n, relative to that of the largest. All inverses gave "
    "what went in, and one value of each size was checked against the polynomial there.\n"
)


def duels(found: Sequence[Duel]) -> Any:
    """The same work by packages."""
    made = table(
        "The same work by packages on the CPU, array to array",
        *("package", "what", "theirs", "ours", "faster"),
    )
    for each in found:
        made.add_row(
            each.package,
            each.what,
            milliseconds(each.theirs_ms),
            milliseconds(each.ours_ms),
            f"{each.faster:.2f}x",
        )
    return made
