"""`TrustedSetup`: the points of a KZG ceremony on a device, and tables of their multiples.

Every KZG function takes a setup last, as ckzg's functions do.
"""

from __future__ import annotations

import math
import operator
import os
import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.backend import Backend, require_array_device
from gpu_executor.calls.arguments import describe
from gpu_executor.common.fork import raise_forked
from gpu_executor.curves import BLS12_381_G1, PointArray, PointTable
from gpu_executor.device_info import DeviceInfo
from gpu_executor.device_profiles import get_profile
from gpu_executor.errors import (
    ClosedError,
    GpuError,
    KzgArgumentError,
    KzgDataError,
    NotSupportedError,
    PointError,
)
from gpu_executor.executor import GpuExecutor
from gpu_executor.fields import BLS12_381_FR, FieldArray
from gpu_executor.kzg import pairing
from gpu_executor.kzg.cell_proofs import (
    CELLS,
    COLUMNS,
    CellProver,
    plan_fixed_sets,
    reverse_bits,
    transform_points,
)
from gpu_executor.kzg.inputs import ByteRows, make_point_error, split_items
from gpu_executor.kzg.setup_file import (
    G1_POINTS,
    SetupBytes,
    read_points,
    read_setup,
    write_points,
)
from gpu_executor.msm.plan import TABLE_BYTES, MsmPlan, count_table_bytes, plan_tables
from gpu_executor.msm.tables import make_multiples, make_table_of
from gpu_executor.settings import Settings

T = TypeVar("T")
MAX_PRECOMPUTE = 15
"""ckzg's largest `precompute`."""
TABLE_POINTS = G1_POINTS + CELLS * COLUMNS
"""Points that have tables of multiples. Each gets an equal share of the memory."""
LEAST_TABLE_BYTES = count_table_bytes(BLS12_381_G1.key, TABLE_POINTS)
"""The memory of the points alone, without multiples."""
TABLE_BYTES_ON_CPU = 2 * LEAST_TABLE_BYTES
"""The memory on a software driver, unless the caller says otherwise: one multiple of each point.
Lavapipe takes 4 s to make the tables and 2.9 s for the proofs of a blob. Without multiples the
proofs take 5.5 s. With 64 MiB they take 1.5 s, and the tables 9 s."""
HOST_DECODES = ("cpu",)
"""The kinds of devices for which arkworks decodes and checks points: it takes 0.2 ms a point, and
lavapipe 1.4 ms. Others decode from `VendorProfile.decoded_points` on."""


def load_trusted_setup(
    path: Any = None,
    precompute: int = 0,
    *,
    device: Backend | None = None,
    memory: int | None = None,
    gpu: Backend | None = None,
) -> TrustedSetup:
    """Load a trusted setup in ckzg's text format, check its points and put them on a device.

    Args:
        path (str | Path | file object | None): The setup; None is mainnet's.
        precompute (int): 0 to 15. Checked as ckzg does, and not used: `memory` decides.
        device (GpuExecutor | Backend | None): Where the setup computes: an executor or a backend
            with device arrays, which stays the caller's. Without one, the setup opens a
            `GpuExecutor` and closes it with itself.
        memory (int | None): The most bytes that all tables together may take on the device; None
            chooses by the kind of the device.
        gpu (GpuExecutor | Backend | None): Another name of `device`.
    """
    if not isinstance(precompute, int):
        raise KzgArgumentError(f"precompute must be an integer, not {describe(precompute)}")
    if not 0 <= precompute <= MAX_PRECOMPUTE:
        raise KzgDataError(f"precompute is {precompute}; it must be from 0 to {MAX_PRECOMPUTE}")
    if device is not None and gpu is not None:
        raise KzgArgumentError("device= and gpu= are two names of one argument; give one of them")
    given, name = (gpu, "gpu") if device is None else (device, "device")
    if given is not None and (not isinstance(given, Backend) or given.array_device is None):
        raise KzgArgumentError(
            f"{name}= must be an executor or a backend with device arrays, such as "
            f"gx.GpuExecutor(), not {describe(given)}"
        )
    _check_memory(memory)
    found = read_setup(path)
    if given is not None:
        return TrustedSetup(found, given, owns=False, memory=memory)
    opened = GpuExecutor()
    try:
        return TrustedSetup(found, opened, owns=True, memory=memory)
    except BaseException:
        opened.close()
        raise


def plan_setup(info: DeviceInfo, memory: int) -> tuple[MsmPlan, MsmPlan]:
    """The tables of the Lagrange points, and those of the fixed sets of cell proofs."""
    for_commitments = memory * G1_POINTS // TABLE_POINTS
    return (
        plan_tables(BLS12_381_G1.key, G1_POINTS, info, None, for_commitments),
        plan_fixed_sets(info, memory - for_commitments),
    )


