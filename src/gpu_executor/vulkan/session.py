"""A session: one device open, with everything that is worth keeping between calls.

The persistent backend keeps a session, the one-shot backend opens one per call. All that either
does with Vulkan goes through here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import weakref
from collections import defaultdict
from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from gpu_executor.call import AnyArray, Array, Call, Form, Operand, check
from gpu_executor.device_array import DeviceArray
from gpu_executor.errors import (
    ClosedError,
    DeviceLacksError,
    OutOfMemoryError,
)
from gpu_executor.kernel import Kernel, Shape
from gpu_executor.plan import Piece, Plan, Wishes, make_plan, plan_batch, plan_on_card, shrunk
from gpu_executor.settings import Settings
from gpu_executor.telemetry.stages import Record, summed
from gpu_executor.vulkan.copying import Crew
from gpu_executor.vulkan.descriptors import DescriptorPools
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.disk_cache import DriverCache
from gpu_executor.vulkan.in_place import InPlace, recycles
from gpu_executor.vulkan.instance import Instance, choose
from gpu_executor.vulkan.mapped import MappedArrays
from gpu_executor.vulkan.memory import MemoryPool
from gpu_executor.vulkan.on_card import CardArrays
from gpu_executor.vulkan.pipeline import PipelineCache
from gpu_executor.vulkan.profile import Profile
from gpu_executor.vulkan.queues import QueueAddress
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.ring import Ring, Step, turn
from gpu_executor.vulkan.shelf import Row, Shelf
from gpu_executor.vulkan.slot import Slot, SlotLayout
from gpu_executor.vulkan.stats import Stats
from gpu_executor.vulkan.timeline import Timeline

REMEMBERED = 1024


class Closeable(Protocol):
    """Something to close."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Route:
    """Everything about a call that is the same the next time: remembered, not decided again."""

    form: Form
    plan: Plan
    steps: tuple[Step, ...]
    row: Row
    on_card: bool
    """Whether arrays on the card take part."""
    recycles: bool
    """Whether its results are worth to lie in recycled memory."""


