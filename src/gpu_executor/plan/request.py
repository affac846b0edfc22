"""Request: the jobs that a plan is made for, and the options that the caller gave."""

from __future__ import annotations

from gpu_executor.calls.call import Operand, Signature
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import SettingsError
from gpu_executor.kernel import Grid, Kernel
from gpu_executor.plan.forecast import MAX_SLOTS, Work
from gpu_executor.settings import check_switch


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a call; None leaves the choice to the plan."""

    device_local: bool | None = None
    pipelined: bool | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        check_switch("device_local", self.device_local, (None, True, False))
        check_switch("pipelined", self.pipelined, (None, True, False))
        if self.depth is None:
            return
        least = 2 if self.pipelined else 1
        most = 1 if self.pipelined is False else MAX_SLOTS
        if not isinstance(self.depth, int) or not least <= self.depth <= most:
            raise SettingsError(
                f"depth is {self.depth} with pipelined={self.pipelined}; "
                f"it must be {least} to {most}"
            )

    @property
    def slots(self) -> int | None:
        """The requested number of slots, if the caller gave one."""
        return 1 if self.pipelined is False else self.depth


@dataclass(frozen=True, slots=True)
class Request:
    """Jobs of one kernel; the largest has `count` elements (1 or more)."""

    kernel: Kernel
    operands: tuple[Operand, ...]
    """The operands of the largest job."""
    count: int
    jobs: int = 1
    options: RunOptions = RunOptions()
    in_place: bool = False
    """Whether the inputs are in mapped memory, so that the host copies none of them."""
    recycled: bool = False
    """Whether the outputs are in recycled mapped memory, so that the host copies none of them."""
    grid: Grid | None = None
    """The work-groups of the largest job, if the kernel or the call gives them."""
    invocations: int | None = None
    """The invocations of the largest job without a grid; None: one for each element."""

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
        """Return a request for `jobs` calls, none larger than this signature.

        An empty call is planned like a call of one element, because a forecast divides by the
        number of bytes.
        """
        operands = signature.operands
        if signature.count == 0:
            operands = tuple(operand.resize(1) for operand in operands)
        return cls(
            signature.kernel,
            operands,
            max(signature.count, 1),
            jobs,
            options,
            in_place,
            recycled,
            signature.grid,
            max(signature.invocations, 1),
        )

    @property
    def bytes_in(self) -> int:
        """Input bytes of the largest job."""
        return sum(operand.nbytes for operand in self.operands if operand.is_input)

    @property
    def bytes_out(self) -> int:
        """Output bytes of the largest job."""
        return sum(operand.nbytes for operand in self.operands if operand.is_output)

    @property
    def work(self) -> Work:
        """The bytes that the largest job moves, and those that the host copies."""
        into, back = self.bytes_in, self.bytes_out
        return Work(into, back, 0 if self.in_place else into, 0 if self.recycled else back)

    def count_chunks(self, chunk: int) -> int:
        """Return the number of chunks of all jobs together."""
        return self.jobs * -(-self.count // chunk)
