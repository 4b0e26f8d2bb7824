"""The console through which commands print tables and pictures."""

from __future__ import annotations

import errno
import os
from typing import NoReturn

import rich.console


class Console(rich.console.Console):
    """A console that reports a closed pipe as any other stream does; Rich's own would end the program with exit code 1."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise the error that Rich has caught."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
