"""What a process leaves to the next: bucket borders, and what was used and is worth warming up.

Pipelines themselves stay behind: wgpu has pipeline caches, but the wgpu-native under wgpu-py 0.32
makes every pipeline without one (gfx-rs/wgpu-native, pull request 618).
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_executor.files import parsed_json, write_in_one_step

log = logging.getLogger("gpu_executor.webgpu")


@dataclass(frozen=True, slots=True)
class Kept:
    """Borders, and buckets by the name of a kernel of this package."""

    borders: list[int] = field(default_factory=list)
    used: dict[str, list[int]] = field(default_factory=dict)


def kept_path(folder: Path, device: str) -> Path:
    """One file per adapter."""
    return folder / f"webgpu-{hashlib.sha256(device.encode()).hexdigest()[:16]}.json"


def read_kept(path: Path) -> Kept:
    """What was kept; nothing where there is no file, or none that can be read."""
    try:
        return _parsed(parsed_json(path.read_text("utf-8")))
    except OSError:
        return Kept()
    except ValueError as error:
        log.warning("%s will be replaced: %s", path, error)
        return Kept()


def keep(path: Path, kept: Kept) -> None:
    """Written in one step; where the disk refuses, it is not kept and no more."""
    content = json.dumps({"borders": kept.borders, "used": kept.used}, indent=1)
    try:
        write_in_one_step(path, content.encode())
    except OSError as error:
        log.warning("buckets were not kept: %s", error)


def _parsed(content: Any) -> Kept:
    if not isinstance(content, dict) or content.keys() != {"borders", "used"}:
        raise ValueError("it is not a file of buckets")
    used = content["used"]
    if not isinstance(used, dict):
        raise ValueError("it names no kernels")
    return Kept(
        _sizes(content["borders"]), {str(name): _sizes(sizes) for name, sizes in used.items()}
    )


def _sizes(values: Any) -> list[int]:
    if not isinstance(values, list) or not all(type(each) is int and each > 0 for each in values):
        raise ValueError(f"{values!r} are no sizes")
    return sorted(set(values))
