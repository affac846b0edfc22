"""What `start_actors` refuses. test_prove_many.py and test_page.py start actors."""

from __future__ import annotations

from typing import Any

import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentTypeError


class Squares:
    """A class that takes an executor."""

    def __init__(self, gpu: gx.GpuExecutor) -> None:
        self._gpu = gpu


@pytest.mark.parametrize("wrong", [Squares(None), "Squares", print])  # type: ignore[arg-type]
def test_what_is_no_class_is_refused(wrong: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="start_actors takes a class, not "):
        gx.cluster.start_actors(wrong)


def test_unknown_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'start_actor'"):
        gx.cluster.start_actor  # noqa: B018
