"""Device candidates: the devices that an executor may open, ranked, each with its backend."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

from gpu_executor.backend import Backend, open_backend
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import DeviceNotFoundError, GpuError, NoDeviceError, SettingsError
from gpu_executor.settings import Settings, resolve_settings
from gpu_executor.vulkan.disk_cache import read_calibration
from gpu_executor.vulkan.instance import find_devices

BackendName = Literal["auto", "vulkan", "webgpu", "cpu"]
DEFERS_WEBGPU = sys.platform == "linux"
"""Whether "auto" looks at WebGPU only if Vulkan lacks a device. Importing wgpu and listing its
adapters takes about a second. On Linux, WebGPU runs on Vulkan, or on OpenGL: a GPU that has only an
OpenGL driver comes after Vulkan's software driver. Elsewhere WebGPU has Metal and Direct3D."""
# Where WebGPU is deferred, its devices follow all of Vulkan's, so that the place of a Vulkan device
# does not depend on whether WebGPU was looked at. Elsewhere, GPUs come before software drivers.
DEFERRED_RANKS = {
    ("vulkan", True): 0,
    ("vulkan", False): 1,
    ("webgpu", True): 2,
    ("webgpu", False): 3,
}
RANKS = {("vulkan", True): 0, ("webgpu", True): 1, ("vulkan", False): 2, ("webgpu", False): 3}
CPU_RANK = 4


@dataclass(frozen=True, slots=True)
class DeviceCandidate:
    """A device and the backend that can open it."""

    backend: str
    device: str
    """The device's name."""
    index: int | None
    """The backend's index of the device."""
    on_gpu: bool
    rate: float | None = None
    """Bytes per second that a kernel reads and writes, from the calibration; None without one."""
    uuid: str = ""

    @property
    def rank(self) -> int:
        ranks = DEFERRED_RANKS if DEFERS_WEBGPU else RANKS
        return ranks.get((self.backend, self.on_gpu), CPU_RANK)

    def open(self, settings: Settings) -> Backend:
        if self.backend == "cpu":
            return open_backend("cpu")
        return open_backend(self.backend, device=self.index, settings=settings)

    def __str__(self) -> str:
        return f"{self.device} by {self.backend}"


class DeviceRanking(Sequence[DeviceCandidate]):
    """Device candidates, best first, and the reasons why backends have none. Thread-safe.

    Where WebGPU is deferred, its devices are missing until `look_at_webgpu` adds them. `find` and
    `iterate_all` do so when no device of Vulkan is what they want.
    """

    def __init__(
        self,
        candidates: Iterable[DeviceCandidate],
        absent: Iterable[str] = (),
        find_deferred: Callable[[], DeviceRanking] | None = None,
    ) -> None:
        """`find_deferred` finds the devices of WebGPU, if they are not among the candidates."""
        self.candidates = _sort_best_first(candidates)
        self.absent = tuple(absent)
        """For each backend without a device, its name and the reason."""
        self._find_deferred = find_deferred
        self._lock = threading.Lock()

    def __getitem__(self, index: Any) -> Any:
        return self.candidates[index]

    def __len__(self) -> int:
        return len(self.candidates)

    def __iter__(self) -> Iterator[DeviceCandidate]:
        return iter(self.candidates)

    def __repr__(self) -> str:
        return f"<DeviceRanking: {_list_places(self.candidates)}>"

    @property
    def notes(self) -> tuple[str, ...]:
        """`absent`, and that WebGPU was not looked at."""
        deferred = ("webgpu: not looked at, Vulkan has a device",) if self._find_deferred else ()
        return self.absent + deferred

    def look_at_webgpu(self) -> None:
        """Add the devices of WebGPU, unless they were looked at."""
        with self._lock:
            if self._find_deferred is None:
                return
            found = self._find_deferred()
            self.candidates = _sort_best_first([*self.candidates, *found.candidates])
            self.absent += found.absent
            self._find_deferred = None

    def iterate_all(self) -> Iterator[DeviceCandidate]:
        """Yield every candidate, best first. WebGPU is looked at when no device of Vulkan is
        left."""
        first = self._list_settled()
        yield from first
        self.look_at_webgpu()
        yield from self.candidates[len(first) :]

    def find(self, wanted: str | int) -> DeviceCandidate:
        """Find a device by its place in the ranking, a prefix of its UUID or a part of its name.
        WebGPU is looked at if no other backend has the device."""
        found = self._match(wanted)
        if found is None and self._find_deferred is not None:
            self.look_at_webgpu()
            found = self._match(wanted)
        if found is None:
            raise DeviceNotFoundError(
                f"no device matches {wanted!r} as a place in the ranking, a UUID prefix or a part "
                f"of a name; there are {_list_places(self.candidates)}"
            )
        return found

    def _match(self, wanted: str | int) -> DeviceCandidate | None:
        text = str(wanted).strip().lower()
        if text.isdecimal():
            # A number is always a place in the ranking: "15" must not find "LLVM 15".
            return next(iter(self._list_settled()[int(text) : int(text) + 1]), None)
        by_uuid = (each for each in self.candidates if each.uuid and each.uuid.startswith(text))
        by_name = (each for each in self.candidates if text in each.device.lower())
        return next(by_uuid, None) or next(by_name, None)

    def _list_settled(self) -> list[DeviceCandidate]:
        """The candidates whose places do not change when WebGPU is looked at."""
        if self._find_deferred is None:
            return self.candidates
        return [each for each in self.candidates if each.backend == "vulkan"]


