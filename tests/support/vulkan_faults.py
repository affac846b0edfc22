"""Vulkan entry points that return an error code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpu_executor.vulkan import binding
from gpu_executor.vulkan.binding import vk

Fail = Callable[..., None]


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fail]:
    """A function that makes a Vulkan entry point return an error code.

    `on=n` fails the n-th call only, `every=n` each n-th call, `upto=n` the first n calls. Without
    any of the three every call fails. The failing call is a C function, so that everything above
    the entry point runs as it always does.
    """
    callbacks: list[Any] = []

    def fail_now(name: str, code: int, on: int = 0, every: int = 0, upto: int = 0) -> None:
        real = getattr(binding.load_library(), name)
        calls = 0

        def failing(*arguments: Any) -> int:
            nonlocal calls
            calls += 1
            fails = calls % every == 0 if every else calls <= upto if upto else on in (0, calls)
            return code if fails else int(real(*arguments))

        callbacks.append(vk.ffi.callback(vk.ffi.typeof(real), failing))
        monkeypatch.setattr(vk, name, binding._check_results(name, callbacks[-1]))

    yield fail_now
    monkeypatch.undo()
