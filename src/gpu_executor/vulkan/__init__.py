"""Native Vulkan: everything that owns a Vulkan handle is in here."""