class Session:
    """Opens at once, runs calls from any thread, frees everything at `close()`."""

    def __init__(
        self, settings: Settings, device: str | int | None = None, *, keep: bool = True
    ) -> None:
        """`keep=False` sizes everything for a single call and takes nothing from disk."""
        self.settings = settings
        self.closed = False
        self.streams: weakref.WeakSet[Closeable] = weakref.WeakSet()
        """Streams that may hold slots while nobody works on them."""
        self.profile: Profile | None = None
        self._own = Record()
        self._routes: dict[Hashable, Route] = {}
        self._forms: dict[Hashable, Form] = {}
        self._batch_plans: dict[Hashable, tuple[Form, Plan]] = {}
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
            self.cards = CardArrays(self.resources, self.mapped)
            opened.callback(self.cards.close)
            self._in_place = InPlace(self.info, self._memory, self.mapped, self.cards)
            self._shelf = Shelf(self.resources)
            opened.callback(self._save_pipelines)
            opened.callback(self._shelf.close)
            self._opened = opened.pop_all()

    def route(
        self,
        kernel: Kernel,
        arrays: Sequence[AnyArray],
        device_local: bool | None,
        *,
        keep: bool = False,
    ) -> Route:
        """How a call of that form is run; made at its first call, remembered for the next."""
        self.check_open()
        try:
            profiled = self.profile is not None
            key = (id(kernel), device_local, keep, profiled, *_kinds(arrays))
        except AttributeError:
            check(kernel, arrays)  # something among them is no array: the check says so
            raise
        route = self._routes.get(key)
        if route is None:
            on_card = keep or any(isinstance(array, DeviceArray) for array in arrays)
            all_there = keep and all(isinstance(array, DeviceArray) for array in arrays)
            form = check(kernel, arrays)
            route = self._make_route(form, device_local, on_card=on_card, all_there=all_there)
            self._remember(self._routes, key, route)
        return route

    def form(self, kernel: Kernel, arrays: Sequence[AnyArray]) -> Form:
        """The form of a call, checked at its first call, remembered for the next."""
        try:
            key = (id(kernel), *_kinds(arrays))
        except AttributeError:
            return check(kernel, arrays)
        form = self._forms.get(key)
        if form is None:
            form = check(kernel, arrays)
            self._remember(self._forms, key, form)
        return form

    def check_open(self) -> None:
        """Raise `ClosedError` where the session is closed."""
        if self.closed:
            raise ClosedError("the backend is closed; open another one")

    def empty(self, shape: int | Shape, dtype: npt.DTypeLike) -> Array:
        """An array in mapped memory; idle slots are given up for it where memory is short."""
        self.check_open()
        try:
            return self.mapped.empty(shape, dtype)
        except OutOfMemoryError:
            self.trim()
            return self.mapped.empty(shape, dtype)

    def batch_plan(self, calls: Sequence[Call], wishes: Wishes) -> Plan:
        """The plan for a batch of calls, none of them empty; remembered like a route."""
        forms = [call.form for call in calls]
        largest = max(forms, key=lambda form: form.count)
        in_place = self.mapped.any and all(map(self._in_place.find, calls[0].inputs))
        key = (id(largest), len(forms), wishes, in_place)
        known = self._batch_plans.get(key)
        if known is None:
            plan = plan_batch(forms, self.info, self.settings, wishes, in_place=in_place)
            known = largest, plan  # the form is kept, so that its id stays its own
            self._remember(self._batch_plans, key, known)
        return known[1]

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
            plan = self.batch_plan([call], Wishes(device_local))
            for _ in self.run_jobs(kernel, [call], plan):
                pass
            return call.result()
        if route.recycles:
            self._in_place.recycle(call)
        if self.mapped.any or route.on_card:
            call.places = self._in_place.places(call, route.plan)
        try:
            slot = self._shelf.take(route.row)
        except OutOfMemoryError:
            for _ in self.run_jobs(kernel, [call], route.plan):  # which makes do with less
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

    def run_jobs(self, kernel: Kernel, calls: Sequence[Call], plan: Plan) -> Iterator[Call]:
        """Carry out the calls of a batch in order, yielding each when it is done."""
        if kernel.split == "elements":
            largest = max((call.form for call in calls), key=lambda form: form.count)
            yield from self.run_stream(kernel, calls, plan, largest.operands)
            return
        # Slots of a kernel that is not cut fit calls of one form only.
        for form, alike in itertools.groupby(calls, key=lambda call: call.form):
            fitting = dataclasses.replace(
                plan, count=form.count, chunk=form.count, capacity=form.count
            )
            yield from self.run_stream(kernel, alike, fitting, form.operands)

    def run_stream(
        self, kernel: Kernel, calls: Iterable[Call], plan: Plan, operands: tuple[Operand, ...]
    ) -> Generator[Call, None, None]:
        """The same for calls that come one by one, none with larger pieces than the plan's."""
        plan, row, slots = self._take_slots(kernel, plan, operands)
        try:
            ring = Ring(slots)
            try:
                for call in calls:
                    if recycles(call.form):
                        self._in_place.recycle(call)
                    if self.mapped.any or call.touches_card():
                        call.places = self._in_place.places(call, plan)
                    slots[0].record.calls += 1
                    slots[0].record.elements += call.form.count
                    yield from ring.feed(call, steps_of(plan, call.form))
                yield from ring.flush()
            except BaseException:
                ring.abandon()
                raise
        finally:
            # Backwards, so that they are taken in the same order again and find their recordings.
            for slot in reversed(slots):
                self._shelf.put_back(row, slot)

    def _take_slots(
        self, kernel: Kernel, plan: Plan, operands: tuple[Operand, ...]
    ) -> tuple[Plan, Row, list[Slot]]:
        """As many slots as the plan says, or as there is memory for, smaller ones if need be.

        A kernel that is not cut by elements needs all of its first slot.
        """
        while True:
            row = self._row(plan, kernel, operands)
            try:
                slots = [self._shelf.take(row)]
                break
            except OutOfMemoryError:
                smaller = None if kernel.split == "whole" else shrunk(plan)
                if smaller is None:
                    raise
                plan = smaller
                self._own.shrunk += 1
        try:
            while len(slots) < plan.slots and self._leaves_room(row, len(slots) + 1):
                slot = self._shelf.take_another(row)
                if slot is None:
                    break
                slots.append(slot)
        except BaseException:
            for slot in slots:
                self._shelf.put_back(row, slot)
            raise
        if len(slots) < plan.slots:
            self._own.shrunk += 1
        for slot in slots:
            slot.profile = self.profile
        return plan, row, slots

    def _leaves_room(self, row: Row, slots: int) -> bool:
        """Whether so many slots leave half of the memory: others come while a stream is held."""
        limit, layout = self.settings.memory_limit, row.layout
        copies = 2 if layout.path == "device-local" else 1
        nbytes = slots * copies * sum(operand.nbytes for operand in layout.operands)
        return limit is None or 2 * nbytes <= limit

    def _row(self, plan: Plan, kernel: Kernel, operands: tuple[Operand, ...]) -> Row:
        profiled = self.profile is not None
        return self._shelf.row(SlotLayout.of(plan, kernel, operands, profiled=profiled))

    def start_profile(self) -> Profile:
        """From now on, calls write down what they do, until the profile's `with` ends."""
        if "hostQueryReset" not in self.info.features:
            raise DeviceLacksError(f"{self.info.name} cannot be profiled: it lacks hostQueryReset")
        self.profile = Profile(self._device, self._end_profile)
        return self.profile

    def _end_profile(self) -> None:
        self.profile = None

    def trim(self) -> int:
        """Free what no running call needs: idle slots, empty memory blocks. Returns the bytes."""
        self._shelf.clear()
        return self._memory.trim()

    def stats(self) -> Stats:
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
        for stream in list(self.streams):
            # One that runs in another thread cannot be closed from here; it ends by itself.
            with contextlib.suppress(ValueError):
                stream.close()
        self._opened.close()

    def _remember(self, known: dict[Hashable, Any], key: Hashable, value: object) -> None:
        if len(known) >= REMEMBERED:
            known.clear()
        known[key] = value

    def _make_resources(self, opened: contextlib.ExitStack) -> Resources:
        device, queues = self._device, self._device.queues

        def timeline(address: QueueAddress) -> Timeline:
            made = Timeline(device, address)
            opened.callback(made.close)
            return made

        computing = tuple(timeline(address) for address in queues.compute)
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
            computing,
            upload,
            download,
            crew,
        )

    def _make_route(
        self, form: Form, device_local: bool | None, *, on_card: bool, all_there: bool
    ) -> Route:
        kernel, operands = form.kernel, form.operands
        if all_there:
            plan = plan_on_card(form, self.info)
        else:
            count = max(form.count, 1)
            plan = make_plan(kernel, operands, count, self.info, self.settings, device_local)
        row = self._row(plan, kernel, operands)
        return Route(form, plan, steps_of(plan, form), row, on_card, recycles(form))

    def _save_pipelines(self) -> None:
        if self._pipelines.stats().misses:
            self._driver_cache.save()


def steps_of(plan: Plan, form: Form) -> tuple[Step, ...]:
    """A call's pieces, with the work-groups for each."""
    count, chunk = max(form.count, 1), plan.chunk
    if count <= chunk:
        return ((Piece(0, count), plan.groups(count)),)
    pieces = [Piece(start, min(chunk, count - start)) for start in range(0, count, chunk)]
    return tuple((piece, plan.groups(piece.count)) for piece in pieces)


def _kinds(arrays: Sequence[AnyArray]) -> list[Hashable]:
    """What tells the forms of calls apart."""
    return [(type(array), array.dtype, array.shape) for array in arrays]
