"""What is to be planned."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_executor.call import Operand, Signature
from gpu_executor.errors import SettingsError
from gpu_executor.kernel import Kernel
from gpu_executor.plan.forecast import MOST_SLOTS, Work


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the caller asks for; None leaves it to the plan."""

    device_local: bool | None = None
    pipelined: bool | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        if self.depth is None:
            return
        least = 2 if self.pipelined else 1
        most = 1 if self.pipelined is False else MOST_SLOTS
        if not isinstance(self.depth, int) or not least <= self.depth <= most:
            raise SettingsError(
                f"depth is {self.depth} with pipelined={self.pipelined}; it takes {least} to {most}"
            )

    @property
    def slots(self) -> int | None:
        """The number of slots that is asked for, if one is."""
        return 1 if self.pipelined is False else self.depth


@dataclass(frozen=True, slots=True)
class Request:
    """Jobs of one kernel, the largest of them on `count` elements (1 or more)."""

    kernel: Kernel
    operands: tuple[Operand, ...]
    """Of the largest job."""
    count: int
    jobs: int = 1
    options: RunOptions = RunOptions()
    in_place: bool = False
    """Whether the device reaches the inputs where they are."""
    recycled: bool = False
    """The same of the outputs."""

    @classmethod
    def of(
        cls,
        signature: Signature,
        jobs: int,
        options: RunOptions,
        *,
        in_place: bool = False,
        recycled: bool = False,
    ) -> Request:
        """For so many calls, none of a larger form than this one. Empty ones are planned like those
        of one element: nothing is foreseen from no bytes at all."""
        operands = signature.operands
        if signature.count == 0:
            operands = tuple(Operand(operand.type, 1) for operand in operands)
        count = max(signature.count, 1)
        return cls(signature.kernel, operands, count, jobs, options, in_place, recycled)

    @property
    def bytes_in(self) -> int:
        """Of the largest job."""
        return sum(operand.nbytes for operand in self.operands[: self.kernel.inputs])

    @property
    def bytes_out(self) -> int:
        return sum(operand.nbytes for operand in self.operands[self.kernel.inputs :])

    @property
    def work(self) -> Work:
        """What is moved for the largest job, and what of it the host copies."""
        into, back = self.bytes_in, self.bytes_out
        return Work(into, back, 0 if self.in_place else into, 0 if self.recycled else back)

    def pieces(self, chunk: int) -> int:
        """Of all jobs together."""
        return self.jobs * -(-self.count // chunk)
