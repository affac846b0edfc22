"""A session: one device open, with everything that is worth keeping between calls.

The persistent backend keeps a session, the one-shot backend opens one per call. All that either
does with Vulkan goes through here.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_executor.call import Array, Form, check
from gpu_executor.errors import ClosedError
from gpu_executor.kernel import Kernel
from gpu_executor.plan import Plan, make_plan
from gpu_executor.settings import Settings
from gpu_executor.telemetry.stages import Record, summed
from gpu_executor.vulkan.descriptors import DescriptorPools
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.disk_cache import DriverCache
from gpu_executor.vulkan.instance import Instance, choose
from gpu_executor.vulkan.memory import MemoryPool
from gpu_executor.vulkan.pipeline import PipelineCache
from gpu_executor.vulkan.ring import Step, turn
from gpu_executor.vulkan.shelf import Row, Shelf
from gpu_executor.vulkan.slot import Resources, SlotLayout
from gpu_executor.vulkan.stats import Stats
from gpu_executor.vulkan.timeline import Timeline

ROUTES_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Route:
    """Everything about a call that is the same the next time: remembered, not decided again."""

    form: Form
    plan: Plan
    steps: tuple[Step, ...]
    row: Row


class Session:
    """Opens at once, runs calls from any thread, frees everything at `close()`."""

    def __init__(
        self, settings: Settings, device: str | int | None = None, *, keep: bool = True
    ) -> None:
        """`keep=False` sizes everything for a single call and takes nothing from disk."""
        self.settings = settings
        self._closed = False
        self._opening = Record()
        self._routes: dict[Hashable, Route] = {}
        with self._opening.stage("setup"), contextlib.ExitStack() as opened:
            self.instance = Instance(validation=settings.validation)
            opened.callback(self.instance.close)
            wanted = settings.device if device is None else device
            handle, self.info = choose(self.instance.devices(), wanted)
            self._device = Device(handle, self.info)
            opened.callback(self._device.close)
            self._driver_cache = DriverCache(self._device, settings.cache_dir if keep else None)
            opened.callback(self._driver_cache.close)
            self._pipelines = PipelineCache(self._device, self._driver_cache.handle)
            opened.callback(self._pipelines.close)
            self._memory = MemoryPool(
                self._device, limit=settings.memory_limit, exact_blocks=not keep
            )
            opened.callback(self._memory.close)
            self._descriptors = DescriptorPools(self._device)
            opened.callback(self._descriptors.close)
            timeline = Timeline(self._device)
            opened.callback(timeline.close)
            self.resources = Resources(
                self._device, self._memory, self._pipelines, self._descriptors, timeline
            )
            self._shelf = Shelf(self.resources)
            opened.callback(self._save_pipelines)
            opened.callback(self._shelf.close)
            self._opened = opened.pop_all()

    def route(self, kernel: Kernel, arrays: Sequence[Array], device_local: bool | None) -> Route:
        """How a call of that form is run; made at its first call, remembered for the next."""
        if self._closed:
            raise ClosedError("the backend is closed; open another one")
        try:
            forms = [(type(array), array.dtype, array.shape) for array in arrays]
        except AttributeError:
            check(kernel, arrays)  # something among them is no array: the check says so
            raise
        key = (id(kernel), device_local, *forms)
        route = self._routes.get(key)
        if route is None:
            route = self._make_route(check(kernel, arrays), device_local)
            if len(self._routes) >= ROUTES_KEPT:
                self._routes.clear()
            self._routes[key] = route
        return route

    def run(self, kernel: Kernel, arrays: Sequence[Array], device_local: bool | None) -> Any:
        """Check a call, plan it, carry it out."""
        route = self.route(kernel, arrays, device_local)
        call = route.form.call(arrays)
        if route.form.count == 0:
            call.make_outputs()
            return call.result()
        slot = self._shelf.take(route.row)
        try:
            turn((slot,), call, route.steps)
            slot.record.calls += 1
            slot.record.elements += route.form.count
        finally:
            self._shelf.put_back(route.row, slot)
        return call.result()

    def trim(self) -> int:
        """Free what no running call needs: idle slots, empty memory blocks. Returns the bytes."""
        self._shelf.clear()
        return self._memory.trim()

    def stats(self) -> Stats:
        by_path: defaultdict[str, int] = defaultdict(int)
        records = self._shelf.records()
        for path, record in records:
            by_path[path] += record.calls
        total = summed([self._opening, *(record for _, record in records)])
        return Stats(
            device=self.info.name,
            calls=total.calls,
            elements=total.elements,
            pieces=total.pieces,
            calls_by_path=dict(sorted(by_path.items())),
            seconds_by_stage=total.seconds(),
            pipelines=self._pipelines.stats(),
            disk_cache=self._driver_cache.stats(),
            slots=self._shelf.stats(),
            recordings=total.recordings,
            memory=self._memory.stats(),
            descriptors=self._descriptors.stats(),
        )

    def close(self) -> None:
        """Wait for running calls and free everything; a second time does nothing."""
        self._closed = True
        self._opened.close()

    def _make_route(self, form: Form, device_local: bool | None) -> Route:
        kernel, operands = form.kernel, form.operands
        count = max(form.count, 1)
        plan = make_plan(kernel, operands, count, self.info, self.settings, device_local)
        steps = tuple((piece, plan.groups(piece.count)) for piece in plan.pieces())
        row = self._shelf.row(SlotLayout.of(plan, kernel, operands))
        return Route(form, plan, steps, row)

    def _save_pipelines(self) -> None:
        if self._pipelines.stats().misses:
            self._driver_cache.save()
