"""A session: one device open, with everything that is worth keeping between calls.

The persistent backend keeps a session, the one-shot backend opens one per call. All that either
does with Vulkan goes through here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable
from typing import Any

from gpu_executor.call import Call
from gpu_executor.plan import Plan, make_plan
from gpu_executor.settings import Settings
from gpu_executor.telemetry.stages import StageTimes, Totals
from gpu_executor.vulkan.descriptors import DescriptorPools
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.disk_cache import DriverCache
from gpu_executor.vulkan.instance import Instance, choose
from gpu_executor.vulkan.memory import MemoryPool
from gpu_executor.vulkan.pipeline import PipelineCache
from gpu_executor.vulkan.ring import turn
from gpu_executor.vulkan.shelf import Shelf
from gpu_executor.vulkan.slot import Resources, SlotLayout
from gpu_executor.vulkan.stats import Stats
from gpu_executor.vulkan.timeline import Timeline

PLANS_KEPT = 1024


class Session:
    """Opens at once, runs calls from any thread, frees everything at `close()`."""

    def __init__(
        self, settings: Settings, device: str | int | None = None, *, keep: bool = True
    ) -> None:
        """`keep=False` sizes everything for a single call and takes nothing from disk."""
        self.settings = settings
        self._totals = Totals()
        self._plans: dict[Hashable, tuple[Plan, SlotLayout]] = {}
        times = StageTimes()
        with times.stage("setup"), contextlib.ExitStack() as opened:
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
        self._totals.add(times, {})

    def plan(self, call: Call, device_local: bool | None) -> tuple[Plan, SlotLayout]:
        """The plan for a call and the slots it wants; remembered, for the same call comes again."""
        key = (call.signature(), device_local)
        known = self._plans.get(key)
        if known is None:
            operands = call.operands()
            count = max(call.count, 1)
            plan = make_plan(call.kernel, operands, count, self.info, self.settings, device_local)
            known = plan, SlotLayout.of(plan, call.kernel, operands)
            if len(self._plans) >= PLANS_KEPT:
                self._plans.clear()
            self._plans[key] = known
        return known

    def run(self, call: Call, device_local: bool | None) -> Any:
        """Carry out a checked call."""
        if call.count == 0:
            return call.result()
        plan, layout = self.plan(call, device_local)
        times = StageTimes()
        slot = self._shelf.take(layout, times)
        try:
            turn([slot], call, plan, times)
        finally:
            self._shelf.put_back(slot)
            self._count(call, plan, times)
        return call.result()

    def trim(self) -> int:
        """Free what no running call needs: idle slots, empty memory blocks. Returns the bytes."""
        self._shelf.clear()
        return self._memory.trim()

    def stats(self) -> Stats:
        counts = self._totals.counts()
        return Stats(
            device=self.info.name,
            calls=counts["calls"],
            elements=counts["elements"],
            pieces=counts["pieces"],
            calls_by_path={
                path: counts[path] for path in ("host-visible", "device-local") if counts[path]
            },
            seconds_by_stage=self._totals.seconds(),
            pipelines=self._pipelines.stats(),
            disk_cache=self._driver_cache.stats(),
            slots=self._shelf.stats(),
            recordings=counts["recordings"],
            memory=self._memory.stats(),
            descriptors=self._descriptors.stats(),
        )

    def close(self) -> None:
        """Wait for running calls and free everything; a second time does nothing."""
        self._opened.close()

    def _count(self, call: Call, plan: Plan, times: StageTimes) -> None:
        counts = {
            "calls": 1,
            "elements": call.count,
            "pieces": -(-plan.count // plan.chunk),
            "recordings": times.recordings,
            plan.path: 1,
        }
        self._totals.add(times, counts)

    def _save_pipelines(self) -> None:
        if self._pipelines.stats().misses:
            self._driver_cache.save()
