"""`lakehold ingest` as processes that a test can kill, suspend and start again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_COMMAND = str(Path(sys.executable).with_name("lakehold"))
_ENDS_WITHIN_S = 180


@dataclass(frozen=True)
class IngestProcesses:
    """`lakehold ingest` on one source of one lake, as processes.

    Args:
        warehouse: The lake, unless the settings have another.
        source: The source.
        settings: Settings by name, for the environment.
        options: Further options of the command.
    """

    warehouse: Path
    source: str
    settings: Mapping[str, str | int]
    options: Sequence[str] = ()

    def start(self, **settings: str | int) -> subprocess.Popen[str]:
        """Start a process, with further settings."""
        chosen = {"warehouse": str(self.warehouse), **self.settings, **settings}
        environment = {f"LAKEHOLD_{name.upper()}": str(value) for name, value in chosen.items()}
        return subprocess.Popen(
            [_COMMAND, "ingest", self.source, "--quiet", "--format", "json", *self.options],
            cwd=self.warehouse.parent,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, **settings: str | int) -> tuple[int, str]:
        """Run a process to its end; returns its exit code (of a killed one the negative signal) and its stderr."""
        return self.ended(self.start(**settings))

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait for the end of a process that was started before; returns as `run` does."""
        try:
            _, stderr = process.communicate(timeout=_ENDS_WITHIN_S)
        finally:
            process.kill()
        return process.returncode, stderr
