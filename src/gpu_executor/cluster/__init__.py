"""Several machines: `RayExecutor` runs kernels on the devices of a Ray cluster.

    with gx.cluster.RayExecutor() as cluster:
        sums = list(cluster.map(kernel, first, second))

Importing this package does not import Ray; the first access to `RayExecutor` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu_executor.cluster.executor import RayExecutor

__all__ = ["RayExecutor"]


def __getattr__(name: str) -> Any:
    if name != "RayExecutor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import ray  # noqa: F401 - fails here, with advice, if Ray is not installed
    except ImportError as error:
        raise ImportError(
            f"RayExecutor needs Ray: pip install 'gpu-executor[ray]' ({error})"
        ) from None
    from gpu_executor.cluster.executor import RayExecutor

    return RayExecutor
