"""Settings: their defaults, environment variables, and invalid values."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_executor.errors import GpuError, SettingsError
from gpu_executor.settings import Settings

read = Settings.from_environment


@pytest.mark.parametrize("value", [3, b"folder", True, Path("a\0b"), "a\0b"])
def test_a_cache_dir_that_is_no_path_is_refused(value: Any) -> None:
    with pytest.raises(SettingsError, match=r"cache_dir is .*; it must be the path of a folder"):
        Settings(cache_dir=value)


def test_a_cache_dir_may_be_a_string() -> None:
    assert Settings(cache_dir="folder") == Settings(cache_dir=Path("folder"))  # type: ignore[arg-type]


def test_an_empty_environment_gives_the_defaults() -> None:
    assert read({}) == Settings(
        device=None,
        device_local=None,
        stream_chunk_elems=None,
        memory_limit=None,
        idle_memory=256 << 20,
        cache_dir=platformdirs.user_cache_path("gpu-executor"),
        calibrate=True,
        quick_pipelines=True,
        validation=False,
        spirv_val="auto",
    )


@pytest.mark.parametrize("home", ["/home/somebody", "relative", "", None])
@pytest.mark.parametrize("cache", ["/var/cache/own", "/with space/", "relative", "", None])
def test_the_cache_is_where_platformdirs_says(
    monkeypatch: pytest.MonkeyPatch, home: str | None, cache: str | None
) -> None:
    for name, value in (("GPU_CACHE_DIR", None), ("HOME", home), ("XDG_CACHE_HOME", cache)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert read().cache_dir == platformdirs.user_cache_path("gpu-executor")


def test_default_settings_store_nothing_on_disk_and_leave_chunks_to_the_plan() -> None:
    assert Settings().cache_dir is None
    assert Settings().stream_chunk_elems is None


def test_blank_variables_count_as_unset() -> None:
    numbers = {"GPU_STREAM_CHUNK_ELEMS": " ", "GPU_MEMORY_LIMIT": ""}
    switches = {"GPU_DEVICE_LOCAL": "", "GPU_CACHE": " ", "GPU_VALIDATION": ""}
    assert read({"GPU_DEVICE": "", "GPU_CACHE_DIR": ""} | numbers | switches) == read({})


def test_the_process_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_DEVICE", "llvmpipe")
    monkeypatch.setenv("GPU_STREAM_CHUNK_ELEMS", "77")
    settings = read()
    assert (settings.device, settings.stream_chunk_elems) == ("llvmpipe", 77)


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("GPU_DEVICE", "1", "device", "1"),
        ("GPU_DEVICE", "NVIDIA H200", "device", "NVIDIA H200"),
        ("GPU_STREAM_CHUNK_ELEMS", "1", "stream_chunk_elems", 1),
        ("GPU_STREAM_CHUNK_ELEMS", " 1_048_576 ", "stream_chunk_elems", 1 << 20),
        ("GPU_MEMORY_LIMIT", "8,589,934,592", "memory_limit", 1 << 33),
        ("GPU_IDLE_MEMORY", "1_000", "idle_memory", 1000),
        ("GPU_QUEUED_BYTES", "1_000_000", "queued_bytes", 1_000_000),
        ("GPU_WHEN_FULL", "raise", "when_full", "raise"),
        ("GPU_SPIRV_VAL", "require", "spirv_val", "require"),
        ("GPU_CACHE_DIR", "/somewhere/else", "cache_dir", Path("/somewhere/else")),
        ("GPU_CACHE", "0", "cache_dir", None),
        ("GPU_CACHE", "off", "cache_dir", None),
    ],
)
def test_each_variable_sets_one_field(variable: str, text: str, field: str, value: object) -> None:
    found = read({variable: text})
    assert getattr(found, field) == value
    others = {f.name for f in dataclasses.fields(Settings)} - {field}
    assert all(getattr(found, name) == getattr(read({}), name) for name in others)


@pytest.mark.parametrize(
    ("variable", "field"), [("GPU_DEVICE_LOCAL", "device_local"), ("GPU_VALIDATION", "validation")]
)
def test_a_switch_takes_the_usual_words(variable: str, field: str) -> None:
    for text in ("1", "true", "ON", " Yes "):
        assert getattr(read({variable: text}), field) is True
    for text in ("0", "False", "off", "no"):
        assert getattr(read({variable: text}), field) is False


def test_the_cache_switch_wins_over_the_cache_folder() -> None:
    assert read({"GPU_CACHE": "0", "GPU_CACHE_DIR": "/somewhere"}).cache_dir is None
    assert read({"GPU_CACHE": "1", "GPU_CACHE_DIR": "/somewhere"}).cache_dir == Path("/somewhere")


def test_a_tilde_in_the_cache_folder_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    found = read({"GPU_CACHE_DIR": "~/pipelines"}).cache_dir
    assert found == Path("/home/somebody/pipelines")


def test_a_home_folder_of_an_unknown_user_is_an_error_that_names_the_variable() -> None:
    with pytest.raises(SettingsError, match="GPU_CACHE_DIR is '~no-such-user/pipelines'"):
        read({"GPU_CACHE_DIR": "~no-such-user/pipelines"})


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("GPU_STREAM_CHUNK_ELEMS", "many", "is 'many'; it takes a whole number"),
        ("GPU_STREAM_CHUNK_ELEMS", "1.5", "is '1.5'; it takes a whole number"),
        ("GPU_STREAM_CHUNK_ELEMS", "0", "is 0; it takes a whole number of elements, 1 at least"),
        ("GPU_STREAM_CHUNK_ELEMS", "-4", "is -4; it takes a whole number of elements, 1 at least"),
        ("GPU_MEMORY_LIMIT", "8G", "is '8G'; it takes a whole number"),
        ("GPU_MEMORY_LIMIT", "0", "is 0; it takes a whole number of bytes, 1 at least"),
        ("GPU_IDLE_MEMORY", "0", "is 0; it takes a whole number of bytes, 1 at least"),
        ("GPU_QUEUED_BYTES", "-1", "is -1; it takes a whole number of bytes, 1 at least"),
        ("GPU_WHEN_FULL", "wait", "is 'wait'; it must be 'block' or 'raise'"),
        ("GPU_SPIRV_VAL", "1", "is '1'; it must be 'auto', 'off' or 'require'"),
        ("GPU_DEVICE_LOCAL", "2", "is '2'; set it to 1 or 0, or leave it unset"),
        ("GPU_CACHE", "never", "is 'never'; set it to 1 or 0, or leave it unset"),
        ("GPU_VALIDATION", "full", "is 'full'; set it to 1 or 0, or leave it unset"),
    ],
)
def test_an_invalid_value_is_an_error_that_names_the_variable(
    variable: str, text: str, words: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        read({variable: text})
    assert str(raised.value) == f"{variable} {words}"
    assert isinstance(raised.value, GpuError)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("stream_chunk_elems", 0, "is 0; it takes a whole number of elements, 1 at least"),
        ("stream_chunk_elems", "7", "is '7'; it takes a whole number of elements, 1 at least"),
        ("memory_limit", -1, "is -1; it takes a whole number of bytes, 1 at least"),
        ("memory_limit", 1e9, "is 1000000000.0; it takes a whole number of bytes, 1 at least"),
        ("queued_bytes", 0, "is 0; it takes a whole number of bytes, 1 at least"),
        ("queued_bytes", "1e6", "is '1e6'; it takes a whole number of bytes, 1 at least"),
        ("when_full", "wait", "is 'wait'; it must be 'block' or 'raise'"),
        ("when_full", None, "is None; it must be 'block' or 'raise'"),
        ("spirv_val", None, "is None; it must be 'auto', 'off' or 'require'"),
    ],
)
def test_an_invalid_field_is_an_error_that_names_the_field(
    field: str, value: Any, words: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        dataclasses.replace(Settings(), **{field: value})
    assert str(raised.value) == f"{field} {words}"


def test_settings_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().device = "another"  # type: ignore[misc]


TEXT = st.text("0129-+_., \t\n\0xbeEintrufals\u0663\u00b2\u00bd\udcff")
"""Text of what numbers and words are written with, digits of other scripts, and no valid text."""


@given(TEXT, st.sampled_from(["GPU_STREAM_CHUNK_ELEMS", "GPU_MEMORY_LIMIT", "GPU_CACHE"]))
def test_any_text_is_accepted_or_refused_with_the_variables_name(text: str, variable: str) -> None:
    try:
        assert isinstance(read({variable: text}), Settings)
    except SettingsError as error:
        assert str(error).startswith(f"{variable} is ")
