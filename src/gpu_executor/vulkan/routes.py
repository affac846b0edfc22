"""Routes: how calls of one form are run, worked out at the first of them and remembered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from gpu_executor.calibration import Calibration
from gpu_executor.call import AnyArray, Call, Form, check
from gpu_executor.device_array import DeviceArray
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import KernelError
from gpu_executor.forms import REMEMBERED, Forms, kinds
from gpu_executor.kernel import Kernel
from gpu_executor.lru import remember
from gpu_executor.plan import Piece, Plan, Request, Wishes, make_plan, plan_on_card
from gpu_executor.settings import Settings
from gpu_executor.vulkan.recycled import recycles
from gpu_executor.vulkan.ring import Step
from gpu_executor.vulkan.shelf import Row, Shelf
from gpu_executor.vulkan.slot import SlotLayout

LARGE_BYTES = 1 << 20
"""Input of a call that gains by a plan made for the device."""


@dataclass(frozen=True, slots=True)
class Route:
    """All that calls of one form have in common, or the calls of a batch with the largest."""

    form: Form
    plan: Plan
    steps: tuple[Step, ...]
    row: Row
    on_card: bool
    """Whether arrays on the card take part."""
    recycles: bool
    """Whether its results are worth to lie in recycled memory."""


class Routes:
    """Makes routes. They hold as long as the settings do and the device's figures."""

    def __init__(
        self,
        info: DeviceInfo,
        settings: Settings,
        shelf: Shelf,
        measure: Callable[[], None],
    ) -> None:
        """`measure` is called before the first plan that the device's figures matter for."""
        self._info, self._settings, self._shelf = info, settings, shelf
        self._measure = measure
        self._figures: Calibration | None = None
        self.forms = Forms()
        self._single: dict[Hashable, Route] = {}
        self._batches: dict[Hashable, Route] = {}

    @property
    def figures(self) -> Calibration | None:
        """What the device was measured to do; None plans by fixed thresholds."""
        return self._figures

    @figures.setter
    def figures(self, figures: Calibration | None) -> None:
        self._figures = figures
        self._single.clear()
        self._batches.clear()

    def single(
        self,
        kernel: Kernel,
        arrays: Sequence[AnyArray],
        device_local: bool | None,
        *,
        keep: bool,
        profiled: bool,
    ) -> Route:
        """For a call on these arrays; `keep` leaves its results on the card."""
        try:
            key = (id(kernel), device_local, keep, profiled, *kinds(arrays))
        except AttributeError:
            check(kernel, arrays)
            raise
        route = self._single.get(key)
        if route is None:
            form = check(kernel, arrays)
            there = [isinstance(array, DeviceArray) for array in arrays]
            if keep and all(there):
                plan = plan_on_card(form, self._info)
            else:
                request = Request.of(form, 1, Wishes(device_local), recycled=recycles(form))
                plan = self._plan(request)
            on_card = keep or any(there)
            route = self.of(form, plan, on_card=on_card, profiled=profiled)
            remember(self._single, key, route, REMEMBERED)
        return route

    def batch(
        self, calls: Sequence[Call], wishes: Wishes, *, in_place: bool, profiled: bool
    ) -> Route:
        """For a batch of calls, none of them empty: the plan of the largest, for all of them."""
        largest = max([call.form for call in calls], key=_count)
        key = (id(largest), len(calls), wishes, in_place, profiled)
        route = self._batches.get(key)
        if route is None:
            request = Request.of(
                largest, len(calls), wishes, in_place=in_place, recycled=recycles(largest)
            )
            # The route keeps the form, so that its id stays its own.
            route = self.of(largest, self._plan(request), on_card=False, profiled=profiled)
            remember(self._batches, key, route, REMEMBERED)
        return route

    def of(self, form: Form, plan: Plan, *, on_card: bool = False, profiled: bool = False) -> Route:
        """The route for calls of a form by a plan."""
        if not form.kernel.spirv:
            raise KernelError(f"kernel {form.kernel.name!r} has no SPIR-V; it runs on WebGPU")
        layout = SlotLayout.of(plan, form, profiled=profiled)
        row = self._shelf.row(layout)
        return Route(form, plan, steps_of(plan, form), row, on_card, recycles(form))

    def by_plan(self, route: Route, form: Form, plan: Plan) -> Route:
        """A route for calls of that form, else like the one given."""
        profiled = route.row.layout.profiled
        return self.of(form, plan, on_card=route.on_card, profiled=profiled)

    def for_whole(self, route: Route, form: Form) -> Route:
        """For a call of another form among those of a batch of a kernel that is not cut."""
        if form is route.form:
            return route
        count = form.count
        plan = dataclasses.replace(route.plan, count=count, chunk=count, capacity=count)
        return self.by_plan(route, form, plan)

    def _plan(self, request: Request) -> Plan:
        if self._figures is None and (request.jobs > 1 or request.bytes_in >= LARGE_BYTES):
            self._measure()
        return make_plan(request, self._info, self._settings, self._figures)


def steps_of(plan: Plan, form: Form) -> tuple[Step, ...]:
    """A call's pieces, with the work-groups for each."""
    count, chunk = max(form.count, 1), plan.chunk
    if count <= chunk:
        return ((Piece(0, count), plan.groups(count)),)
    pieces = [Piece(start, min(chunk, count - start)) for start in range(0, count, chunk)]
    return tuple((piece, plan.groups(piece.count)) for piece in pieces)


def _count(form: Form) -> int:
    return form.count
