"""Calibrations as JSON and in files: read back as written, or refused and replaced."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor.device_info import DeviceInfo
from gpu_executor.plan.calibration import LARGE_COPY_BYTES, VERSION, Calibration
from gpu_executor.vulkan import disk_cache
from gpu_executor.vulkan.disk_cache import calibration_path, read_calibration, write_calibration
from tests.support.calibrations import (
    H200,
    LAVAPIPE,
    MAYBE_TIMES,
    NAMES,
    is_sound,
    random_calibrations,
)

TEXT = H200.to_json()
HUGE = 10**400
"""An integer that is too large for a float."""

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=3), st.just(HUGE)
)
lists = st.lists(st.lists(scalars, max_size=3) | scalars, max_size=3)
any_json = scalars | lists | st.dictionaries(st.text(max_size=3), lists, max_size=3)


@pytest.fixture(scope="module")
def info() -> DeviceInfo:
    return gx.devices()[0]


def change_text(**changes: Any) -> str:
    """The JSON of a calibration with some fields changed."""
    return json.dumps(json.loads(TEXT) | changes)


@settings(max_examples=30)
@given(calibration=random_calibrations(), seconds=st.floats(1e-9, 1e9), when=st.text())
def test_a_calibration_is_read_back_as_it_was_written(
    calibration: Calibration, seconds: float, when: str
) -> None:
    calibration = dataclasses.replace(calibration, seconds=seconds, when=when)
    assert Calibration.from_json(calibration.to_json()) == calibration
    assert is_sound(calibration)


def test_the_json_has_every_field_and_a_version() -> None:
    content = json.loads(TEXT)
    assert content.pop("version") == VERSION
    assert content.keys() == {field.name for field in dataclasses.fields(Calibration)}
    assert (content["copy_in"], content["host_copy"][-1]) == (45.7e9, [8, 68.8e9])


def test_missing_and_unknown_fields_are_refused() -> None:
    for name in ["version", "host_copy", "when", *NAMES]:
        content = json.loads(TEXT)
        del content[name]
        with pytest.raises(ValueError, match=name):
            Calibration.from_json(json.dumps(content))
    with pytest.raises(ValueError, match="'tide'"):
        Calibration.from_json(change_text(tide=1.0))


@pytest.mark.parametrize("version", [0, 1, VERSION + 1, "2", None, [1], {}, -1, math.nan])
def test_another_version_is_refused(version: Any) -> None:
    with pytest.raises(ValueError, match=f"not a calibration of version {VERSION}"):
        Calibration.from_json(change_text(version=version))


INVALID_NUMBERS: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    -1,
    -1e-9,
    0,
    0.0,
    -0.0,
    5e-324,
    1e-13,
    1.1e18,
    1e308,
    "1",
    "",
    [],
    [1.0],
    {},
    {"a": 1},
]


@pytest.mark.parametrize(
    "value", [*INVALID_NUMBERS, HUGE, -HUGE], ids=lambda value: str(value)[:12]
)
def test_values_that_are_no_rate_or_time_are_refused(value: Any) -> None:
    for name in NAMES:
        with pytest.raises(ValueError):
            Calibration.from_json(change_text(**{name: value}))


@pytest.mark.parametrize("value", [None, 0, 1, "true", []])
def test_a_direct_fill_is_true_or_false(value: Any) -> None:
    with pytest.raises(ValueError, match="direct_fill is neither true nor false"):
        Calibration.from_json(change_text(direct_fill=value))


def test_only_times_of_optional_queues_may_be_null() -> None:
    for name in NAMES:
        text = change_text(**{name: None})
        if name in MAYBE_TIMES:
            assert getattr(Calibration.from_json(text), name) is None
            continue
        with pytest.raises(ValueError):
            Calibration.from_json(text)


INVALID_THREAD_COUNTS: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    None,
    [],
    {},
    "two",
    "",
    0,
    -1,
    -HUGE,
]
INVALID_PAIRS: list[Any] = [
    [],
    None,
    {},
    "1",
    3.0,
    [1],
    [[]],
    [[1]],
    [[1, 2.0, 3.0]],
    ["12"],
    [{"1": 1.0, "2": 2.0}],
    [[1, 1e9], None],
    *([[1, wrong]] for wrong in (*INVALID_NUMBERS, None, HUGE)),
    *([[wrong, 1e9]] for wrong in INVALID_THREAD_COUNTS),
]


@pytest.mark.parametrize("pairs", INVALID_PAIRS, ids=lambda pairs: str(pairs)[:20])
def test_invalid_pairs_of_threads_and_rates_are_refused(pairs: Any) -> None:
    with pytest.raises(ValueError):
        Calibration.from_json(change_text(host_copy=pairs))


@pytest.mark.parametrize("when", [None, 20261115, ["2026-11-15"], {}, True])
def test_a_date_that_is_no_string_is_refused(when: Any) -> None:
    with pytest.raises(ValueError):
        Calibration.from_json(change_text(when=when))


OTHER_TEXTS = {
    "nothing": "",
    "a zero byte": "\0",
    "a number": "1",
    "null": "null",
    "a list": "[1]",
    "a string": '"calibration"',
    "an empty object": "{}",
    "more than one": TEXT + TEXT,
    "a mark before it": "\ufeff" + TEXT,
    "a long number": change_text().replace("45700000000.0", "9" * 5000),
    "a deep list": "[" * 100_000,
    "a deep object": '{"copy_in":' * 100_000,
}


@pytest.mark.parametrize("text", OTHER_TEXTS.values(), ids=OTHER_TEXTS)
def test_text_that_is_no_calibration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Calibration.from_json(text)


@given(text=st.text() | st.integers(0, len(TEXT) - 1).map(lambda end: TEXT[:end]))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Calibration.from_json(text)


@given(name=st.sampled_from(["host_copy", *NAMES]), value=any_json)
def test_any_value_is_refused_or_makes_a_sound_calibration(name: str, value: Any) -> None:
    try:
        calibration = Calibration.from_json(change_text(**{name: value}))
    except ValueError:
        return
    assert is_sound(calibration)


@pytest.mark.parametrize(
    ("rates", "best"),
    [
        ((9.8e9,), 1),
        ((9.8e9, 21.7e9, 41.7e9, 68.8e9), 8),
        ((10e9, 10.4e9, 10.5e9, 9e9), 1),  # within 5 %
        ((10e9, 19e9, 20e9, 20e9), 4),
        ((10e9, 30e9, 20e9, 5e9), 2),
    ],
)
def test_choose_threads_takes_the_fewest_within_5_percent_of_the_best_rate(
    rates: tuple[float, ...], best: int
) -> None:
    pairs = tuple((1 << at, rate) for at, rate in enumerate(rates))
    calibration = dataclasses.replace(H200, host_copy=pairs)
    assert calibration.choose_threads() == best


def test_threads_share_large_copies_only() -> None:
    assert H200.estimate_copy(0) == 0
    assert H200.estimate_copy(9800) == pytest.approx(1e-6)
    assert H200.estimate_copy(LARGE_COPY_BYTES - 1) == (LARGE_COPY_BYTES - 1) / 9.8e9
    assert H200.estimate_copy(LARGE_COPY_BYTES) == 40e-6 + LARGE_COPY_BYTES / 34e9


def test_each_device_and_driver_has_a_file_of_its_own(info: DeviceInfo, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "on the way"
    write_calibration(folder, info, H200)
    names = ["uuid", "driver", "driver_version", "pipeline_cache_uuid"]
    changes: list[dict[str, Any]] = [{name: "0" * 32} for name in names]
    others = [dataclasses.replace(info, **change) for change in changes]
    for other in others:
        assert read_calibration(folder, other) is None
        write_calibration(folder, other, LAVAPIPE)
    assert read_calibration(folder, info) == H200
    assert all(read_calibration(folder, other) == LAVAPIPE for other in others)
    assert len(list(folder.iterdir())) == 5
    write_calibration(folder, info, LAVAPIPE)
    assert read_calibration(folder, info) == LAVAPIPE
    assert len(list(folder.iterdir())) == 5


def test_a_missing_file_is_no_calibration_and_no_warning(
    info: DeviceInfo, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_calibration(tmp_path, info) is None
    assert caplog.text == ""
    calibration_path(tmp_path, info).mkdir()
    assert read_calibration(tmp_path, info) is None
    assert "the calibration was not read: " in caplog.text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"\0" * 100,
        TEXT[:-1].encode(),
        change_text(version=0).encode(),
        b"[" * 10**5,
    ],
    ids=["empty", "no text", "zeros", "truncated", "an old version", "deep"],
)
def test_a_garbled_file_is_logged_ignored_and_replaced(
    info: DeviceInfo, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    path = calibration_path(tmp_path, info)
    path.write_bytes(content)
    assert read_calibration(tmp_path, info) is None
    assert f"{path} is not a calibration of {info.name} and will be replaced" in caplog.text
    write_calibration(tmp_path, info, H200)
    assert read_calibration(tmp_path, info) == H200
    assert list(tmp_path.iterdir()) == [path]


def test_files_of_other_versions_of_the_package_are_left_alone(
    info: DeviceInfo,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as older:
        older.setattr(disk_cache, "VERSION", VERSION - 1)
        path = calibration_path(tmp_path, info)
    path.write_text(change_text(version=VERSION - 1))
    assert read_calibration(tmp_path, info) is None
    write_calibration(tmp_path, info, H200)
    assert read_calibration(tmp_path, info) == H200
    assert path.exists() and not caplog.text


def test_a_failing_disk_is_only_a_warning(
    info: DeviceInfo,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError("no space left on device")

    in_the_way = tmp_path / "a file"
    in_the_way.write_text("where the folder should be")
    write_calibration(in_the_way, info, H200)
    assert "the calibration was not stored" in caplog.text
    write_calibration(tmp_path, info, H200)
    caplog.clear()
    monkeypatch.setattr(Path, "replace", refuse)
    write_calibration(tmp_path, info, LAVAPIPE)
    assert "the calibration was not stored: no space left on device" in caplog.text
    assert read_calibration(tmp_path, info) == H200
    assert sorted(tmp_path.iterdir()) == [in_the_way, calibration_path(tmp_path, info)]