class TrustedSetup:
    """The points of a trusted setup, checked, on a device. Threads may share it.

    `load_trusted_setup` makes it, and `close()` or the end of a `with` frees it.

    Args:
        found (SetupBytes): The points as bytes, and their source and digest.
        gpu (Backend): The executor or backend that computes.
        owns (bool): Whether closing the setup closes it.
        memory (int | None): The most bytes that all tables together may take on the device.
    """

    def __init__(self, found: SetupBytes, gpu: Backend, *, owns: bool, memory: int | None) -> None:
        device = require_array_device(gpu)
        if not device.runs_kernels:
            raise NotSupportedError("a trusted setup", device.backend, ("vulkan",))
        self.source = found.source
        self.digest = found.digest
        """SHA-256 of the compressed points, in hexadecimal digits."""
        self._gpu = gpu
        self._owns = owns
        if memory is None:
            memory = TABLE_BYTES_ON_CPU if gpu.device.kind == "cpu" else TABLE_BYTES
        self.memory = operator.index(memory)
        """The bytes that all tables together may take."""
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._made: dict[Callable[..., Any], Any] = {}
        self._closed = False
        self.g2_powers = pairing.load_g2_powers(found)
        """The powers 0 to 64 of the secret in G2."""
        self.g2_bytes = split_items(found.g2_powers)
        """The same as bytes, which were checked."""
        points = self._load_points(found)
        self.lagrange: PointArray = points[:G1_POINTS]
        """The Lagrange polynomials at the secret, in the order of a blob's values."""
        self.powers: PointArray = points[G1_POINTS:]
        """The powers 0 to 4095 of the secret in G1."""

    # --- points ---

    def _load_points(self, found: SetupBytes) -> PointArray:
        """The Lagrange points in bit-reversed order, then the powers, on the device."""

        def decode() -> PointArray:
            order = reverse_bits(G1_POINTS)
            points = self._decode(
                ByteRows(f"{found.source}: Lagrange points", found.lagrange[order], order.tolist()),
                ByteRows(f"{found.source}: powers of G1", found.powers, range(G1_POINTS)),
            )
            self._check_consistency(found.source, points)
            return points

        return self._load_cached("setup", (2 * G1_POINTS,), decode)

    def _load_cached(self, name: str, shape: Shape, make: Callable[[], PointArray]) -> PointArray:
        """Affine points on the device that this setup determines: from disk, or made and stored
        there. The name says which points."""
        folder = Settings.from_environment().cache_dir
        layout = BLS12_381_G1.get_layout("affine")
        size = math.prod(shape) * layout.element_bytes
        words = read_points(folder, name, self.digest, size)
        if words is not None:
            data = np.frombuffer(words, layout.column_dtype).reshape(*shape, *layout.element_shape)
            found = PointArray(BLS12_381_G1, data, known_in_subgroup=True)
            loaded: PointArray = self._gpu.to_device(found)
            return loaded
        points = make()
        if folder is not None:
            content = points.affine().words().tobytes()
            write_points(folder, name, self.digest, content)
        return points

    def _load_multiples(
        self, name: str, plan: MsmPlan, load_points: Callable[[], PointArray]
    ) -> PointArray:
        """The multiples of sets of points (sets, n) that a plan has tables of: (sets, tables, n).
        Files have them in the form of points, which no kernel changes."""

        def make() -> PointArray:
            data = load_points().affine().data
            assert isinstance(data, DeviceArray)
            return PointArray(BLS12_381_G1, make_multiples(BLS12_381_G1.key, plan, data))

        if plan.tables == 1:
            return make()
        shape = (plan.point_sets or 1, plan.tables, plan.points)
        return self._load_cached(f"{name}-{plan.tables}x{plan.window_bits}", shape, make)

    def _make_lagrange_table(self) -> PointTable:
        plan, _ = plan_setup(self._gpu.device, self.memory)
        multiples = self._load_multiples(
            "commitments", plan, lambda: self.lagrange.reshape(1, G1_POINTS)
        )
        words = self.lagrange.affine().data, plan, multiples.reshape(-1).affine().data
        known = self.lagrange.known_in_subgroup
        return make_table_of(BLS12_381_G1, *words, known_in_subgroup=known)

    def _make_cell_prover(self) -> CellProver:
        _, plan = plan_setup(self._gpu.device, self.memory)
        return CellProver(self._gpu, plan, self._load_multiples("cells", plan, self._load_cells))

    def _load_cells(self) -> PointArray:
        """The points of the fixed sets of cell proofs, on the device."""
        return self._load_cached(
            "transformed", (CELLS, COLUMNS), lambda: transform_points(self._gpu, self.powers)
        )

    def _check_consistency(self, source: str, points: PointArray) -> None:
        """Raise unless the points are the powers of the secret of G2, and the Lagrange polynomials
        at it.

        The commitment to a random polynomial is the same from its values as from its coefficients.
        Times the secret, it is the commitment to the polynomial times X.
        """
        weights = BLS12_381_FR.encode(pairing.draw_weights(G1_POINTS - 1))
        zero = BLS12_381_FR.zeros(1)
        lower = self.to_device(BLS12_381_FR.concatenate([weights, zero]))
        upper = self.to_device(BLS12_381_FR.concatenate([zero, weights]))
        powers = points[G1_POINTS:]
        values = BLS12_381_FR.ntt(lower, order_out="reversed")
        sums = BLS12_381_G1.msm(powers, BLS12_381_FR.stack([lower, upper]))
        by_values = BLS12_381_G1.msm(points[:G1_POINTS], values)
        both = BLS12_381_G1.concatenate([sums, by_values.reshape(1)])
        at_power, at_next, at_values = pairing.load_trusted(both.to_bytes())
        if at_values != at_power:
            raise KzgDataError(
                f"{source}: the Lagrange points are not those of the powers in G1; they must be in "
                "natural order"
            )
        if not pairing.pairings_equal(at_next, self.g2_powers[0], at_power, self.g2_powers[1]):
            raise KzgDataError(f"{source}: the points of G1 are not the powers of the secret of G2")

    def decodes(self, points: int) -> bool:
        """Whether the device decodes and checks so many points faster than arkworks."""
        info = self.gpu.device
        return info.kind not in HOST_DECODES and points >= get_profile(info).decoded_points

    def load_points(self, *arguments: ByteRows) -> list[PointArray]:
        """The points of every argument, checked, on the device."""
        self._check_usable()
        points = self._decode(*arguments)
        ends = np.cumsum([len(rows) for rows in arguments]).tolist()
        return [points[end - len(rows) : end] for rows, end in zip(arguments, ends, strict=True)]

    def _decode(self, *arguments: ByteRows) -> PointArray:
        """The points of all arguments, one after the other, checked, on the device."""
        if self._gpu.device.kind in HOST_DECODES:
            data = np.concatenate([pairing.uncompress(rows) for rows in arguments])
            return BLS12_381_G1.from_bytes(data, compressed=False, check=False, device=self._gpu)
        data = np.concatenate([rows.data for rows in arguments])
        try:
            return BLS12_381_G1.from_bytes(data, device=self._gpu)
        except PointError as error:
            index = error.index
            for rows in arguments:
                if index < len(rows):
                    raise make_point_error(rows, index, error.reason) from None
                index -= len(rows)
            raise

    # --- what functions share ---

    @property
    def gpu(self) -> Backend:
        """The executor or backend that computes."""
        self._check_usable()
        return self._gpu

    def to_device(self, array: FieldArray) -> FieldArray:
        """Copy elements to the device."""
        copied: FieldArray = self.gpu.to_device(array)
        return copied

    def get(self, make: Callable[[TrustedSetup], T]) -> T:
        """What a function makes of this setup, made once and kept."""
        self._check_usable()  # here for a forked process, whose lock may stay locked
        with self._lock:
            self._check_usable()  # here for a thread that waited while another one closed the setup
            if make not in self._made:
                self._made[make] = make(self)
            found: T = self._made[make]
            return found

    @property
    def lagrange_table(self) -> PointTable:
        """Multiples of the Lagrange points."""
        return self.get(TrustedSetup._make_lagrange_table)

    @property
    def cell_prover(self) -> CellProver:
        """What computes the proofs of cells."""
        return self.get(TrustedSetup._make_cell_prover)

    # --- lifetime ---

    def close(self) -> None:
        """Free the points and tables; close the executor if the setup opened it."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._made.clear()
            del self.lagrange, self.powers
        if self._owns:
            self._gpu.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise_forked()
        if self._closed:
            raise ClosedError("the trusted setup is closed; load_trusted_setup loads another one")

    def __repr__(self) -> str:
        if self._closed:
            return f"<TrustedSetup {self.digest[:16]} of {self.source}, closed>"
        if os.getpid() != self._process:
            return f"<TrustedSetup {self.digest[:16]} of {self.source}, of the parent process>"
        with self._lock:
            made = {
                name: self._made[make].nbytes
                for name, make in (
                    ("commitments", TrustedSetup._make_lagrange_table),
                    ("cell proofs", TrustedSetup._make_cell_prover),
                )
                if make in self._made
            }
        sizes = [f"{name} {size:,} bytes" for name, size in made.items()]
        tables = f"tables for {', '.join(sizes)}" if sizes else "no tables yet"
        device = self.lagrange.device.info.name
        return (
            f"<TrustedSetup {self.digest[:16]} of {self.source} on {device}: {tables}; at most "
            f"{self.memory:,} bytes>"
        )


def check_setup(setup: Any) -> TrustedSetup:
    """The setup, if it is one that can be used."""
    if not isinstance(setup, TrustedSetup):
        raise KzgArgumentError(
            f"the trusted setup is {describe(setup)}; load_trusted_setup loads one"
        )
    device = setup.gpu.array_device
    if device is not None and device.is_recording:
        raise GpuError(
            "a graph is being recorded, and KZG functions return bytes, which no graph computes; "
            "call them outside of the graph"
        )
    return setup


def _check_memory(memory: Any) -> None:
    if memory is None:
        return
    if isinstance(memory, bool) or not hasattr(memory, "__index__"):
        raise KzgArgumentError(f"memory must be a whole number of bytes, not {describe(memory)}")
    if memory < LEAST_TABLE_BYTES:
        raise KzgArgumentError(
            f"memory={memory:,}: the smallest tables of a trusted setup take "
            f"{LEAST_TABLE_BYTES:,} bytes"
        )