def rank_devices(backend: BackendName, settings: Settings | None = None) -> DeviceRanking:
    """Rank every device of a backend, or of all backends for "auto". A backend that is named and
    has no device is an error. On Linux, "auto" defers WebGPU if Vulkan has a device."""
    settings = resolve_settings(settings)
    if backend != "auto" and backend not in FINDERS:
        names = ", ".join(["auto", *FINDERS])
        raise SettingsError(f"there is no backend {backend!r}; there are {names}")
    if backend != "auto":
        candidates = FINDERS[backend](settings)
        if not candidates:
            raise NoDeviceError(f"the backend {backend!r} finds no device")
        return DeviceRanking(candidates)
    vulkan = _look_at(["vulkan"], settings)
    if not DEFERS_WEBGPU or not vulkan:
        others = _look_at(["webgpu", "cpu"], settings)
        return DeviceRanking([*vulkan, *others], vulkan.absent + others.absent)
    return DeviceRanking(
        [*vulkan, *_look_at(["cpu"], settings)],
        vulkan.absent,
        lambda: _look_at(["webgpu"], settings),
    )


def _look_at(backends: Sequence[str], settings: Settings) -> DeviceRanking:
    """Rank the devices of these backends. A backend without a device is no error."""
    found: list[DeviceCandidate] = []
    absent: list[str] = []
    for name in backends:
        try:
            candidates = FINDERS[name](settings)
        except GpuError as error:  # no loader, no driver or no wgpu: "auto" skips the backend
            absent.append(f"{name}: {error}")
            continue
        found += candidates
        if not candidates:
            absent.append(f"{name}: no device found")
    return DeviceRanking(found, absent)


def _list_places(candidates: Iterable[DeviceCandidate]) -> str:
    return ", ".join(f"{place}: {candidate}" for place, candidate in enumerate(candidates))


def select_candidates(
    ranking: DeviceRanking,
    device: str | int | None,
    devices: Literal["all"] | Sequence[str | int] | None,
) -> list[DeviceCandidate]:
    """The devices to open: the first of the ranking, the one that `device` names, or several."""
    if devices is None:
        return [ranking[0] if device is None else ranking.find(device)]
    if device is not None:
        raise SettingsError("give device= for one device or devices= for several, not both")
    if isinstance(devices, str) and devices == "all":
        return [candidate for candidate in ranking if candidate.rank == ranking[0].rank]
    several = isinstance(devices, Iterable) and not isinstance(devices, str)
    candidates = [ranking.find(each) for each in devices] if several else []
    if not candidates:
        raise SettingsError(f"devices= must be 'all' or a list of devices, not {devices!r}")
    return candidates


def _sort_best_first(candidates: Iterable[DeviceCandidate]) -> list[DeviceCandidate]:
    """Sort by rank. Devices of one rank are sorted by rate if all of them are calibrated."""
    ordered: list[DeviceCandidate] = []
    for _, group in groupby(
        sorted(candidates, key=lambda candidate: candidate.rank), lambda candidate: candidate.rank
    ):
        alike = list(group)
        if all(candidate.rate is not None for candidate in alike):
            alike.sort(key=lambda candidate: -(candidate.rate or 0.0))
        ordered += alike
    return ordered


def _find_vulkan(settings: Settings) -> list[DeviceCandidate]:
    candidates = []
    for info in find_devices():
        folder = settings.cache_dir if settings.calibrate else None
        calibration = None if folder is None else read_calibration(folder, info)
        rate = None if calibration is None else calibration.kernel
        candidates.append(
            DeviceCandidate("vulkan", info.name, info.index, info.kind != "cpu", rate, info.uuid)
        )
    return candidates


def _find_webgpu(_settings: Settings) -> list[DeviceCandidate]:
    from gpu_executor.webgpu.device import find_adapters  # not needed by most executors

    return [
        DeviceCandidate("webgpu", name, index, kind != "CPU")
        for index, (name, kind) in enumerate(find_adapters())
    ]


def _find_cpu(_settings: Settings) -> list[DeviceCandidate]:
    return [DeviceCandidate("cpu", "NumPy", None, False)]


# The function that finds the devices of each backend.
FINDERS: dict[str, Callable[[Settings], list[DeviceCandidate]]] = {
    "vulkan": _find_vulkan,
    "webgpu": _find_webgpu,
    "cpu": _find_cpu,
}
