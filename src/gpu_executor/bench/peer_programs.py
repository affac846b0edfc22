"""The same work by this package and by its peers: one program for each package.

A program opens its package once, prepares the objects of one size once, and is called many times,
as a user of the package would write it. All programs have one interface, `PeerProgram`, so that
they are checked and timed in the same way.

This module is also the script of the fresh processes in which first calls are measured. Therefore
it imports nothing of this package at its head: the import is part of the first call.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt

Operation = Literal[
    "sum",
    "batch of sums",
    "products",
    "polynomial product",
    "commitments",
    "point sum",
]
Uint32s = npt.NDArray[np.uint32]
Pair = tuple[Uint32s, Uint32s]
Point = tuple[int, int]

MODULUS = 15 * 2**27 + 1
"""The prime of BabyBear. Products of elements fit into 64 bits, so every array package has them."""
GENERATOR = 31
WORK_GROUP = 256
BLOB_BYTES = 131_072
FIRST_ELEMENTS = 1 << 10
FIRST_WORK: Mapping[str, str] = {
    "sum": f"a sum of {FIRST_ELEMENTS:,} 32-bit integers",
    "products": f"{FIRST_ELEMENTS:,} BabyBear products",
    "polynomial product": f"a product of two polynomials of {FIRST_ELEMENTS:,} coefficients",
    "commitments": "a KZG commitment of one blob, with loading the setup",
    "point sum": "a multiple of one point",
}
"""What the first call of a process does, by operation."""
RESULT = "first call: "
"""The beginning of the line that a fresh process prints."""
SPIRV = Path(__file__).parents[1] / "kernels" / "spirv" / "vector_add_u32.spv"
GENERATOR_POINT = (
    0x17F1D3A73197D7942695638C4FA9AC0FC3688C4F9774B905A14E3A3F171BAC586C55E83FF97A1AEFFB3AF00ADB22C6BB,
    0x08B3F481E3AAA0F1A09E30ED741D8AE4FCF5E095D5D00AF600DB18CB2C04B3EDD03CC744A2888AE40CAA232946C5E7E1,
)
"""The generator of BLS12-381 G1."""


@dataclass(frozen=True, slots=True)
class PreparedWork:
    """Work whose inputs and objects exist. `call` is timed; `read` converts its result to the form
    that is checked: an array of uint32, bytes, or the coordinates of a point."""

    call: Callable[[], Any]
    read: Callable[[Any], Any] = lambda result: result


class PeerProgram:
    """A program that does the work with one package. A method that a package has no program for
    returns None."""

    name: ClassVar[str]
    module: ClassVar[str]
    """The name to import."""
    distribution: ClassVar[str]
    """The name to install."""
    summary: ClassVar[str]
    """What the program does, in words."""
    first: ClassVar[Operation] = "sum"
    """The work whose first call in a fresh process is measured, as is this package's."""
    device: str = "CPU"

    def __init__(self) -> None:
        self.package: Any = importlib.import_module(self.module)

    def close(self) -> None:
        """Free what the program holds."""

    def prepare(self, operation: Operation, *inputs: Any) -> PreparedWork | None:
        """Prepare the work; None if the package has no program for the operation."""
        methods: dict[Operation, Callable[..., PreparedWork | None]] = {
            "sum": self.prepare_sum,
            "batch of sums": self.prepare_batch,
            "products": self.prepare_products,
            "polynomial product": self.prepare_polynomial_product,
            "commitments": self.prepare_commitments,
            "point sum": self.prepare_point_sum,
        }
        return methods[operation](*inputs)

    def prepare_adder(self, count: int) -> Callable[[Uint32s, Uint32s], Any] | None:
        """A function that adds two arrays of this length and returns a new array."""
        return None

    def prepare_sum(self, a: Uint32s, b: Uint32s) -> PreparedWork | None:
        add = self.prepare_adder(len(a))
        return None if add is None else PreparedWork(lambda: add(a, b))

    def prepare_batch(self, jobs: Sequence[Pair]) -> PreparedWork | None:
        """The sums of many pairs of arrays of one length: by default one after the other."""
        add = self.prepare_adder(len(jobs[0][0]))
        return None if add is None else PreparedWork(lambda: [add(a, b) for a, b in jobs])

    def prepare_products(self, a: Uint32s, b: Uint32s) -> PreparedWork | None:
        """Products modulo `MODULUS`, element by element."""
        return None

    def prepare_polynomial_product(self, a: Uint32s, b: Uint32s) -> PreparedWork | None:
        """The product of two polynomials modulo `MODULUS`, the constant terms first."""
        return None

    def prepare_commitments(self, blobs: npt.NDArray[np.uint8], setup: Path) -> PreparedWork | None:
        """The KZG commitments of blobs, joined, with the setup of a file."""
        return None

    def prepare_point_sum(
        self, points: Sequence[Point], scalars: Sequence[int]
    ) -> PreparedWork | None:
        """The sum of multiples of points of BLS12-381 G1, as affine coordinates."""
        return None


