"""Targets of the Makefile, from which tests take the commands that they run."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from tests.doc_pages import ROOT


def commands(target: str, **variables: object) -> list[list[str]]:
    """Return the commands that `make TARGET` would run, each as a list of words.

    Args:
        target: The target; none of its commands runs.
        **variables: Variables of make. Commands of Python's environment are those of the running one.
    """
    assigned = [f"{name}={value}" for name, value in {"BIN": Path(sys.executable).parent, **variables}.items()]
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target, *assigned],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [shlex.split(line) for line in done.stdout.splitlines()]
