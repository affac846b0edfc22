"""Seats: the devices that an executor may open, best first, each with the backend for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from gpu_executor.backend import Backend, open_backend
from gpu_executor.errors import DeviceNotFoundError, GpuError, NoDeviceError, SettingsError
from gpu_executor.settings import Settings
from gpu_executor.vulkan.disk_cache import read_calibration
from gpu_executor.vulkan.instance import find_devices
from gpu_executor.webgpu.device import find_adapters

BackendName = Literal["auto", "vulkan", "webgpu", "cpu"]
# A GPU by its own driver, then by WebGPU; what a CPU computes comes behind, ours last.
RANKS = {("vulkan", True): 0, ("webgpu", True): 1, ("vulkan", False): 2, ("webgpu", False): 3}
CPU_RANK = 4


@dataclass(frozen=True, slots=True)
class DeviceCandidate:
    """A device behind a backend, not yet open."""

    backend: str
    device: str
    """Its name."""
    index: int | None
    """What the backend calls it."""
    on_gpu: bool
    rate: float | None = None
    """Bytes a second that a kernel reads and writes there, where the device was calibrated."""
    uuid: str = ""

    @property
    def rank(self) -> int:
        return RANKS.get((self.backend, self.on_gpu), CPU_RANK)

    def open(self, settings: Settings) -> Backend:
        if self.backend == "cpu":
            return open_backend("cpu")
        return open_backend(self.backend, device=self.index, settings=settings)

    def __str__(self) -> str:
        return f"{self.device} by {self.backend}"


@dataclass(frozen=True, slots=True)
class DeviceRanking(Sequence[DeviceCandidate]):
    """Seats, best first, and why there are no more."""

    candidates: tuple[DeviceCandidate, ...]
    absent: tuple[str, ...] = ()
    """Backends without a device, or that could not look for one, in words."""

    def __getitem__(self, index: Any) -> Any:
        return self.candidates[index]

    def __len__(self) -> int:
        return len(self.candidates)

    def __iter__(self) -> Iterator[DeviceCandidate]:
        return iter(self.candidates)

    def named(self, wanted: str | int) -> DeviceCandidate:
        """By its place in the ranking, a prefix of its UUID or a part of its name."""
        text = str(wanted).strip().lower()
        if text.isdecimal():
            # A place and nothing else: "15" is not to find "LLVM 15".
            found = list(self.candidates[int(text) : int(text) + 1])
        else:
            by_uuid = [
                candidate
                for candidate in self.candidates
                if candidate.uuid and candidate.uuid.startswith(text)
            ]
            found = by_uuid or [
                candidate for candidate in self.candidates if text in candidate.device.lower()
            ]
        if not found:
            listed = ", ".join(
                f"{place}: {candidate}" for place, candidate in enumerate(self.candidates)
            )
            raise DeviceNotFoundError(
                f"no device matches {wanted!r} as place in the ranking, UUID prefix or part of a "
                f"name; there are {listed}"
            )
        return found[0]


def rank_devices(backend: BackendName, settings: Settings | None = None) -> DeviceRanking:
    """Every device that the backend, or any, can drive; a backend that was named and has none is
    an error."""
    settings = settings or Settings.from_environment()
    if backend != "auto" and backend not in FINDERS:
        names = ", ".join(["auto", *FINDERS])
        raise SettingsError(f"there is no backend {backend!r}; there are {names}")
    if backend != "auto":
        candidates = FINDERS[backend](settings)
        if not candidates:
            raise NoDeviceError(f"{backend} finds no device")
        return DeviceRanking(tuple(_sort_best_first(candidates)))
    found: list[DeviceCandidate] = []
    absent: list[str] = []
    for name, find in FINDERS.items():
        try:
            candidates = find(settings)
        except GpuError as error:  # no loader, no driver, no wgpu: `auto` takes what there is
            absent.append(f"{name}: {error}")
            continue
        found += candidates
        if not candidates:
            absent.append(f"{name}: it finds no device")
    return DeviceRanking(tuple(_sort_best_first(found)), tuple(absent))


def select_candidates(
    ranking: DeviceRanking,
    device: str | int | None,
    devices: Literal["all"] | Sequence[str | int] | None,
) -> list[DeviceCandidate]:
    """Which of them to open: the first, the one that was named, or several."""
    if devices is None:
        return [ranking[0] if device is None else ranking.named(device)]
    if device is not None:
        raise SettingsError("give device= for one device or devices= for several, not both")
    if isinstance(devices, str) and devices == "all":
        return [candidate for candidate in ranking if candidate.rank == ranking[0].rank]
    several = isinstance(devices, Iterable) and not isinstance(devices, str)
    candidates = [ranking.named(each) for each in devices] if several else []
    if not candidates:
        raise SettingsError(f"devices= is 'all' or a list of devices, not {devices!r}")
    return candidates


def _sort_best_first(candidates: Sequence[DeviceCandidate]) -> list[DeviceCandidate]:
    """By rank; of one rank the fastest first, where all of them were measured."""
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
        figures = None if folder is None else read_calibration(folder, info)
        rate = None if figures is None else figures.kernel
        candidates.append(
            DeviceCandidate("vulkan", info.name, info.index, info.kind != "cpu", rate, info.uuid)
        )
    return candidates


def _find_webgpu(_settings: Settings) -> list[DeviceCandidate]:
    return [
        DeviceCandidate("webgpu", name, index, kind != "CPU")
        for index, (name, kind) in enumerate(find_adapters())
    ]


def _find_cpu(_settings: Settings) -> list[DeviceCandidate]:
    return [DeviceCandidate("cpu", "NumPy", None, False)]


FINDERS: dict[str, Callable[[Settings], list[DeviceCandidate]]] = {
    "vulkan": _find_vulkan,
    "webgpu": _find_webgpu,
    "cpu": _find_cpu,
}
