"""`device=` and `out=` of transforms: arrays of the host through a device, results in any array."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.backend import Backend
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError, NotSupportedError
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, Field, FieldArray
from gpu_executor.primes import Form
from gpu_executor.vulkan.copy_threads import CopyThreads
from tests.conftest import OpenGpu
from tests.support.fields_under_test import to_ints, transform_naively

Gpu = gx.PersistentVulkanBackend
FR = BLS12_381_FR
FIELDS = [FR, GOLDILOCKS, BABYBEAR]
on_fields = pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)


@pytest.fixture(params=["vulkan", "cpu", "executor"])
def device(
    request: pytest.FixtureRequest, gpu: Gpu, vulkan_executor: gx.GpuExecutor
) -> Iterator[Backend]:
    with gx.CpuBackend() as cpu:
        opened: dict[str, Backend] = {"vulkan": gpu, "cpu": cpu, "executor": vulkan_executor}
        yield opened[request.param]


def draw(field: Field, shape: Any, form: Form = "canonical", seed: int = 1) -> FieldArray:
    drawn = field.random(shape, seed)
    return drawn.in_form(form) if field.form == "montgomery" else drawn


def list_forms(field: Field) -> list[Form]:
    return ["canonical", "montgomery"] if field.form == "montgomery" else ["canonical"]


def place(device: Backend, kind: str, array: FieldArray) -> FieldArray:
    """The array in plain or mapped memory, or as a view with gaps."""
    if kind == "mapped":
        return device.asarray(array)
    if kind == "view":
        twice = array.field.zeros((*array.shape[:-1], 2 * array.shape[-1])).in_form(array.form)
        twice[..., ::2] = array
        return twice[..., ::2]
    return array.copy()


@on_fields
def test_every_place_and_form_gives_the_same_result(device: Backend, field: Field) -> None:
    """Against sums of powers: plain and mapped arrays, gaps, forms, with and without `out`."""
    kinds = ["plain", "mapped", "view"]
    values = [to_ints(row) for row in draw(field, (3, 8))]
    wanted = [transform_naively(field, row) for row in values]
    for form, kind in itertools.product(list_forms(field), kinds):
        x = place(device, kind, draw(field, (3, 8), form))
        found = field.ntt(x, device=device)
        assert not found.on_device and found.form == field.form
        assert [to_ints(row) for row in found] == wanted
        for out_form, out_kind in itertools.product(list_forms(field), kinds):
            out = place(device, out_kind, draw(field, (3, 8), out_form, seed=2))
            assert field.ntt(x, device=device, out=out) is out
            assert [to_ints(row) for row in out] == wanted
            assert [to_ints(row) for row in x] == values
            assert field.intt(out, device=device, out=out) is out  # in place
            assert [to_ints(row) for row in out] == values


@pytest.mark.parametrize("kind", ["plain", "mapped"])
def test_large_transforms_and_extensions_agree_with_device_arrays(gpu: Gpu, kind: str) -> None:
    field = FR
    x = draw(field, 1 << 13, field.form)
    there, given = gpu.to_device(x), place(gpu, kind, x)
    options: dict[str, Any] = {"coset": 5, "order_out": "reversed"}
    assert (field.ntt(given, device=gpu, **options) == field.ntt(there, **options).to_host()).all()
    wanted = field.lde(there, 4, 3).to_host()
    out = place(gpu, kind, field.zeros(1 << 15))
    for found in (field.lde(given, 4, 3, device=gpu), field.lde(given, 4, 3, device=gpu, out=out)):
        assert (found == wanted).all()


def test_results_larger_than_a_part_arrive(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_executor.vulkan.transfers.SEGMENT_BYTES", 70_000)
    x = draw(BABYBEAR, 1 << 16, "montgomery")
    wanted = BABYBEAR.ntt(gpu.to_device(x)).to_host()
    out = BABYBEAR.zeros(1 << 16)
    assert (BABYBEAR.ntt(x, device=gpu, out=out) == wanted).all()
    assert (BABYBEAR.ntt(x, device=gpu) == wanted).all()


def test_the_host_copies_no_mapped_array(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    x, out = gpu.asarray(draw(FR, 1 << 13, "montgomery")), gpu.asarray(FR.zeros(1 << 13))
    wanted = FR.ntt(gpu.to_device(x)).to_host()
    for name in ("copy", "copy_segments"):
        monkeypatch.setattr(CopyThreads, name, None)
    assert FR.ntt(x, device=gpu, out=out) is out
    assert gpu._session.mapped.find(out.data) is not None
    monkeypatch.undo()
    assert (out == wanted).all()


def test_an_imported_array_is_used_in_place(gpu: Gpu) -> None:
    if "VK_EXT_external_memory_host" not in gpu.device.extensions:
        pytest.skip("the device cannot import arrays")
    x, out = draw(FR, 1 << 13, "montgomery"), FR.zeros(1 << 13)
    wanted = FR.ntt(gpu.to_device(x)).to_host()
    source, target = x.data, out.data
    assert isinstance(source, np.ndarray) and isinstance(target, np.ndarray)
    with gpu.import_array(source), gpu.import_array(target):
        FR.ntt(x, device=gpu, out=out)
    assert (out == wanted).all()


@pytest.mark.parametrize("on_device", [False, True])
def test_out_of_operands_in_one_place(gpu: Gpu, on_device: bool) -> None:
    x, out, wide = draw(BABYBEAR, (2, 64)), BABYBEAR.zeros((2, 64)), BABYBEAR.zeros((2, 128))
    wanted, extended = BABYBEAR.ntt(x), BABYBEAR.lde(x, 2)
    if on_device:
        x, out, wide = map(gpu.to_device, (x, out, wide))
    assert BABYBEAR.ntt(x, out=out) is out
    assert BABYBEAR.lde(x, 2, out=wide) is wide
    assert (out.to_host() == wanted).all() and (wide.to_host() == extended).all()
    assert BABYBEAR.ntt(x, out=x) is x
    assert (x.to_host() == wanted).all()
    BABYBEAR.intt(out, out=out[::-1][::-1])  # another view of the same elements
    assert (BABYBEAR.ntt(out).to_host() == wanted).all()


def make_read_only(array: FieldArray) -> FieldArray:
    array.data.flags.writeable = False  # type: ignore[union-attr]
    return array


def broadcast(field: Field) -> FieldArray:
    one = np.zeros((1, 4), np.uint64)
    return FieldArray(field, np.lib.stride_tricks.as_strided(one, (8, 4), (0, 8)), "montgomery")


def test_an_out_that_cannot_hold_the_result_is_refused(gpu: Gpu) -> None:
    x = draw(FR, 8)
    before, there = x.copy(), gpu.to_device(FR.zeros(8))
    cases: list[tuple[Any, type[Exception], str]] = [
        (np.zeros((8, 4), np.uint64), ArgumentTypeError, "out is .*takes a FieldArray"),
        (GOLDILOCKS.zeros(8), ArgumentTypeError, "out is an array of goldilocks"),
        (FR.zeros(7), ArgumentShapeError, r"out has shape \(7,\).*result has shape \(8,\)"),
        (FR.zeros((1, 8)), ArgumentShapeError, r"out has shape \(1, 8\)"),
        (there, ArgumentTypeError, "host"),
        (make_read_only(FR.zeros(8)), ArgumentTypeError, "out is read-only"),
        (broadcast(FR), ArgumentShapeError, "elements of out share memory"),
        (x[::-1], ArgumentShapeError, "out overlaps the argument"),
    ]
    for out, error, message in cases:
        for options in ({}, {"device": gpu}):
            for transform in (FR.ntt, FR.intt):
                with pytest.raises(error, match=message):
                    transform(x, out=out, **options)  # type: ignore[arg-type]
    y = FR.zeros(16)
    with pytest.raises(ArgumentShapeError, match="out overlaps the argument"):
        FR.ntt(y[:8], device=gpu, out=y[4:12])
    z = gpu.to_device(y)
    with pytest.raises(ArgumentShapeError, match="out overlaps the argument"):
        FR.ntt(z[:8], out=z[4:12])
    assert FR.ntt(z[:8], out=z[8:]).tolist() == [0] * 8
    with pytest.raises(ArgumentShapeError, match=r"result has shape \(16,\)"):
        FR.lde(x, 2, device=gpu, out=x)
    assert (x == before).all()


def test_a_device_that_cannot_transform_is_refused(gpu: Gpu) -> None:
    x = draw(FR, 8)
    with pytest.raises(ArgumentTypeError, match="device is an executor or a backend"):
        FR.ntt(x, device=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="leave device= out"):
        FR.ntt(gpu.to_device(x), device=gpu)
    with gx.VulkanSpirvBackend() as one_shot, pytest.raises(NotSupportedError, match="to_device"):
        FR.ntt(x, device=one_shot)


def test_a_wrong_length_is_refused(gpu: Gpu) -> None:
    for options in ({}, {"device": gpu}, {"device": gpu, "out": FR.zeros(6)}):
        with pytest.raises(ArgumentShapeError, match="rows of 2\\^k elements"):
            FR.ntt(draw(FR, 6), **options)


def test_a_graph_records_no_arrays_of_the_host(gpu: Gpu) -> None:
    x = gpu.to_device(draw(FR, 8))
    with gpu.graph(x) as graph:
        y = FR.ntt(x)
        with pytest.raises(GpuError, match="a graph is being recorded"):
            FR.ntt(draw(FR, 8), device=gpu)
    graph(x)
    assert (y.to_host() == FR.ntt(draw(FR, 8))).all()


def test_asarray_of_elements_stays_an_array_of_elements(device: Backend) -> None:
    x = draw(FR, (2, 3))
    made = device.asarray(x)
    assert isinstance(made, FieldArray) and made.form == x.form and (made == x).all()
    assert device.asarray(made) is made
    words = device.asarray(np.asarray(x))
    assert isinstance(words, np.ndarray)
