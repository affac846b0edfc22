"""What one device did while it was watched: its jobs, and on Vulkan the stages of every piece."""

from __future__ import annotations

from collections import Counter

from gpu_executor.backend import Backend
from gpu_executor.telemetry.trace import Span
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from gpu_executor.vulkan.profile import Profile


class DeviceProfile:
    """Goes on when the device is opened again."""

    def __init__(self) -> None:
        self.jobs: list[Span] = []
        self._pieces: list[Profile] = []
        """Of each backend that the device had meanwhile."""

    @property
    def spans(self) -> list[Span]:
        return self.jobs + [span for profile in self._pieces for span in profile.spans]

    def stages(self) -> dict[str, float]:
        """Seconds by stage; none where there are no stages."""
        totals: Counter[str] = Counter()
        for profile in self._pieces:
            totals.update(profile.stages())
        return dict(totals)

    def watch(self, backend: Backend) -> None:
        """From now on, what this backend does."""
        if isinstance(backend, PersistentVulkanBackend):
            self._pieces.append(backend.profile())

    def end(self) -> None:
        """Watch no more."""
        for profile in self._pieces:
            profile.__exit__()
