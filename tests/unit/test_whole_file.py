"""Files that commands write: whole or not at all, and nothing but an ordinary file is replaced."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lakehold.cli.whole_file import write_whole


def test_a_file_is_replaced_where_a_link_leads(tmp_path: Path) -> None:
    target, link = tmp_path / "new" / "page.html", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(target)
    for text in ("first", "second"):
        write_whole(link, text)
        assert (link.is_symlink(), target.read_text()) == (True, text)
    assert os.listdir(target.parent) == ["page.html"]


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=write_whole, args=(pipe, "text"))
    writing.start()
    assert pipe.read_text() == "text"
    writing.join()
    assert pipe.is_fifo()


def test_a_directory_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, "text")
    assert os.listdir(tmp_path) == []


def test_a_command_runs_with_stderr_closed() -> None:
    lakehold = Path(sys.executable).with_name("lakehold")
    ran = subprocess.run(["sh", "-c", f"'{lakehold}' --version 2>&-"], stdout=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stdout.split()[0]) == (0, "lakehold")
