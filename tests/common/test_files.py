"""Files of the cache folder: which are read, and how they are written."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_executor.common import files
from gpu_executor.common.files import (
    check_writable,
    make_private_folder,
    parse_json,
    read_own_file,
    write_atomically,
)

NOBODY = 65534


def test_a_file_of_the_users_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"", b"content", bytes(1000)):
        path.write_bytes(content)
        assert read_own_file(path, 1000) == content


@pytest.mark.parametrize("depth", [101, 6_000, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"a": '])
def test_json_that_is_nested_too_deeply_is_a_value_error(depth: int, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(opening * depth + "1" + closing * depth)
    assert parse_json(opening * 100 + "1" + closing * 100) is not None
    assert parse_json('["' + r"\"[[{" * depth + '", ' + "[], " * depth + "1]")[-1] == 1


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def make_symlink(path: Path) -> None:
    (path.parent / "target").write_bytes(b"content")
    path.symlink_to("target")


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20 << 30)


def make_foreign(path: Path) -> None:
    path.write_bytes(b"content")
    os.chown(path, NOBODY, -1)


UNSAFE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a FIFO": (os.mkfifo, "it is not a regular file"),
    "a folder": (Path.mkdir, "it is not a regular file"),
    "a link to a file": (make_symlink, "it is a symbolic link"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "it is a symbolic link"),
    "a link to itself": (lambda path: path.symlink_to(path), "it is a symbolic link"),
    "20 GB": (make_sparse, "it has more than 1,000 bytes"),
    "of another user": (make_foreign, f"it belongs to user {NOBODY}"),
}


@pytest.mark.parametrize(("make", "words"), UNSAFE.values(), ids=UNSAFE)
def test_other_files_are_refused(
    tmp_path: Path, make: Callable[[Path], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    if make is make_foreign and os.geteuid() != 0:
        path.write_bytes(b"content")
        monkeypatch.setattr(os, "geteuid", lambda: NOBODY + 1)
        words = f"it belongs to user {path.stat().st_uid}"
    else:
        make(path)
    handles = count_open_files()
    with pytest.raises(OSError, match=re.escape(words)) as raised:
        read_own_file(path, 1000)
    assert str(path) in str(raised.value)
    assert count_open_files() == handles


def test_a_device_is_refused() -> None:
    with pytest.raises(OSError, match="it is not a regular file"):
        read_own_file(Path("/dev/zero"), 1000)


def test_a_file_of_root_is_read() -> None:
    assert read_own_file(Path("/etc/passwd"), 1 << 20)


def test_files_and_folders_are_made_for_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = tmp_path / "a" / "b" / "file"
        write_atomically(path, b"content")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, tmp_path / "a")]
    assert modes == [0o600, 0o700, 0o700]
    assert path.read_bytes() == b"content"


@pytest.mark.parametrize("name", [name for name in UNSAFE if name != "a folder"])
def test_writing_replaces_what_is_not_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    try:
        UNSAFE[name][0](path)
    except PermissionError:
        return  # only root gives files away
    write_atomically(path, b"new")
    assert read_own_file(path, 1000) == b"new"
    if name == "a link to a file":
        assert (tmp_path / "target").read_bytes() == b"content"


def test_writing_in_a_folder_that_was_deleted_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(OSError, match="No such file"):
        write_atomically(Path("file"), b"content")


# --- as on Windows ---


def test_a_file_that_another_process_has_open_keeps_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(13, "The process cannot access the file", str(target))

    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PermissionError):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_links_are_refused_where_no_flag_of_opening_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_NOFOLLOW")
    monkeypatch.delattr(os, "geteuid")
    monkeypatch.setattr(files, "OPEN_FLAGS", os.O_RDONLY)
    make_symlink(tmp_path / "file")
    with pytest.raises(OSError, match=r"it is a symbolic link.*file"):
        read_own_file(tmp_path / "file", 1000)
    assert read_own_file(tmp_path / "target", 1000) == b"content"


# --- files for results ---


def test_a_file_that_can_be_written_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    check_writable(path)
    assert not path.exists()
    path.write_text("old")
    check_writable(path)
    assert path.read_text() == "old"
    check_writable(Path("/dev/null"))
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    check_writable(link)
    assert link.is_symlink()
    assert not link.exists()


def test_a_pipe_is_not_opened_to_try_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    check_writable(tmp_path / "pipe")


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for wrong in (tmp_path, tmp_path / "missing" / "file", tmp_path / "file" / "file"):
        with pytest.raises(OSError, match=re.escape(str(wrong))):
            check_writable(wrong)


# --- folders for machine code ---


def test_a_private_folder_is_made_for_the_user_alone(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b")
    make_private_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("open_to_others", ["a/b", "a"])
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_can_write_to_is_not_private(
    tmp_path: Path, open_to_others: str, mode: int
) -> None:
    make_private_folder(tmp_path / "a" / "b")
    (tmp_path / open_to_others).chmod(mode)
    with pytest.raises(OSError, match=rf"other users can write to it: .*{open_to_others}'"):
        make_private_folder(tmp_path / "a" / "b")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "a" / "b")
    with pytest.raises(OSError, match="other users can write to it"):
        make_private_folder(link)


def test_sticky_folders_above_keep_a_folder_private(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b")
    (tmp_path / "a").chmod(0o1777)
    make_private_folder(tmp_path / "a" / "b")
    (tmp_path / "a" / "b").chmod(0o1777)
    with pytest.raises(OSError, match="other users can write to it"):
        make_private_folder(tmp_path / "a" / "b")


def test_a_folder_of_another_user_is_not_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.geteuid()
    if owner == 0:
        os.chown(tmp_path, 12345, -1)
        owner = 12345
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(OSError, match=f"it belongs to user {owner}"):
        make_private_folder(tmp_path)
