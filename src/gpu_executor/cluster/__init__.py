"""Several machines: an executor whose devices are spread over a Ray cluster.

    with gx.cluster.RayExecutor() as cluster:
        sums = list(cluster.map(kernel, first, second))

Ray is imported when `RayExecutor` is first asked for, not with the package.
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
        import ray  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise ImportError(
            f"RayExecutor needs Ray: pip install 'gpu-executor[ray]' ({error})"
        ) from None
    from gpu_executor.cluster.executor import RayExecutor

    return RayExecutor
