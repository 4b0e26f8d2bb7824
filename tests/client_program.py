"""Programs of clients, each in a Python process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ENDS_WITHIN_S = 240


def output_of(program: str, *arguments: str, cwd: Path, given: str = "") -> str:
    """Run a program to its end, and return what it writes; if it fails, the test fails with its errors.

    Args:
        program: The program's text.
        arguments: Its arguments.
        cwd: Its working directory.
        given: What it reads from its standard input.
    """
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        input=given,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=_ENDS_WITHIN_S,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