class OwnProgram(PeerProgram):
    """This package, on an open Vulkan device."""

    name, module, distribution = "gpu-executor", "gpu_executor", "gpu-executor"
    summary = "run, run_batch, Field.mul, poly_mul, msm and KZG on one open Vulkan device"

    def __init__(self) -> None:
        super().__init__()
        self._gpu = self.package.PersistentVulkanBackend()
        self._setup: Any = None
        self.device = self._gpu.device.name

    def close(self) -> None:
        if self._setup is not None:
            self._setup.close()
        self._gpu.close()

    def prepare_adder(self, count: int) -> Callable[[Uint32s, Uint32s], Any]:
        kernel = importlib.import_module("gpu_executor.kernels").load("vector_add_u32")
        return lambda a, b: self._gpu.run(kernel, a, b)

    def prepare_batch(self, jobs: Sequence[Pair]) -> PreparedWork:
        kernel = importlib.import_module("gpu_executor.kernels").load("vector_add_u32")
        return PreparedWork(lambda: self._gpu.run_batch(kernel, jobs))

    def prepare_products(self, a: Uint32s, b: Uint32s) -> PreparedWork:
        return self._prepare_field_operation("mul", a, b)

    def prepare_polynomial_product(self, a: Uint32s, b: Uint32s) -> PreparedWork:
        return self._prepare_field_operation("poly_mul", a, b)

    def _prepare_field_operation(self, name: str, a: Uint32s, b: Uint32s) -> PreparedWork:
        field = importlib.import_module("gpu_executor.fields").BABYBEAR
        operation = getattr(field, name)

        def compute() -> Any:
            x, y = (field.from_words(self._gpu.to_device(each), "canonical") for each in (a, b))
            return operation(x, y).numpy()

        return PreparedWork(compute)

    def prepare_commitments(self, blobs: npt.NDArray[np.uint8], setup: Path) -> PreparedWork:
        kzg = importlib.import_module("gpu_executor.kzg")
        if self._setup is None:
            self._setup = kzg.load_trusted_setup(setup, device=self._gpu)
        return PreparedWork(
            lambda: kzg.blob_to_kzg_commitment_batch(blobs, self._setup),
            lambda commitments: commitments.tobytes(),
        )

    def prepare_point_sum(self, points: Sequence[Point], scalars: Sequence[int]) -> PreparedWork:
        curve = importlib.import_module("gpu_executor.curves").BLS12_381_G1
        resident = self._gpu.to_device(curve.from_affine(*map(list, zip(*points, strict=True))))

        def add_up() -> Point:
            found = curve.msm(resident, list(scalars))
            return int(found.x.ints()), int(found.y.ints())

        return PreparedWork(add_up)


class NumpyProgram(PeerProgram):
    name, module, distribution = "NumPy", "numpy", "numpy"
    summary = "a + b; a * b % p with 64-bit integers"

    def prepare_adder(self, count: int) -> Callable[[Uint32s, Uint32s], Any]:
        return np.add

    def prepare_products(self, a: Uint32s, b: Uint32s) -> PreparedWork:
        modulus = np.uint64(MODULUS)

        def multiply() -> Any:
            return (a.astype(np.uint64) * b % modulus).astype(np.uint32)

        return PreparedWork(multiply)


