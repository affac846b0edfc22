"""The names of classes and modules: the field's terms, one name per concept.

The words below were used in earlier versions of this package for concepts that have a term of
their own. A word counts only as a whole name and in the case that is written here: `Row` is a
private word for a slot key, `BatchRow` and the row of a matrix are not meant.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from pathlib import Path

import gpu_executor

ROOT = Path(gpu_executor.__file__).parent
CLASS = re.compile(r"^[ \t]*class (\w+)\s*[(:\[]", re.MULTILINE)

CLASSES_TO_AVOID = {
    "Seat": "DeviceCandidate",
    "Crew": "DevicePool or CopyThreads",
    "Line": "JobQueue",
    "HelpedFuture": "CallerRunsFuture",
    "Shelf": "SlotPool",
    "Row": "SlotKey",
    "Place": "BufferRange",
    "Route": "PreparedCall",
    "Form": "Signature",
    "Wishes": "RunOptions",
    "Chain": "CommandStream",
    "Launch": "DispatchCache",
    "Card": "ArrayDevice",
    "CardArrays": "DeviceMemory",
    "Lane": "BandwidthProbe",
    "WaitedCopies": "Readback",
    "ToCard": "Upload",
    "StandIn": "CpuFallback",
    "Journal": "DeviceMetrics",
    "Post": "ActorSlot",
    "Newcomers": "NodeWatcher",
    "Parcel": "a name from serialization",
    "Figures": "Calibration",
    "Borders": "BucketBoundaries",
    "Turn": "a name with InFlight",
    "Piece": "ElementRange; chunk, part, segment and share say of what",
}
MODULES_TO_AVOID = {
    "seats": "candidates",
    "crew": "device_pool or copy_threads",
    "line": "job_queue",
    "helping": "futures",
    "shelf": "slot_pool",
    "row": "slot_key",
    "places": "buffer_ranges",
    "routes": "prepared_call",
    "forms": "call",
    "wishes": "run_options",
    "chain": "command_stream",
    "launches": "bound_steps",
    "card": "device",
    "on_card": "device_memory",
    "lane": "bandwidth_probe",
    "waited_copies": "transfers",
    "to_card": "transfers",
    "stand_in": "cpu_fallback",
    "own_errors": "copied_exceptions",
    "journal": "device_metrics",
    "repeating": "retry_safety",
    "dealing": "work_stealing",
    "joining": "coalescing",
    "ending": "atexit",
    "cutting": "chunking",
    "posts": "actor_slots",
    "newcomers": "node_watcher",
    "parcel": "serialization",
    "losses": "ray_errors",
    "neighbours": "packed",
    "twists": "twiddles",
    "doubles": "f64_limbs",
    "kept": "cache",
    "told": "push_words",
    "figures": "calibration",
    "borders": "boundaries",
    "turn": "in_flight",
}


def modules() -> dict[str, Path]:
    """The modules of the package by their dotted names."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in sorted(ROOT.rglob("*.py"))
    }


@functools.cache
def classes() -> dict[str, list[str]]:
    """The modules that define a class of each name, also inside of functions and classes."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module, path in modules().items():
        for name in CLASS.findall(path.read_text()):
            found[name].append(module)
    assert len(found) > 500
    return found


def test_no_class_has_a_name_to_avoid() -> None:
    found = {
        f"{module}.{name}": CLASSES_TO_AVOID[name.lstrip("_")]
        for name, where in classes().items()
        for module in where
        if name.lstrip("_") in CLASSES_TO_AVOID
    }
    assert found == {}, "rename the class (left) to the term (right)"


def test_no_module_has_a_name_to_avoid() -> None:
    found = {
        module: MODULES_TO_AVOID[part]
        for module in modules()
        for part in module.split(".")
        if part in MODULES_TO_AVOID
    }
    assert found == {}, "rename the module (left) to the term (right)"


def test_no_two_classes_share_a_name() -> None:
    shared = {name: where for name, where in classes().items() if len(where) > 1}
    assert shared == {}, "give each class a name of its own"
