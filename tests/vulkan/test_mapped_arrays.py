"""Mapped arrays: the host copies nothing for them, whatever part of them a call uses."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.vulkan import slot as slot_module
from tests.conftest import OpenGpu, on_both_paths
from tests.support.jobs import ADD_U32, FQ_ADD, Array, check_sums, field_job, word_jobs
from tests.support.threads import in_threads

Gpu = gx.PersistentVulkanBackend
CHUNK = 128  # elements of 48 bytes: the offset of each chunk is aligned


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes in bytes of the arrays that the host copies to or from slots."""
    pairs_of, nbytes = slot_module._pair_views, list[int]()

    def noting(*arguments: Any) -> Any:
        pairs = list(pairs_of(*arguments))
        nbytes.extend(view.nbytes for view, _ in pairs if view is not None)
        return pairs

    monkeypatch.setattr(slot_module, "_pair_views", noting)
    return nbytes


@on_both_paths
@pytest.mark.parametrize("size", [1, CHUNK, 300])
@pytest.mark.parametrize("depth", [None, 1, 2, 3])
def test_calls_on_mapped_arrays_copy_nothing(
    fresh_gpu: OpenGpu, copied: list[int], device_local: bool, size: int, depth: int | None
) -> None:
    gpu, (a, b) = fresh_gpu(stream_chunk_elems=CHUNK), field_job(size)
    mapped_a, mapped_b, c = gpu.asarray(a), gpu.asarray(b), gpu.empty(a.shape, a.dtype)
    if depth is None:
        result = gpu.run(FQ_ADD, mapped_a, mapped_b, out=c, device_local=device_local)
    else:
        jobs, options = [(mapped_a, mapped_b)], {"device_local": device_local, "depth": depth}
        (result,) = gpu.run_batch(FQ_ADD, jobs, out=[c], **options)  # type: ignore[arg-type]
    assert result is c
    check_sums([c], [(a, b)])
    assert copied == []
    gpu.run(FQ_ADD, a, mapped_b, out=c, device_local=device_local)
    assert sum(copied) == a.nbytes
    gpu.run(FQ_ADD, a, b, out=np.empty_like(a), device_local=device_local)
    assert sum(copied) == 4 * a.nbytes


@on_both_paths
def test_slices_reshapes_and_views_are_recognised(
    gpu: Gpu, copied: list[int], device_local: bool
) -> None:
    a, b = field_job(400)
    mapped_a, mapped_b, c = gpu.asarray(a), gpu.asarray(b), gpu.empty((400, 6), np.uint64)
    gpu.run(FQ_ADD, mapped_a[16:80], mapped_b[:64], out=c[64:128], device_local=device_local)
    check_sums([c[64:128]], [(a[16:80], b[:64])])
    grid = (4, 5, 20, 6)
    out = c.reshape(grid)
    gpu.run(
        FQ_ADD, mapped_a.reshape(grid), mapped_b.reshape(grid), out=out, device_local=device_local
    )
    check_sums([out], [(a.reshape(grid), b.reshape(grid))])
    halves = mapped_a.view(np.uint32).ravel()
    total = gpu.empty(halves.shape, np.uint32)
    gpu.run(ADD_U32, halves, halves, out=total, device_local=device_local)
    np.testing.assert_array_equal(total, 2 * a.view(np.uint32).ravel())
    assert copied == []


AWKWARD = {
    "every other": lambda x: x[::2],
    "reversed": lambda x: x[::-1],
    "columns reversed": lambda x: x[:, ::-1],
    "transposed": lambda x: np.moveaxis(x.reshape(6, 20, 6), 0, 1),
    "byte-swapped": lambda x: x.view(x.dtype.newbyteorder()),
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
}


@on_both_paths
@pytest.mark.parametrize("awkward", AWKWARD.values(), ids=AWKWARD)
def test_arrays_in_other_layouts_are_copied(
    gpu: Gpu, copied: list[int], device_local: bool, awkward: Any
) -> None:
    values = np.arange(720, dtype=np.uint32).reshape(120, 6)
    laid = awkward(gpu.asarray(values))
    result = gpu.run(ADD_U32, laid, laid, device_local=device_local)
    np.testing.assert_array_equal(result, 2 * awkward(values).astype(np.uint32))
    assert copied == [result.nbytes] * 3


@on_both_paths
@pytest.mark.parametrize("offset", [1, 2, 3, 4, 16, 63])
def test_slices_may_start_at_any_element(
    gpu: Gpu, chunking_gpu: Gpu, copied: list[int], device_local: bool, offset: int
) -> None:
    for backend in (gpu, chunking_gpu):
        copied.clear()
        x, y = (backend.asarray(word) for word in word_jobs(1000)[0])
        out = backend.zeros(1000, np.uint32)
        part = slice(offset, offset + 90)
        backend.run(ADD_U32, x[part], y[part], out=out[part], device_local=device_local)
        check_sums([out[part]], [(x[part], y[part])])
        assert not out[:offset].any() and not out[offset + 90 :].any()
        bindable = offset * 4 % backend.device.limits.buffer_offset_alignment == 0
        assert (copied == []) == (device_local or bindable)
        part = slice(offset, offset + 850)  # in several chunks at various offsets
        backend.run(ADD_U32, x[part], y[part], out=out[part], device_local=device_local)
        check_sums([out[part]], [(x[part], y[part])])
        assert not out[:offset].any() and not out[offset + 850 :].any()


