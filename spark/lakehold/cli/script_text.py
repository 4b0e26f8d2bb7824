"""The text of a script that `lakehold sql` runs: an argument, a file or standard input."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from lakehold.errors import LakeholdError, bad_byte


def script_text(text: str | None, file: Path | None) -> str:
    """Return the text; of `text` and `file` one must be given.

    Raises:
        LakeholdError: It is not, or the file cannot be read.
    """
    if (text is None) == (file is None):
        raise LakeholdError("expected SQL text or --file, one of them", code="usage", hint='lakehold sql "SHOW TABLES"')
    if text is not None:
        return text
    name = "standard input" if str(file) == "-" else f'file "{file}"'
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else Path(str(file)).read_bytes()
        return io.StringIO(content.decode("utf-8-sig"), newline=None).read()
    except OSError as error:
        raise LakeholdError(f"{name} cannot be read", code="usage", detail=f"{error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise LakeholdError(
            f"{name} is not UTF-8", code="usage", detail=bad_byte(error), hint="Convert it to UTF-8."
        ) from error
