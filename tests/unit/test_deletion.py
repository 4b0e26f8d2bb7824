"""Deletion of files that nothing refers to: files that are gone are no refusal, and a store that refuses all is not asked on."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest
from pyiceberg.io import load_file_io

from lakehold.iceberg import deletion
from lakehold.iceberg.deletion import Refusal, delete, delete_or_log, later, wait_for_deletions
from lakehold.iceberg.local_file_io import LocalFileIO
from tests.waiting import wait_for


class Store:
    """A store that refuses to delete files whose name has "kept"."""

    def __init__(self) -> None:
        self.asked = 0

    def delete_file(self, path: str) -> None:
        self.asked += 1
        if "kept" in path:
            raise OSError(f"Access Denied: {path}.")
        if "gone" in path:
            raise FileNotFoundError(path)


def test_refusals_are_counted_with_the_words_of_the_store() -> None:
    store = Store()
    names = [*(f"gone{n}" for n in range(20)), "kept1", *(f"file{n}" for n in range(20)), "kept2"]
    assert delete(store.delete_file, names) == Refusal(2, "Access Denied: kept1")
    assert store.asked == len(names)


def test_a_store_that_refuses_everything_is_not_asked_for_every_file() -> None:
    store = Store()
    names = ["file", *(f"kept{n}" for n in range(10_000))]
    assert delete(store.delete_file, names) == Refusal(10_000, "Access Denied: kept0")
    assert store.asked < 100


def test_nothing_is_refused_if_there_is_nothing_to_delete() -> None:
    assert not delete(Store().delete_file, [])


def test_a_later_deletion_that_fails_is_logged_and_keeps_no_other_from_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("no manifest")

    (tmp_path / "a").touch()
    later(fail)
    later(partial(delete_or_log, load_file_io({}), [str(tmp_path / "a")]))
    wait_for_deletions()
    assert not (tmp_path / "a").exists()
    assert "no manifest" in caplog.text


def test_later_deletions_run_in_their_order() -> None:
    ran: list[int] = []
    may_run = Event()

    def first() -> None:
        may_run.wait()
        ran.append(0)

    later(first)
    for number in range(1, 20):
        later(partial(ran.append, number))
    assert ran == []
    may_run.set()
    wait_for_deletions()
    assert ran == [*range(20)]


def test_who_waits_while_another_thread_begins_a_deletion_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    starting, may_start, ran = Event(), Event(), Event()

    class SlowThread(Thread):
        def start(self) -> None:
            starting.set()
            may_start.wait()
            super().start()

    monkeypatch.setattr(deletion, "Thread", SlowThread)
    with ThreadPoolExecutor(2) as threads:
        added = threads.submit(later, ran.set)
        assert starting.wait(10)
        waited = threads.submit(wait_for_deletions)
        try:
            with pytest.raises(TimeoutError):
                waited.result(0.05)
        finally:
            may_start.set()
        added.result()
        waited.result()
    assert ran.is_set()


def _wait_for(event: Event) -> None:
    event.wait()


def test_a_process_that_was_forked_meanwhile_deletes_what_its_own_commits_leave(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    may_end = Event()
    later(partial(_wait_for, may_end))
    child = os.fork()
    if not child:
        later(partial(os.unlink, tmp_path / "a"))
        wait_for_deletions()
        os._exit(0)
    try:
        wait_for(lambda: os.waitpid(child, os.WNOHANG)[0] == child, within_s=20)
        assert not (tmp_path / "a").exists()
    finally:
        may_end.set()
        wait_for_deletions()


def test_refusals_of_a_commit_are_logged_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()  # a folder, which is refused as a file
    (tmp_path / "c").touch()
    delete_or_log(load_file_io({}), [str(tmp_path / name) for name in ("a", "b", "c", "d")])
    (message,) = (each.getMessage() for each in caplog.records if each.name == deletion.__name__)
    assert "refused to delete 2 of 4 files, which maintenance tries again: " in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_the_checksum_that_spark_writes_beside_a_file_is_deleted_with_it(tmp_path: Path) -> None:
    for name in ("a.parquet", ".a.parquet.crc", "b.parquet", ".c.parquet.crc"):
        (tmp_path / name).touch()
    io = LocalFileIO()
    io.delete(f"file:{tmp_path}/a.parquet")
    io.delete(f"{tmp_path}/b.parquet")
    assert {file.name for file in tmp_path.iterdir()} == {".c.parquet.crc"}