@on_both_paths
@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped"])
@pytest.mark.parametrize("size", [1, 90, 250])
def test_out_may_be_an_input(
    chunking_gpu: Gpu, device_local: bool, mapped: bool, size: int
) -> None:
    def fresh() -> list[Array]:
        return [chunking_gpu.asarray(x) if mapped else x for x in field_job(size)]

    def run(*arrays: Array, out: Array) -> None:
        assert chunking_gpu.run(FQ_ADD, *arrays, out=out, device_local=device_local) is out

    before = field_job(size)
    a, b = fresh()
    run(a, b, out=a)
    check_sums([a], [before])
    a, b = fresh()
    run(a, b, out=b)
    check_sums([b], [before])
    a, _ = fresh()
    run(a, a, out=a)
    check_sums([a], [(before[0], before[0])])
    grid = (size, 1, 6)
    a, b = fresh()
    run(a.reshape(grid), b.reshape(grid), out=(over := a.reshape(grid)))
    check_sums([over], [(before[0].reshape(grid), before[1].reshape(grid))])


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped"])
@pytest.mark.parametrize("pipelined", [None, False, True])
def test_an_out_that_partly_overlaps_an_input_is_refused(
    gpu: Gpu, mapped: bool, pipelined: bool | None
) -> None:
    x: Array = gpu.zeros(100, np.uint32) if mapped else np.zeros(100, np.uint32)
    other = np.zeros(70, np.uint32)
    for arrays, out, which in (
        ((x[:70], other), x[1:71], 0),
        ((other, x[30:]), x[:70], 1),
        ((other, x[:70]), x[:70][::-1], 1),
    ):
        with pytest.raises(gx.errors.ArgumentShapeError, match=f"out 0 overlaps argument {which}"):
            if pipelined is None:
                gpu.run(ADD_U32, *arrays, out=out)
            else:
                gpu.run_batch(ADD_U32, [arrays], out=[out], pipelined=pipelined)


WIDE = np.zeros((4, 5, 12), np.uint64)
READ_ONLY = np.zeros((4, 5, 6), np.uint64)
READ_ONLY.flags.writeable = False
BAD_OUTS: dict[str, tuple[Any, type[gx.GpuError], str]] = {
    "dtype": (np.zeros((4, 5, 6), np.int64), gx.errors.ArgumentTypeError, "has dtype int64"),
    "byte order": (np.zeros((4, 5, 6), ">u8"), gx.errors.ArgumentTypeError, "has dtype >u8"),
    "shape": (np.zeros((20, 6), np.uint64), gx.errors.ArgumentShapeError, r"has shape \(20, 6\)"),
    "list": ([[0] * 6], gx.errors.ArgumentTypeError, "is a list"),
    "two": ((READ_ONLY, READ_ONLY), gx.errors.ArgumentTypeError, "out has 2 arrays"),
    "read-only": (READ_ONLY, gx.errors.ArgumentTypeError, "out 0 is read-only"),
    "not contiguous": (WIDE[:, ::-1, :6], gx.errors.ArgumentShapeError, "must be contiguous"),
}


@pytest.mark.parametrize(("out", "error", "said"), BAD_OUTS.values(), ids=BAD_OUTS)
def test_an_unsuitable_out_is_refused_with_the_reason(
    gpu: Gpu, out: Any, error: type[gx.GpuError], said: str
) -> None:
    a, b = (x.reshape(4, 5, 6) for x in field_job(20))
    with pytest.raises(error, match=said):
        gpu.run(FQ_ADD, a, b, out=out)


@on_both_paths
def test_an_out_of_rows_may_be_strided(chunking_gpu: Gpu, device_local: bool) -> None:
    (a, b), wide = field_job(250), np.zeros((500, 8), np.uint64)
    rows = wide[::2, 1:7]
    chunking_gpu.run(FQ_ADD, a, b, out=rows, device_local=device_local)
    check_sums([rows], [(a, b)])
    assert not wide[1::2].any() and not wide[:, 0].any() and not wide[:, 7].any()


@on_both_paths
def test_many_small_arrays_are_distinguished(fresh_gpu: OpenGpu, device_local: bool) -> None:
    gpu, draw = fresh_gpu(), random.Random(1)
    arrays: list[Array] = []
    for number in range(600):
        arrays.append(gpu.asarray(np.full(draw.randrange(1, 90), number, np.uint32)))
        if draw.random() < 0.4:
            arrays.pop(draw.randrange(len(arrays)))
    assert gpu.stats().memory.blocks == 1
    for x in arrays:
        out = gpu.empty(x.shape, np.uint32)
        gpu.run(ADD_U32, x, x, out=out, device_local=device_local)
        assert (out == 2 * x[0]).all() and (x == x[0]).all()
    numbers = [int(x[0]) for x in arrays]
    assert numbers == sorted(set(numbers))


def test_threads_may_make_use_and_drop_arrays_at_once(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu(stream_chunk_elems=150)

    def work(number: int) -> None:
        draw = random.Random(number)
        for number_of_run in range(25):
            size = draw.choice([1, 64, 149, 400])
            a, b = gpu.asarray(np.full(size, number, np.uint32)), gpu.zeros(size, np.uint32)
            b[...] = number_of_run
            out = draw.choice([None, a, gpu.empty(size, np.uint32)])
            result = gpu.run(ADD_U32, a, b, out=out, device_local=draw.random() < 0.5)
            assert (result == number + number_of_run).all()

    in_threads(work)
    assert gpu.stats().memory.bytes_in_arrays == 0
