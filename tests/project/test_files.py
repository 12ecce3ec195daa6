"""Files that are written whole, folders that can be written, and the cores of a job."""

import os

import pytest
from faults import no_longer_than

from hmmbook.cores import usable_cores
from hmmbook.files import writable_folder, write_whole


def test_a_text_is_written_as_utf_8_and_bytes_as_they_are(tmp_path):
    text = write_whole(tmp_path / "new" / "text", "|H| → 4\n")
    assert text.read_bytes() == "|H| → 4\n".encode()
    table = write_whole(tmp_path / "table", b"\x00\xff")
    assert table.read_bytes() == b"\x00\xff"


@pytest.mark.parametrize("size", [0, 10])
def test_a_write_that_fails_leaves_the_older_file_and_nothing_else(size, tmp_path):
    path = write_whole(tmp_path / "file.csv", "older")
    with no_longer_than(size), pytest.raises(OSError, match=f"{path} could not be written: .*File too large"):
        write_whole(path, "newer, and longer")
    assert path.read_text(encoding="utf8") == "older"
    assert os.listdir(tmp_path) == ["file.csv"]


def test_a_write_that_is_interrupted_leaves_the_older_file_and_nothing_else(tmp_path, monkeypatch):
    path = write_whole(tmp_path / "file.csv", "older")

    def interrupt(*paths):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "newer")
    assert path.read_text(encoding="utf8") == "older"
    assert os.listdir(tmp_path) == ["file.csv"]


def test_what_is_no_regular_file_is_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, pipe):
        with pytest.raises(OSError, match=f"{path} could not be written: it is no regular file"):
            write_whole(path, "text")
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_link_stays_and_the_file_that_it_leads_to_is_written(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "table.csv"
    link.symlink_to("elsewhere/table.csv")
    for text in ("new", "newer"):
        assert write_whole(link, text) == link
        assert os.readlink(link) == "elsewhere/table.csv"
        assert (tmp_path / "elsewhere" / "table.csv").read_text(encoding="utf8") == text
    assert os.listdir(tmp_path / "elsewhere") == ["table.csv"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o400])
def test_a_file_keeps_its_permissions(mode, tmp_path):
    path = write_whole(tmp_path / "table.csv", "older")
    path.chmod(mode)
    write_whole(path, "newer")
    assert path.stat().st_mode & 0o777 == mode


def test_a_tilde_is_the_users_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert write_whole("~/a file", "text") == tmp_path / "a file"
    assert writable_folder("networks", "~/a folder") == tmp_path / "a folder"


def test_a_job_has_fewer_cores_than_its_machine(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5}, raising=False)
    assert usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == 64, "where the system does not tell"
