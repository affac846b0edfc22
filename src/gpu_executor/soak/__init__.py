"""Soak: mixed jobs on every backend, with injected faults, all results checked."""

from gpu_executor.soak.trial import Report, soak

__all__ = ["Report", "soak"]
