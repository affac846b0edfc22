"""The public names of the package, and the tree of errors that errors.py draws."""

from __future__ import annotations

import re

import gpu_executor
from gpu_executor import errors
from gpu_executor.backend import Backend

NAMES = [
    "CpuBackend",
    "Curve",
    "DeviceArray",
    "DeviceInfo",
    "DeviceLostError",
    "ElementRangeError",
    "ExtensionField",
    "Field",
    "GpuError",
    "GpuExecutor",
    "Kernel",
    "MerkleTree",
    "NoDeviceError",
    "OutOfMemoryError",
    "PersistentVulkanBackend",
    "Plan",
    "Reference",
    "Settings",
    "Tuning",
    "VulkanSpirvBackend",
    "WgpuExecutor",
    "__version__",
    "cluster",
    "curves",
    "devices",
    "errors",
    "fields",
    "graph",
    "groth16",
    "hashes",
    "kernels",
    "kzg",
    "open_backend",
    "ops",
]
MAX_NAMES = 34
EXECUTOR_NAMES = [
    *(
        "array_device",
        "array_devices",
        "asarray",
        "close",
        "device",
        "empty",
        "empty_device",
        "explain",
        "from_dlpack",
        "graph",
        "import_array",
    ),
    *(
        "make_stream_wait",
        "map",
        "name",
        "profile",
        "run",
        "run_async",
        "run_batch",
        "run_field_add",
    ),
    *("serve_metrics", "shutdown", "stats", "stream", "submit", "synchronize", "to_device"),
    *("trim", "wait_for_stream", "warm_up", "zeros"),
]
"""What a `GpuExecutor` has: the methods of a backend, those of `concurrent.futures.Executor`, and
its own."""
BRANCH = re.compile(r"^(?P<stem>[| ]*)\+-- (?P<name>\w+) {2,}\S.*?(?:\(also (?P<also>\w+)\))?$")


def parse_drawn_tree() -> dict[str, list[str]]:
    """The bases of each error, as the module's docstring draws them."""
    assert errors.__doc__ is not None
    lines = errors.__doc__.splitlines()
    root = lines.index("GpuError")
    bases, path = {"GpuError": ["Exception"]}, ["GpuError"]
    for line in filter(None, lines[root + 1 :]):
        branch = BRANCH.match(line)
        assert branch is not None, f"not a branch of the tree: {line!r}"
        depth, rest = divmod(len(branch["stem"]), 4)
        assert rest == 0, f"indented by no multiple of four: {line!r}"
        del path[depth + 1 :]
        bases[branch["name"]] = [path[depth], *filter(None, [branch["also"]])]
        path.append(branch["name"])
    return bases


def list_classes() -> dict[str, list[str]]:
    """The bases of each error, as the classes have them."""
    return {
        name: [base.__name__ for base in value.__bases__]
        for name, value in vars(errors).items()
        if isinstance(value, type)
    }


def test_the_public_names_are_these() -> None:
    assert gpu_executor.__all__ == NAMES
    assert all(hasattr(gpu_executor, name) for name in NAMES)


def test_the_public_names_are_few() -> None:
    assert len(gpu_executor.__all__) <= MAX_NAMES


def test_the_names_of_an_executor_are_these() -> None:
    executor = gpu_executor.GpuExecutor
    assert [name for name in dir(executor) if not name.startswith("_")] == EXECUTOR_NAMES
    assert {name for name in vars(Backend) if not name.startswith("_")} <= {*EXECUTOR_NAMES}


def test_the_drawn_tree_is_the_tree_of_classes() -> None:
    assert parse_drawn_tree() == list_classes()


def test_the_tree_and_the_classes_are_in_the_same_order() -> None:
    assert list(parse_drawn_tree()) == list(list_classes())


def test_every_error_has_a_docstring() -> None:
    for name in list_classes():
        assert getattr(errors, name).__doc__, name


def test_the_version_is_a_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|(a|b|rc)\d+)?", gpu_executor.__version__)
