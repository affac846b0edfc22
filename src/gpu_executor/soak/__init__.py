"""Soak test: random calls on every backend with injected faults, every result checked."""

from gpu_executor.soak.runner import SoakReport, soak

__all__ = ["SoakReport", "soak"]
