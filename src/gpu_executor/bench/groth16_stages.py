"""The stages of a Groth16 proof on a device, and the times that their arithmetic needs at least.

The commands of each stage are recorded by themselves and replayed many times in a row. A proof
records all stages together, so that the device overlaps those that do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_executor.bench import fields
from gpu_executor.bench.msm import bound_additions
from gpu_executor.bench.timing import DEFAULT_BUDGET, TimingBudget, time_resident
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.fields import Field
from gpu_executor.groth16.proof_curve import ProofCurve
from gpu_executor.groth16.prover import SECTIONS, ResidentProver
from gpu_executor.msm.plan import MsmPlan
from gpu_executor.msm.prepared import CapturedSteps
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

TRANSFORMS = 6
"""Inverse transforms of a, b and c, and transforms of their values on the odd points."""
ELEMENTWISE_PRODUCTS = 5
"""Products of a row of the domain besides transforms: a b on both sets of points, and a, b and c
times powers of the root of unity."""
ACCUMULATE = "accumulate "


@dataclass(frozen=True, slots=True)
class ProofStageRow:
    """The stages of a proof; the attributes are the keys of the JSON files."""

    curve: str
    circuit: str
    log_constraints: int
    device_ms: float
    """All commands of a proof as they are recorded, without uploads and the host."""
    stages_ms: dict[str, float]
    """The median of replays of each stage by itself."""
    products_ms: dict[str, float]
    """What the products of a stage take at the rate of products in chains. Stages whose products
    depend on the values of the witness have none."""


@dataclass(frozen=True, slots=True)
class ProductRates:
    """Products per second in chains, or None where no kernel chains products of the prime."""

    coordinates: float | None
    scalars: float | None


def measure_rates(gpu: PersistentVulkanBackend, curve: ProofCurve) -> ProductRates:
    """Measure products of the primes of the coordinates and of the witness."""
    sizes = fields.choose_sizes(gpu.device)
    coordinates = curve.g1.field
    assert isinstance(coordinates, Field)
    return ProductRates(
        fields.measure_product_chains(gpu, coordinates, sizes),
        fields.measure_product_chains(gpu, curve.scalar_field, sizes),
    )


class StageRecorder:
    """Records the commands of each stage by themselves."""

    def __init__(self, device: ArrayDevice) -> None:
        self._device = device
        self.stages: dict[str, CapturedSteps] = {}
        self.plans: dict[str, MsmPlan] = {}
        """The additions of the stages that accumulate."""
        self._current: CapturedSteps | None = None

    def record(self, prover: ResidentProver) -> None:
        """Record all stages of a proof of the witness that is on the device."""
        try:
            prover.compute(self._begin)
        except BaseException as error:
            self._end(type(error))
            raise
        self._end(None)

    def _begin(self, name: str, plan: MsmPlan | None) -> None:
        self._end(None)
        if name.startswith(ACCUMULATE):
            name = ACCUMULATE + SECTIONS[int(name.removeprefix(ACCUMULATE))].upper()
        if plan is not None:
            self.plans[name] = plan
        self._current = self.stages[name] = CapturedSteps(self._device)
        self._current.__enter__()

    def _end(self, kind: type[BaseException] | None) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.__exit__(kind)


def measure_stages(
    gpu: PersistentVulkanBackend,
    prover: ResidentProver,
    curve: ProofCurve,
    circuit: str,
    log_constraints: int,
    rates: ProductRates | None,
    budget: TimingBudget = DEFAULT_BUDGET,
) -> ProofStageRow:
    """Time the stages on the witness of the last proof; with `rates`, their products alone too."""
    recorder = StageRecorder(gpu._session.device_memory)
    recorder.record(prover)
    for each in recorder.stages.values():  # in order, so that each has what it reads
        each.replay()
    replays = [prover.replay, *(each.replay for each in recorder.stages.values())]
    whole, *taken = (1e3 * each for each in time_resident(gpu, replays, budget))
    alone = (
        {}
        if rates is None
        else compute_products_alone(curve, log_constraints, recorder.plans, rates)
    )
    stages = dict(zip(recorder.stages, taken, strict=True))
    return ProofStageRow(curve.name, circuit, log_constraints, whole, stages, alone)


def compute_products_alone(
    curve: ProofCurve, log_domain: int, plans: Mapping[str, MsmPlan], rates: ProductRates
) -> dict[str, float]:
    """Milliseconds that products take: those of the transforms, and those of all additions."""
    alone = {}
    if rates.scalars is not None:
        per_row = TRANSFORMS * log_domain / 2 + ELEMENTWISE_PRODUCTS
        alone["quotient"] = 1e3 * per_row * (1 << log_domain) / rates.scalars
    if rates.coordinates is not None:
        for name, plan in plans.items():
            group = curve.g2 if name.endswith("B2") else curve.g1
            bound = bound_additions(group, rates.coordinates, plan.rounds)
            alone[name] = 1e3 * plan.entries / bound
    return alone


def shorten_stages(stages: Mapping[str, float]) -> dict[str, float]:
    """Stages for tables and charts: accumulations by the name of their section, and the selection
    of signals as a part of making digits."""
    names = {"signals": "digits, sort"}
    shown: dict[str, float] = {}
    for name, taken in stages.items():
        short = names.get(name, name.removeprefix(ACCUMULATE))
        shown[short] = shown.get(short, 0.0) + taken
    return shown