class WgpuProgram(PeerProgram):
    """wgpu-py's public calls in the usual way, without a cache beyond the objects of one size."""

    name, module, distribution = "wgpu-py", "wgpu", "wgpu"
    summary = "write_buffer, one dispatch, read_buffer; pipeline and buffers of a size made once"
    code = """
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> result: array<u32>;
@compute @workgroup_size({work_group})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    if (id.x < arrayLength(&result)) {{ result[id.x] = a[id.x] + b[id.x]; }}
}}
"""

    def __init__(self) -> None:
        super().__init__()
        with _silence_wgpu():
            adapter = self.package.gpu.request_adapter_sync(power_preference="high-performance")
            self._device = adapter.request_device_sync()
        self._pipeline = self._device.create_compute_pipeline(
            layout="auto",
            compute={
                "module": self._device.create_shader_module(
                    code=self.code.format(work_group=WORK_GROUP)
                ),
                "entry_point": "main",
            },
        )
        self.device = adapter.info["device"]

    def close(self) -> None:
        self._device.destroy()

    def prepare_adder(self, count: int) -> Callable[[Uint32s, Uint32s], Any]:
        device, queue, usage = self._device, self._device.queue, self.package.BufferUsage
        buffers = [
            device.create_buffer(size=4 * count, usage=usage.STORAGE | copies)
            for copies in (usage.COPY_DST, usage.COPY_DST, usage.COPY_SRC)
        ]
        group = device.create_bind_group(
            layout=self._pipeline.get_bind_group_layout(0),
            entries=[
                {"binding": index, "resource": {"buffer": buffer}}
                for index, buffer in enumerate(buffers)
            ],
        )

        def add(a: Uint32s, b: Uint32s) -> Any:
            queue.write_buffer(buffers[0], 0, a)
            queue.write_buffer(buffers[1], 0, b)
            encoder = device.create_command_encoder()
            compute_pass = encoder.begin_compute_pass()
            compute_pass.set_pipeline(self._pipeline)
            compute_pass.set_bind_group(0, group)
            compute_pass.dispatch_workgroups(-(-count // WORK_GROUP))
            compute_pass.end()
            queue.submit([encoder.finish()])
            return np.frombuffer(queue.read_buffer(buffers[2]), np.uint32)

        return add


@contextlib.contextmanager
def _silence_wgpu() -> Iterator[None]:
    """Open a device without pages on standard error: wgpu's list of the features of drawing that a
    driver lacks, and complaints of Mesa's device selection where there is no Wayland.

    `webgpu/device.py` does the same, which a peer's program does not import."""
    log, variable = logging.getLogger("wgpu"), "NODEVICE_SELECT"
    asked = {variable, "MESA_VK_DEVICE_SELECT", "XDG_RUNTIME_DIR"}
    level, added = log.level, not asked & os.environ.keys()
    log.setLevel(logging.ERROR)
    if added:
        os.environ[variable] = "1"
    try:
        yield
    finally:
        log.setLevel(level)
        if added:
            del os.environ[variable]


class OpenClProgram(PeerProgram):
    name, module, distribution = "PyOpenCL", "pyopencl", "pyopencl"
    summary = "enqueue_copy, one kernel, enqueue_copy; program and buffers of a size made once"
    code = """
__kernel void add(__global const uint *a, __global const uint *b, __global uint *result) {
    size_t i = get_global_id(0);
    result[i] = a[i] + b[i];
}
"""

    def __init__(self) -> None:
        super().__init__()
        devices = [each for found in self.package.get_platforms() for each in found.get_devices()]
        # A GPU if there is one, or else the CPU by PoCL.
        devices.sort(key=lambda each: not each.type & self.package.device_type.GPU)
        if not devices:
            raise RuntimeError("no OpenCL platform has a device; PoCL offers the CPU as one")
        self._context = self.package.Context([devices[0]])
        self._queue = self.package.CommandQueue(self._context)
        self._program = self.package.Program(self._context, self.code).build()
        self.device = f"{devices[0].name} ({devices[0].platform.name})"

    def prepare_adder(self, count: int) -> Callable[[Uint32s, Uint32s], Any]:
        cl, queue = self.package, self._queue
        flags = cl.mem_flags.READ_ONLY, cl.mem_flags.READ_ONLY, cl.mem_flags.WRITE_ONLY
        buffers = [cl.Buffer(self._context, each, 4 * count) for each in flags]
        kernel = cl.Kernel(self._program, "add")

        def add(a: Uint32s, b: Uint32s) -> Any:
            result = np.empty(count, np.uint32)
            cl.enqueue_copy(queue, buffers[0], a, is_blocking=False)
            cl.enqueue_copy(queue, buffers[1], b, is_blocking=False)
            kernel(queue, (count,), None, *buffers)
            cl.enqueue_copy(queue, result, buffers[2])
            return result

        return add


class KomputeProgram(PeerProgram):
    name, module, distribution = "Kompute", "kp", "kp"
    summary = "a recorded sequence: sync to the device, dispatch, sync to the host"

    def __init__(self) -> None:
        super().__init__()
        self._manager = self.package.Manager()
        self.device = str(self._manager.get_device_properties()["device_name"])

    def close(self) -> None:
        self._manager.destroy()

    def prepare_adder(self, count: int) -> Callable[[Uint32s, Uint32s], Any]:
        kp, manager = self.package, self._manager
        tensors = [manager.tensor_t(np.zeros(count, np.uint32)) for _ in range(3)]
        algorithm = manager.algorithm(
            tensors,
            SPIRV.read_bytes(),
            (-(-count // WORK_GROUP), 1, 1),
            np.array([WORK_GROUP], np.uint32),
            np.array([count], np.uint32),
        )
        sequence = manager.sequence()
        sequence.record(kp.OpTensorSyncDevice(tensors[:2]))
        sequence.record(kp.OpAlgoDispatch(algorithm, np.array([count], np.uint32)))
        sequence.record(kp.OpTensorSyncLocal(tensors[2:]))

        def add(a: Uint32s, b: Uint32s) -> Any:
            tensors[0].data()[:] = a
            tensors[1].data()[:] = b
            sequence.eval()
            return tensors[2].data().copy()

        return add


class VkdispatchProgram(PeerProgram):
    name, module, distribution = "vkdispatch", "vkdispatch", "vkdispatch"
    summary = "write, one shader, read; shader and buffers of a size made once"

    def __init__(self) -> None:
        super().__init__()
        context = self.package.make_context(use_cpu=True)  # a CPU only if there is no GPU
        self.device = context.device_infos[0].device_name
        codegen = importlib.import_module("vkdispatch.codegen")
        buffer = codegen.Buffer[self.package.uint32]

        def add(result: Any, a: Any, b: Any) -> None:
            index = codegen.global_invocation_id().x
            result[index] = a[index] + b[index]

        # vkdispatch reads the types of the arguments from the annotations.
        add.__annotations__ = dict.fromkeys(("result", "a", "b"), buffer)
        self._shader = self.package.shader("result.size")(add)

    def prepare_adder(self, count: int) -> Callable[[Uint32s, Uint32s], Any]:
        x, y, result = (self.package.asbuffer(np.zeros(count, np.uint32)) for _ in range(3))

        def add(a: Uint32s, b: Uint32s) -> Any:
            x.write(a)
            y.write(b)
            self._shader(result, x, y)
            return result.read(0)

        return add


class CupyProgram(PeerProgram):
    name, module, distribution = "CuPy", "cupy", "cupy"
    summary = "asarray, a + b or a * b % p, asnumpy"

    def __init__(self) -> None:
        super().__init__()
        found = self.package.cuda.runtime.getDeviceProperties(0)["name"]
        self.device = found.decode()

    def prepare_adder(self, count: int) -> Callable[[Uint32s, Uint32s], Any]:
        cupy = self.package
        return lambda a, b: cupy.asnumpy(cupy.asarray(a) + cupy.asarray(b))

    def prepare_products(self, a: Uint32s, b: Uint32s) -> PreparedWork:
        cupy, modulus = self.package, np.uint64(MODULUS)

        def multiply() -> Any:
            x, y = (cupy.asarray(each).astype(np.uint64) for each in (a, b))
            return cupy.asnumpy((x * y % modulus).astype(np.uint32))

        return PreparedWork(multiply)


class TorchProgram(PeerProgram):
    name, module, distribution = "PyTorch", "torch", "torch"
    summary = "from_numpy, to(device), a + b or a * b % p, cpu; CUDA if there is one"

    def __init__(self) -> None:
        super().__init__()
        cuda = self.package.cuda
        self._place = "cuda" if cuda.is_available() else "cpu"
        self.device = cuda.get_device_name() if cuda.is_available() else "CPU"

    def _load(self, array: Uint32s) -> Any:
        # Signed: PyTorch has few operations on unsigned integers. Sums wrap in the same way.
        return self.package.from_numpy(array.view(np.int32)).to(self._place)

    def prepare_adder(self, count: int) -> Callable[[Uint32s, Uint32s], Any]:
        return lambda a, b: (self._load(a) + self._load(b)).cpu().numpy().view(np.uint32)

    def prepare_products(self, a: Uint32s, b: Uint32s) -> PreparedWork:
        torch = self.package

        def multiply() -> Any:
            x, y = (self._load(each).to(torch.int64) for each in (a, b))
            return (x * y % MODULUS).to(torch.int32).cpu().numpy().view(np.uint32)

        return PreparedWork(multiply)


class GaloisProgram(PeerProgram):
    name, module, distribution = "galois", "galois", "galois"
    summary = "x * y of field arrays; polynomials by ntt and intt; arrays made before"
    first = "products"

    def __init__(self) -> None:
        super().__init__()
        self._field = self.package.GF(MODULUS, primitive_element=GENERATOR, verify=False)

    def _load(self, array: Uint32s) -> Any:
        return self._field(array.astype(np.int64))

    @staticmethod
    def _read(result: Any) -> Uint32s:
        return np.asarray(result.view(np.ndarray)).astype(np.uint32)

    def prepare_products(self, a: Uint32s, b: Uint32s) -> PreparedWork:
        x, y = self._load(a), self._load(b)
        return PreparedWork(lambda: x * y, self._read)

    def prepare_polynomial_product(self, a: Uint32s, b: Uint32s) -> PreparedWork:
        x, y, galois = self._load(a), self._load(b), self.package
        count = len(a) + len(b) - 1
        size = 1 << (count - 1).bit_length()

        def multiply() -> Any:
            return galois.intt(galois.ntt(x, size) * galois.ntt(y, size))[:count]

        return PreparedWork(multiply, self._read)


class FlintProgram(PeerProgram):
    name, module, distribution = "python-flint", "flint", "python-flint"
    summary = "nmod_poly products; single nmod products, for there are no arrays; made before"
    first = "polynomial product"

    def prepare_products(self, a: Uint32s, b: Uint32s) -> PreparedWork:
        nmod = self.package.nmod
        x, y = ([nmod(value, MODULUS) for value in each.tolist()] for each in (a, b))
        return PreparedWork(
            lambda: [p * q for p, q in zip(x, y, strict=True)],
            lambda result: np.array([int(each) for each in result], np.uint32),
        )

    def prepare_polynomial_product(self, a: Uint32s, b: Uint32s) -> PreparedWork:
        x, y = (self.package.nmod_poly(each.tolist(), MODULUS) for each in (a, b))
        count = len(a) + len(b) - 1

        def read(result: Any) -> Uint32s:
            found = np.zeros(count, np.uint32)  # FLINT leaves out leading zeros
            coefficients = [int(each) for each in result.coeffs()]
            found[: len(coefficients)] = coefficients
            return found

        return PreparedWork(lambda: x * y, read)


class CkzgProgram(PeerProgram):
    name, module, distribution = "ckzg", "ckzg", "ckzg"
    summary = "blob_to_kzg_commitment, one blob after the other on one thread"
    first = "commitments"

    def prepare_commitments(self, blobs: npt.NDArray[np.uint8], setup: Path) -> PreparedWork:
        ckzg, loaded = self.package, self.package.load_trusted_setup(str(setup), 0)
        each_blob = [blob.tobytes() for blob in blobs]
        return PreparedWork(
            lambda: [ckzg.blob_to_kzg_commitment(blob, loaded) for blob in each_blob], b"".join
        )


class PyEccProgram(PeerProgram):
    name, module, distribution = "py_ecc", "py_ecc.optimized_bls12_381", "py-ecc"
    summary = "multiply and add of optimized_bls12_381, one point after the other, then normalize"
    first = "point sum"

    def prepare_point_sum(self, points: Sequence[Point], scalars: Sequence[int]) -> PreparedWork:
        curve = self.package
        converted = [(curve.FQ(x), curve.FQ(y), curve.FQ(1)) for x, y in points]

        def add_up() -> Any:
            total = curve.Z1
            for point, scalar in zip(converted, scalars, strict=True):
                total = curve.add(total, curve.multiply(point, scalar))
            return curve.normalize(total)

        return PreparedWork(add_up, lambda point: (int(point[0]), int(point[1])))


PROGRAMS: Sequence[type[PeerProgram]] = (
    OwnProgram,
    NumpyProgram,
    WgpuProgram,
    OpenClProgram,
    KomputeProgram,
    VkdispatchProgram,
    CupyProgram,
    TorchProgram,
    GaloisProgram,
    FlintProgram,
    CkzgProgram,
    PyEccProgram,
)


def make_first_inputs(operation: Operation, setup: Path) -> tuple[Any, ...]:
    """Small inputs for the first call of a process, the same for every package."""
    match operation:
        case "commitments":
            return np.zeros((1, BLOB_BYTES), np.uint8), setup
        case "point sum":
            return [GENERATOR_POINT], [random.Random(1).getrandbits(254)]
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, MODULUS, FIRST_ELEMENTS, np.uint32) for _ in range(2))
    return a, b


def main(name: str, operation: Operation, setup: str) -> None:
    """Do the work with one package once; print when it ended and the memory held, as JSON."""
    program = next(each for each in PROGRAMS if each.name == name)()
    prepared = program.prepare(operation, *make_first_inputs(operation, Path(setup)))
    assert prepared is not None
    prepared.call()
    ended = time.time()
    from gpu_executor.common.main_memory import read_resident_bytes  # no part of what is timed

    found = {"ended": ended, "resident_bytes": read_resident_bytes()}
    print(RESULT + json.dumps(found), flush=True)
    program.close()


if __name__ == "__main__":
    name, operation, setup = sys.argv[1:]
    main(name, cast(Operation, operation), setup)
