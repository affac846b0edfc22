"""Draws the calls of a random kernel: sizes, values, memory, `out=` and forms of parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

from tests.support.random_kernels.description import Call, Description
from tests.support.random_kernels.draw import draw_value
from tests.support.random_kernels.memory import (
    DEVICE_LAYOUTS,
    HOST_LAYOUTS,
    HOST_OUTS,
    WRITABLE,
    list_outputs,
    list_passed,
)
from tests.support.random_kernels.parameters import find_filled, has_same_names
from tests.support.random_kernels.sizes import (
    EXTENTS,
    LARGE_SIZE,
    SIZES,
    count_first,
    get_leading,
    get_shape,
)

CALLS = 6
"""The calls of each kernel in the tests."""


def list_calls(kernel: Description, count: int = CALLS) -> list[Call]:
    """The first calls of a kernel: always the same ones."""
    return list(islice(draw_calls(Random(f"calls of {kernel.name}"), kernel), count))


def draw_calls(random: Random, kernel: Description) -> Iterator[Call]:
    """Draw calls without end."""
    drawer, number = _CallDrawer(random, kernel), 0
    extent, axes, own = drawer.draw_sizes(number)
    while True:
        yield drawer.draw_call(
            Call(extent, axes, own, random.randint(1, 1 << 30), (), number=number)
        )
        if random.random() < 0.5:  # otherwise the same sizes with other values
            extent, axes, own = drawer.draw_sizes(number + 1)
        number += 1


class _CallDrawer:
    """Draws calls of one kernel."""

    def __init__(self, random: Random, kernel: Description) -> None:
        self._random, self._kernel = random, kernel
        self._passed, self._outputs = list_passed(kernel), list_outputs(kernel)
        self._has_inout = any(each.role == "inout" for each in kernel.buffers)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _pick(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    # --- sizes ---

    def draw_sizes(self, number: int) -> tuple[Any, Any, Any]:
        """The extent of the domain, the axes of arrays of that size, and other lengths."""
        kernel = self._kernel
        extent, axes = self._draw_domain(number)
        own = tuple(self._random.randint(1, 40) for _ in kernel.buffers)
        if kernel.out_shape == "outer":
            lengths = [number for number, each in enumerate(kernel.buffers) if each.role == "in"]
            axes = tuple(self._pick(1, 2, 5, 8, 13, 17) for _ in range(2))
            if kernel.rank > 1 and any(each[0] >= 20 for each in kernel.constants):
                axes = extent[::-1]
            own = tuple(axes[lengths.index(n)] if n in lengths else 0 for n in range(3))
            extent = axes[::-1] if kernel.rank > 1 else (math.prod(axes),)
        return extent, axes, own

    def _draw_domain(self, number: int) -> tuple[Any, Any]:
        kernel = self._kernel
        if kernel.rank > 1:
            fixed = {each[0] - 20: each[3] for each in kernel.constants if each[0] >= 20}
            extent = tuple(
                fixed.get(axis) or self._pick(*EXTENTS[kernel.rank]) for axis in range(kernel.rank)
            )
            return extent, extent[::-1]
        if kernel.split == "elements" and number == 0 and self._chance(0.4):
            return (0,), self._pick((0,), (3, 0), (0, 2))
        size = self._pick(*SIZES)
        if self._chance(0.02) and kernel.grid != "tuple" and not kernel.loop:
            size = LARGE_SIZE
        axes: tuple[int, ...] = (size,)
        divisors = [each for each in range(1, size + 1) if size % each == 0]
        if self._chance(0.3):
            divisor = self._pick(*divisors)
            axes = (divisor, size // divisor)
            if self._chance(0.3):
                axes = (1, *axes)
        return (size,), axes

    # --- the rest of a call ---

    def draw_call(self, call: Call) -> Call:
        """A call of these sizes."""
        call = self._draw_params(call)
        call = replace(call, layouts=self._draw_layouts(call), typed=self._chance(0.3))
        mode = self._pick("", "", "", "host", "host", "device", "alias", "alias", "alias")
        structs = any(self._kernel.buffers[number].members for number in self._outputs)
        on_device = not structs and (mode == "device" or (mode == "alias" and self._chance(0.4)))
        if mode == "alias":
            call = self._make_writable(call, on_device)
        outs = self._draw_outs(call, mode, on_device)
        if outs and self._has_inout:  # an array that is written is passed once
            plain = tuple("plain" if each.startswith("as ") else each for each in call.layouts)
            call = replace(call, layouts=plain)
        return replace(call, outs=outs, keep=not outs and self._chance(0.15))

    def _draw_params(self, call: Call) -> Call:
        kernel = self._kernel
        values: list[Any] = [
            None
            if each.meaning != "value" or (each.default is not None and self._chance(0.5))
            else draw_value(self._random, each, small=kernel.small, signed=kernel.signed)
            for each in kernel.params
        ]
        by_position, filled = self._chance(0.3), find_filled(kernel)
        by_name = not by_position and not kernel.optimize
        if filled is not None and by_name and kernel.split == "whole" and self._chance(0.15):
            most = count_first(kernel, call)
            values[filled] = self._pick(0, most // 2, most)
        if by_name:  # a name has one value
            first = {each.name: number for number, each in reversed([*enumerate(kernel.params)])}
            values = [values[first[each.name]] for each in kernel.params]
        required = [
            number
            for number, each in enumerate(kernel.params)
            if number != filled and each.default is None
        ]
        omitted = None
        if required and self._chance(0.04) and not has_same_names(kernel):
            omitted = self._pick(*required)
        return replace(call, values=tuple(values), by_position=by_position, omitted=omitted)

    def _draw_layouts(self, call: Call) -> tuple[str, ...]:
        common = self._pick(*HOST_LAYOUTS, *DEVICE_LAYOUTS, *DEVICE_LAYOUTS)
        layouts: list[str] = []
        for number, buffer in enumerate(self._passed):
            layout = self._pick(common, common, common, *HOST_LAYOUTS, *DEVICE_LAYOUTS)
            if self._kernel.buffers[buffer].members and layout in DEVICE_LAYOUTS:
                layout = self._pick("plain", "mapped", "part", "imported")
            twins = [
                other
                for other in range(number)
                if self._is_like(call, buffer, self._passed[other])
                and not layouts[other].startswith("as ")
            ]
            if twins and self._chance(0.1):
                layout = f"as {self._pick(*twins)}"
            layouts.append(layout)
        return tuple(layouts)

    def _is_like(self, call: Call, one: int, other: int) -> bool:
        """Whether two buffers have arrays of one shape and dtype."""
        shapes = [get_shape(self._kernel, each, call) for each in (one, other)]
        dtypes = [self._kernel.buffers[each].dtype for each in (one, other)]
        return shapes[0] == shapes[1] and dtypes[0] == dtypes[1]

    def _make_writable(self, call: Call, on_device: bool) -> Call:
        """The call with layouts in which inputs can be results."""
        kinds = DEVICE_LAYOUTS if on_device else [e for e in WRITABLE if e not in DEVICE_LAYOUTS]
        layouts = tuple(
            layout
            if layout.startswith("as ")
            or self._chance(0.2)
            or (on_device and self._kernel.buffers[number].members)
            else self._pick(*kinds)
            for layout, number in zip(call.layouts, self._passed, strict=True)
        )
        return replace(call, layouts=layouts)

    def _have_same_elements(self, one: int, other: int) -> bool:
        buffers = self._kernel.buffers
        return buffers[one].trailing == buffers[other].trailing

    def _draw_outs(self, call: Call, mode: str, on_device: bool) -> tuple[str, ...]:
        if not mode:
            return ()
        taken: set[str] = set()
        outs = []
        for number in self._outputs:
            kind = self._draw_alias(call, number, on_device, taken) if mode == "alias" else ""
            outs.append(kind or self._draw_out(call, number, on_device))
            taken.add(kind.rpartition(" ")[2])
        return tuple(outs)

    def _draw_out(self, call: Call, number: int, on_device: bool) -> str:
        if self._kernel.buffers[number].role == "inout":
            layout = call.layouts[self._passed.index(number)]
            if self._is_writable(call, number, layout, on_device) and self._chance(0.5):
                return "same"
        if on_device:
            return str(self._pick(*DEVICE_LAYOUTS))
        flat = len(get_leading(self._kernel, number, call)) == 1
        return str(self._pick(*HOST_OUTS, "strided" if flat else "given"))

    def _draw_alias(self, call: Call, number: int, on_device: bool, taken: set[str]) -> str:
        """A result that is an input; in a kernel with in-out arguments it is refused."""
        if self._has_inout and not self._chance(0.1):
            return ""
        fitting = [
            passed
            for passed, buffer in enumerate(self._passed)
            if str(passed) not in taken
            and self._kernel.buffers[buffer].role == "in"
            and self._is_like(call, number, buffer)
            and self._is_writable(call, number, call.layouts[passed], on_device)
            and (not self._kernel.in_place or self._have_same_elements(number, buffer))
        ]
        if not fitting or self._chance(0.2):
            return ""
        passed = self._pick(*fitting)
        is_part = call.layouts[passed].endswith("part")
        if is_part and get_shape(self._kernel, number, call)[0] > 1 and self._chance(0.1):
            return f"overlap {passed}"
        return f"{self._pick('input', 'input', 'view')} {passed}"

    def _is_writable(self, call: Call, number: int, layout: str, on_device: bool) -> bool:
        """Whether a passed array of that layout can be the result of a buffer."""
        one_axis = len(get_leading(self._kernel, number, call)) == 1
        return (
            layout in WRITABLE
            and (layout in DEVICE_LAYOUTS) == on_device
            and (one_axis or layout not in ("strided", "reversed"))
        )
