"""The stand-in for CUDA's driver library."""

from __future__ import annotations

from tests.support.cuda_stand_in import cuda

__all__ = ["cuda"]
