"""What `gpu-executor bench fields` prints: tables, and what their columns are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_executor.bench.fields import Row
from gpu_executor.bench.product_peers import Products
from gpu_executor.cli.screen import elements, milliseconds, per_second, table


def rates(rows: Sequence[Row]) -> Any:
    """Operations a second, with memory between them and without."""
    made = table(
        f"Operations a second, {elements(rows[0].elements)} elements at once",
        *("field", "bits", "products", "squares", "additions"),
        *("products\nin chains", "squares\nin chains"),
    )
    for row in rows:
        in_chains = row.products_in_chains
        made.add_row(
            row.field,
            str(row.bits),
            per_second(row.products.per_second),
            per_second(row.squares.per_second),
            per_second(row.additions.per_second),
            "-" if in_chains is None else per_second(in_chains),
            per_second(row.squares_in_chains),
        )
    return made


def memory(rows: Sequence[Row]) -> Any:
    """What streamed operations move, beside the device's own copies."""
    made = table(
        "Streamed, in GB/s read and written, and as a share of the copy",
        *("field", "products", "share", "squares", "share", "additions", "share", "copy"),
    )
    for row in rows:
        cells = []
        for each in (row.products, row.squares, row.additions):
            cells += [_gigabytes(each.bytes_per_second), f"{each.of_copy:.2f}"]
        made.add_row(row.field, *cells, _gigabytes(row.copy_bytes_per_second))
    return made


def whole_arrays(rows: Sequence[Row]) -> Any:
    """Operations on all elements of an array together."""
    made = table(
        f"Sums over {elements(rows[0].elements)} elements, and inverses",
        *("field", "sum", "dot product", f"{elements(rows[0].inverted)} inverses"),
    )
    for row in rows:
        made.add_row(
            row.field,
            per_second(row.sums_per_second),
            per_second(row.dots_per_second),
            milliseconds(row.inversion_ms),
        )
    return made


LEGEND = (
    "Products, squares and additions stream from the device's memory to it. In chains, each works "
    "on the outcome of the one before, without memory between them: squares by raising to the "
    "power 2^n, products by a kernel for primes that leave the highest bit of their words free. "
    "In fields of one word (31 and 64 bits) a square is a product. copy: an array of the same "
    "size, copied by a kernel; where the share is near 1, memory is the limit. All results were "
    "checked against exact integers, a sample of each.\n"
)


def products(compared: Products) -> Any:
    """Those of packages beside ours."""
    made = table(
        f"{elements(compared.count)} products in bls12_381_fr, array to array",
        *("by", "of", "took", "products", "time over\nthe first"),
    )
    for way in compared.ways:
        made.add_row(
            way.name,
            way.kind,
            milliseconds(way.milliseconds),
            per_second(way.per_second),
            f"{way.slower:.2f}x",
        )
    return made


def _gigabytes(rate: float) -> str:
    value = rate / 1e9
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}"
