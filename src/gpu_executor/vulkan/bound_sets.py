"""Descriptor sets that are written again for each use, for arrays that are seldom the same twice.

A set is taken, written and bound, and given back when the device is done with it; then another
dispatch of as many arrays has it. So there are as many sets as dispatches were in flight at once,
and none is waited for. An update template (Vulkan 1.3, 14.2.6) writes one from packed numbers in a
single call.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpu_executor.vulkan.binding import Arena, Handle, out, vk
from gpu_executor.vulkan.descriptors import DescriptorSet
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.pipeline import make_set_layout
from gpu_executor.vulkan.resources import Resources

NUMBERS = 3
"""Of a binding: the buffer's handle, an offset, a length, as VkDescriptorBufferInfo has them."""


@dataclass(slots=True, eq=False)
class BoundSet:
    """A set, and the array of one handle that Vulkan wants it in."""

    own: DescriptorSet
    handles: Handle


@dataclass(slots=True, eq=False)
class _Kind:
    """Sets of one number of bindings."""

    layout: Handle
    template: Handle
    packed: struct.Struct
    idle: list[BoundSet] = field(default_factory=list)


class BoundSets:
    """One thread at a time."""

    def __init__(self, resources: Resources) -> None:
        self._device, self._pools = resources.device, resources.descriptors
        self._kinds: dict[int, _Kind] = {}

    def take(self, numbers: Sequence[int]) -> BoundSet:
        """A set that binds these: NUMBERS for each binding."""
        bindings = len(numbers) // NUMBERS
        kind = self._kinds.get(bindings)
        if kind is None:
            kind = self._kinds[bindings] = _make_kind(self._device, bindings)
        if kind.idle:
            taken = kind.idle.pop()
        else:
            own = self._pools.take(kind.layout, bindings)
            taken = BoundSet(own, vk.ffi.new("VkDescriptorSet[]", [own.handle]))
        data = vk.ffi.from_buffer(kind.packed.pack(*numbers))
        vk.vkUpdateDescriptorSetWithTemplate(
            self._device.handle, taken.own.handle, kind.template, data
        )
        return taken

    def give_back(self, sets: list[BoundSet]) -> None:
        """The device is done with them: empties the list."""
        while sets:
            each = sets.pop()  # first, so that an interrupt never gives one back twice
            self._kinds[each.own.bindings].idle.append(each)

    def close(self) -> None:
        """All of them must have been given back."""
        device, null = self._device.handle, vk.ffi.NULL
        for kind in self._kinds.values():
            for each in kind.idle:
                self._pools.release(each.own)
            vk.vkDestroyDescriptorUpdateTemplate(device, kind.template, null)
            vk.vkDestroyDescriptorSetLayout(device, kind.layout, null)
        self._kinds.clear()


def _make_kind(device: Device, bindings: int) -> _Kind:
    layout = make_set_layout(device, bindings)
    try:
        template = _make_template(device, layout, bindings)
    except BaseException:
        vk.vkDestroyDescriptorSetLayout(device.handle, layout, vk.ffi.NULL)
        raise
    return _Kind(layout, template, struct.Struct(f"={NUMBERS * bindings}Q"))


def _make_template(device: Device, layout: Handle, bindings: int) -> Handle:
    arena, nbytes = Arena(), vk.ffi.sizeof("VkDescriptorBufferInfo")
    entries = arena.array("VkDescriptorUpdateTemplateEntry", bindings)
    for binding, entry in enumerate(entries):
        entry.dstBinding, entry.descriptorCount = binding, 1
        entry.descriptorType = vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
        entry.offset, entry.stride = binding * nbytes, nbytes
    info = arena.new(
        "VkDescriptorUpdateTemplateCreateInfo",
        descriptorUpdateEntryCount=bindings,
        pDescriptorUpdateEntries=entries,
        templateType=vk.VK_DESCRIPTOR_UPDATE_TEMPLATE_TYPE_DESCRIPTOR_SET,
        descriptorSetLayout=layout,
    )
    template = out("VkDescriptorUpdateTemplate")
    vk.vkCreateDescriptorUpdateTemplate(device.handle, info, vk.ffi.NULL, template)
    return template[0]
