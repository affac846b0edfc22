"""Places: arrays that the device can reach where they are, so that nothing need be copied for it.

A place is a range of a buffer: an array in mapped memory, imported memory, or memory on the card.
"""

from __future__ import annotations

from typing import NamedTuple

from gpu_executor.call import Form
from gpu_executor.plan import Piece
from gpu_executor.vulkan.binding import Handle


class Place(NamedTuple):
    """Where an operand's first element lies."""

    buffer: Handle
    offset: int
    on_card: bool
    serial: int
    """Tells buffers apart that had the same handle one after the other: commands that name one that
    is gone must not be taken for commands on the next."""


Places = tuple[Place | None, ...]
"""One per operand, inputs then outputs; None for those that are copied."""


def of_piece(places: Places, form: Form, piece: Piece) -> Places:
    """The places of a piece of a call."""
    if piece.start == 0:
        return places
    return tuple(
        None
        if place is None
        else place._replace(offset=place.offset + piece.start * operand.type.nbytes)
        for place, operand in zip(places, form.operands, strict=True)
    )
