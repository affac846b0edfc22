"""WebAssembly by wasmtime: one engine for each process, and compiled modules, which are kept.

Compiled modules are kept in memory, and on disk in the cache folder of the settings. What is there
is machine code that runs in this process: a folder that other users can write to is not used.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import threading
from typing import TYPE_CHECKING, Any

from gpu_executor.common.files import make_private_folder, write_atomically
from gpu_executor.common.fork import is_forked_child, register_at_fork
from gpu_executor.common.lru import LruCache
from gpu_executor.errors import MissingExtraError
from gpu_executor.settings import Settings

if TYPE_CHECKING:
    from wasmtime import Engine, Module

MAGIC = b"\0asm"
FOLDER = "wasmtime"
MOST_MODULES = 8
"""Compiled modules that are kept in memory."""

_lock = threading.Lock()
_engine: Engine | None = None
_modules: LruCache[bytes, Module] = LruCache()


def get_wasmtime() -> Any:
    """The module of wasmtime."""
    try:
        import wasmtime
    except ModuleNotFoundError:
        raise MissingExtraError("computing a witness", "wasmtime", "groth16") from None
    return wasmtime


def get_engine() -> Engine:
    """The engine of this process. Modules and stores of one engine cannot be used with another."""
    global _engine  # noqa: PLW0603
    with _lock:
        if _engine is None:
            _engine = _make_engine()
        return _engine


def compile_module(code: bytes | str) -> Module:
    """The module of wasm bytes, or of our own WebAssembly text, compiled once.

    Raises wasmtime's error for bytes that are not a valid module.

    Args:
        code (bytes | str): The bytes, or the text.
    """
    data = code.encode() if isinstance(code, str) else code
    key = hashlib.sha256(data).digest()
    with _lock:
        known = _modules.use(key)
    if known is not None:
        return known
    module: Module = get_wasmtime().Module(get_engine(), code)
    with _lock:
        _modules[key] = module
        _modules.evict(MOST_MODULES)
    return module


def _make_engine() -> Engine:
    wasmtime = get_wasmtime()
    config = wasmtime.Config()
    # The threads that compile do not survive a fork, and a child would wait for them forever.
    config.parallel_compilation = not is_forked_child()
    # A trap is an exception, also where another library, such as Ray, has replaced the signal
    # handlers of wasmtime: the process would end.
    config.signals_based_traps = False
    file = _write_cache_settings()
    if file is not None:
        # A folder that wasmtime cannot use costs the cache, never the call.
        with contextlib.suppress(wasmtime.WasmtimeError):
            config.cache = file
    engine: Engine = wasmtime.Engine(config)
    return engine


def _write_cache_settings() -> str | None:
    """The file with wasmtime's settings of its cache, or None where nothing can be kept on disk."""
    cache = Settings.from_environment().cache_dir
    if cache is None:
        return None
    folder = cache.absolute() / FOLDER
    file = folder / "cache.toml"
    try:
        make_private_folder(folder)
        # A string of JSON is one of TOML too.
        write_atomically(file, f"[cache]\ndirectory = {json.dumps(str(folder))}\n".encode())
    except OSError:
        return None
    return str(file)


def _forget() -> None:
    """Drop everything: in a forked child, because the engine has threads of the parent, and one of
    them may have held the lock; and at the end of the process."""
    global _lock, _engine  # noqa: PLW0603
    _lock = threading.Lock()
    _engine = None
    _modules.clear()


register_at_fork(after_in_child=_forget)
# What Python frees while it ends prints exceptions: wasmtime's own functions are gone by then.
atexit.register(_forget)
