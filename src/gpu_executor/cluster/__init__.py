"""Several machines: `RayExecutor` runs kernels on the devices of a Ray cluster.

    with gx.cluster.RayExecutor() as cluster:
        sums = list(cluster.map(kernel, first, second))

`start_actors` starts actors of the caller's own class beside the devices. Importing this package
does not import Ray; the first access to one of these names does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gpu_executor.errors import MissingExtraError

if TYPE_CHECKING:
    from gpu_executor.cluster.actor import start_actors
    from gpu_executor.cluster.ray_executor import RayExecutor

__all__ = ["RayExecutor", "start_actors"]
MODULES = {"RayExecutor": "ray_executor", "start_actors": "actor"}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import ray  # noqa: F401 - fails here, with advice, if Ray is not installed
    except ImportError as error:
        raise MissingExtraError(name, "Ray", "ray", str(error)) from None
    return getattr(importlib.import_module(f"{__name__}.{MODULES[name]}"), name)
