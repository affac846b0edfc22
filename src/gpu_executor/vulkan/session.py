"""A session: one device open, with everything that is worth keeping between calls.

The persistent backend keeps a session, the one-shot backend opens one per call. All that either
does with Vulkan goes through here.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import weakref
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy.typing as npt

from gpu_executor.calibration import Calibration
from gpu_executor.call import AnyArray, Array, Call
from gpu_executor.errors import ClosedError, DeviceLacksError, GpuError, OutOfMemoryError
from gpu_executor.forking import refuse, tell_in_child
from gpu_executor.kernel import Kernel, Shape
from gpu_executor.plan import Plan, Wishes, shrunk
from gpu_executor.settings import Settings
from gpu_executor.telemetry.stages import Record, summed
from gpu_executor.vulkan.calibrate import measure
from gpu_executor.vulkan.copying import Crew
from gpu_executor.vulkan.descriptors import DescriptorPools
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.disk_cache import DriverCache
from gpu_executor.vulkan.in_place import InPlace
from gpu_executor.vulkan.instance import Instance, choose
from gpu_executor.vulkan.kept_figures import keep_figures, read_figures
from gpu_executor.vulkan.mapped import MappedArrays
from gpu_executor.vulkan.memory import MemoryPool
from gpu_executor.vulkan.on_card import CardArrays
from gpu_executor.vulkan.pipeline import PipelineCache
from gpu_executor.vulkan.profile import Profile
from gpu_executor.vulkan.queues import QueueAddress
from gpu_executor.vulkan.recycled import RecycledResults, recycles
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.ring import Ring, turn
from gpu_executor.vulkan.routes import Route, Routes, steps_of
from gpu_executor.vulkan.shelf import Row, Shelf
from gpu_executor.vulkan.slot import Slot
from gpu_executor.vulkan.stats import Stats
from gpu_executor.vulkan.timeline import Timeline

log = logging.getLogger("gpu_executor.vulkan")


class Closeable(Protocol):
    """Something to close."""

    def close(self) -> None: ...


class Session:
    """Opens at once, runs calls from any thread, frees everything at `close()`."""

    def __init__(
        self, settings: Settings, device: str | int | None = None, *, keep: bool = True
    ) -> None:
        """`keep=False` sizes everything for a single call and takes nothing from disk."""
        self.settings = settings
        self.closed = self.forked = False  # forked: in a child, which it is not for
        self.streams: weakref.WeakSet[Closeable] = weakref.WeakSet()
        """Streams that may hold slots while nobody works on them."""
        self.profile: Profile | None = None
        self._profiling = threading.Lock()
        self._own = Record()
        with self._own.stage("setup"), contextlib.ExitStack() as opened:
            self.instance = Instance(validation=settings.validation)
            with contextlib.ExitStack() as alone:
                alone.callback(self.instance.close)
                wanted = settings.device if device is None else device
                handle, self.info = choose(self.instance.devices(), wanted)
                self._device = Device(handle, self.info, self.instance.close)
                alone.pop_all()  # from here on the instance goes with the device
            opened.callback(self._device.close)
            self._driver_cache = DriverCache(self._device, settings.cache_dir if keep else None)
            opened.callback(self._driver_cache.close)
            self._pipelines = PipelineCache(self._device, self._driver_cache.handle)
            opened.callback(self._pipelines.close)
            self._memory = MemoryPool(
                self._device, limit=settings.memory_limit, exact_blocks=not keep
            )
            opened.callback(self._memory.close)
            self.mapped = MappedArrays(self._memory)
            self._descriptors = DescriptorPools(self._device)
            opened.callback(self._descriptors.close)
            self.resources = self._make_resources(opened)
            self._recycled = RecycledResults(self._memory, self.mapped, self.info)
            opened.callback(self._recycled.clear)
            self.cards = CardArrays(self.resources, self.mapped, self._recycled)
            opened.callback(self.cards.close)
            self._memory.reclaim = self._let_go
            self._in_place = InPlace(self.info, self.mapped, self.cards, self._recycled)
            self._shelf = Shelf(self.resources)
            self.routes = Routes(self.info, settings, self._shelf, self._measure_first)
            self._kept = settings.cache_dir if keep and settings.calibrate else None
            """Where the device's figures are kept; None uses none that nobody asked for."""
            self._measuring = threading.Lock()
            if self._kept is not None:
                self._use_figures(read_figures(self._kept, self.info))
            opened.callback(self._save_pipelines)
            opened.callback(self._shelf.close)
            self._opened = opened.pop_all()
        tell_in_child(self._leave_to_parent)

    def route(
        self,
        kernel: Kernel,
        arrays: Sequence[AnyArray],
        device_local: bool | None,
        *,
        keep: bool = False,
    ) -> Route:
        """How a call on these arrays is run."""
        if self.closed:
            self.check_open()
        profiled = self.profile is not None
        return self.routes.single(kernel, arrays, device_local, keep=keep, profiled=profiled)

    def batch_route(self, calls: Sequence[Call], wishes: Wishes) -> Route:
        """How a batch of calls is run, none of them empty."""
        in_place = self.mapped.any and all(map(self._in_place.find, calls[0].inputs))
        profiled = self.profile is not None
        return self.routes.batch(calls, wishes, in_place=in_place, profiled=profiled)

    def explain(
        self, kernel: Kernel, arrays: Sequence[AnyArray], device_local: bool | None
    ) -> Plan:
        """The plan that `run` follows for these arrays."""
        route = self.route(kernel, arrays, device_local)
        if route.plan.slots > 1:
            route = self.batch_route([route.form.call(arrays)], Wishes(device_local))
        return route.plan

    def check_open(self) -> None:
        """Raise `ClosedError` where the session is closed, or another process's."""
        if self.forked:
            refuse()
        if self.closed:
            raise ClosedError("the backend is closed; open another one")

    def empty(self, shape: int | Shape, dtype: npt.DTypeLike) -> Array:
        """An array in mapped memory; idle slots are given up for it where memory is short."""
        self.check_open()
        with contextlib.suppress(OutOfMemoryError):
            return self.mapped.empty(shape, dtype)
        self.trim()
        return self.mapped.empty(shape, dtype)

    def run(
        self,
        kernel: Kernel,
        arrays: Sequence[AnyArray],
        device_local: bool | None,
        out: Any = None,
        *,
        keep: bool = False,
    ) -> Any:
        """Check, plan and carry out a call: into `out`, new arrays, or (keep) ones on the card."""
        route = self.route(kernel, arrays, device_local, keep=keep)
        form = route.form
        call = form.call(arrays)
        if keep:
            call.keep_outputs([self.cards.empty(shape, dtype) for shape, dtype in form.results])
        elif out is not None:
            call.use_outputs(out)
        if form.count == 0:
            call.make_outputs()
            return call.result()
        if route.plan.slots > 1:
            route = self.batch_route([call], Wishes(device_local))
            for _ in self.run_jobs([call], route):
                pass
            return call.result()
        recycled = self._in_place.recycle(call) if route.recycles else ()
        if self.mapped.any or route.on_card:
            call.places = self._in_place.places(call, route.plan, recycled)
        try:
            slot = self._shelf.take(route.row)
        except OutOfMemoryError:
            for _ in self.run_jobs([call], route):  # which makes do with less
                pass
            return call.result()
        slot.profile = self.profile
        try:
            turn(slot, call, route.steps)
            slot.record.calls += 1
            slot.record.elements += form.count
        finally:
            self._shelf.put_back(route.row, slot)
        return call.result()

    def run_jobs(self, calls: Sequence[Call], route: Route) -> Iterator[Call]:
        """Carry out the calls of a batch in order, yielding each when it is done."""
        if route.form.kernel.split == "elements":
            yield from self.run_stream(calls, route)
            return
        # Slots of a kernel that is not cut fit calls of one form only.
        for form, alike in itertools.groupby(calls, key=lambda call: call.form):
            yield from self.run_stream(alike, self.routes.for_whole(route, form))

    def run_stream(self, calls: Iterable[Call], route: Route) -> Generator[Call, None, None]:
        """The same for calls that come one by one, none with larger pieces than the route's."""
        route, slots = self._take_slots(route)
        form, plan = route.form, route.plan
        try:
            ring = Ring(slots, self.resources.crew)
            try:
                for call in calls:
                    steps = route.steps if call.form is form else steps_of(plan, call.form)
                    recycled = self._in_place.recycle(call) if recycles(call.form) else ()
                    if self.mapped.any or call.touches_card():
                        call.places = self._in_place.places(call, plan, recycled)
                    slots[0].record.calls += 1
                    slots[0].record.elements += call.form.count
                    yield from ring.feed(call, steps)
                yield from ring.flush()
            except BaseException:
                if not self.forked:
                    ring.abandon()
                raise
        finally:
            # Backwards, so that they are taken in the same order again and find their recordings.
            for slot in reversed(() if self.forked else slots):
                self._shelf.put_back(route.row, slot)

    def _take_slots(self, route: Route) -> tuple[Route, list[Slot]]:
        """As many slots as the plan says, or as there is memory for, smaller ones if need be.

        A kernel that is not cut by elements needs all of its first slot.
        """
        while True:
            try:
                slots = [self._shelf.take(route.row)]
                break
            except OutOfMemoryError:
                whole = route.form.kernel.split == "whole"
                smaller = None if whole else shrunk(route.plan)
                if smaller is None:
                    raise
                route = self.routes.by_plan(route, route.form, smaller)
                self._own.shrunk += 1
        row, wanted = route.row, route.plan.slots
        try:
            while len(slots) < wanted and self._leaves_room(row, len(slots) + 1):
                slot = self._shelf.take_another(row)
                if slot is None:
                    break
                slots.append(slot)
        except BaseException:
            for slot in slots:
                self._shelf.put_back(row, slot)
            raise
        if len(slots) < wanted:
            self._own.shrunk += 1
        for slot in slots:
            slot.profile = self.profile
        return route, slots

    def _leaves_room(self, row: Row, slots: int) -> bool:
        """Whether so many slots leave half of the memory: others come while a stream is held."""
        limit, layout = self.settings.memory_limit, row.layout
        if limit is None:
            return True
        copies = 2 if layout.path == "device-local" else 1
        return 2 * slots * copies * sum(operand.nbytes for operand in layout.operands) <= limit

    def calibrate(self) -> Calibration:
        """Measure the device, keep the figures and plan by them from now on."""
        with self._measuring:
            figures = measure(self.resources, self.mapped, self.cards, self.info)
        if self.settings.cache_dir is not None:
            keep_figures(self.settings.cache_dir, self.info, figures)
        self._use_figures(figures)
        return figures

    def _measure_first(self) -> None:
        """The same when the first plan is made that they matter for, if nobody is disturbed."""
        if self._kept is None or not self._measuring.acquire(blocking=False):
            return
        try:
            before = self._shelf.stats()
            if before.in_use or self.routes.figures is not None:
                return
            figures = measure(self.resources, self.mapped, self.cards, self.info)
            if self._shelf.stats() == before:  # else calls came meanwhile: the next time, then
                keep_figures(self._kept, self.info, figures)
                self._use_figures(figures)
        except OutOfMemoryError as error:
            self._kept = None
            log.warning("plans go without the device's figures: %s", error)
        finally:
            self._measuring.release()

    def _use_figures(self, figures: Calibration | None) -> None:
        self.routes.figures = figures
        if figures is not None:
            crew = self.resources.crew
            crew.threads = min(crew.most, figures.best_threads())

    def start_profile(self) -> Profile:
        """From now on, calls write down what they do, until the profile's `with` ends."""
        if "hostQueryReset" not in self.info.features:
            raise DeviceLacksError(f"{self.info.name} cannot be profiled: it lacks hostQueryReset")
        profile = Profile(self._device, lambda: self._end_profile(itself))
        itself = weakref.ref(profile)  # so that it does not keep itself, and all its spans
        with self._profiling:
            if self.profile is not None:
                raise GpuError(
                    f"{self.info.name} is being profiled already: end that profile first"
                )
            self.profile = profile
        return profile

    def _end_profile(self, profile: weakref.ref[Profile]) -> None:
        if self.profile is profile():  # else it has ended before, and this is another one's
            self.profile = None

    def trim(self) -> int:
        """Free what no running call needs: idle slots, empty memory blocks. Returns the bytes."""
        self._shelf.clear()
        self._let_go()
        return self._memory.trim()

    def _let_go(self) -> None:
        """Of memory that is kept, and that nobody uses."""
        self.cards.let_go_of_done()
        self._recycled.clear()

    def stats(self) -> Stats:
        self.cards.let_go_of_done()
        by_path: defaultdict[str, int] = defaultdict(int)
        records = self._shelf.records()
        for path, record in records:
            by_path[path] += record.calls
        total = summed([self._own, *(record for _, record in records)])
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
            shrunk=total.shrunk,
            memory=self._memory.stats(),
            descriptors=self._descriptors.stats(),
        )

    def close(self) -> None:
        """Wait for running calls and free everything; a second time does nothing."""
        self.closed = True
        if self.forked:
            return
        for stream in list(self.streams):
            # One that runs in another thread cannot be closed from here; it ends by itself.
            with contextlib.suppress(ValueError):
                stream.close()
        with self._measuring:
            self._opened.close()

    def _leave_to_parent(self) -> None:
        self.closed = self.forked = True

    def _make_resources(self, opened: contextlib.ExitStack) -> Resources:
        device, queues = self._device, self._device.queues

        def timeline(address: QueueAddress) -> Timeline:
            made = Timeline(device, address)
            opened.callback(made.close)
            return made

        compute = timeline(queues.compute)
        side_by_side = tuple(
            compute if address == queues.compute else timeline(address)
            for address in queues.side_by_side
        )
        upload = None if queues.upload is None else timeline(queues.upload)
        download = upload
        if queues.download is not None and queues.download != queues.upload:
            download = timeline(queues.download)
        crew = Crew()
        opened.callback(crew.close)
        return Resources(
            device,
            self._memory,
            self._pipelines,
            self._descriptors,
            compute,
            side_by_side,
            upload,
            download,
            crew,
        )

    def _save_pipelines(self) -> None:
        if self._pipelines.stats().misses:
            self._driver_cache.save()
