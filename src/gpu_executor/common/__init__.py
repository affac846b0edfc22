"""What every package may use: files, caches, fork handlers, dataclasses, keys of values."""
