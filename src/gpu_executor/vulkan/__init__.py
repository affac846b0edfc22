"""The Vulkan backends. Every object that owns a Vulkan handle is in this package."""
