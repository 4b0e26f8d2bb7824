"""The placeholder of values that a message lacks: connectors are configured with it, and decoding recognises it."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from typing import Final

PLACEHOLDER: Final = "__debezium_unavailable_value"
"""The text that Debezium sends for a value that the database's log lacks, such as an unchanged large one of PostgreSQL."""

BYTES: Final = PLACEHOLDER.encode()
"""The placeholder of bytes. Arrays of integers have its bytes as elements."""

TEXTS: Final = (
    PLACEHOLDER,
    json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":")),
    base64.b64encode(BYTES).decode(),
    BYTES.hex(),
)
"""The placeholder of a text, an `hstore` (`hstore.handling.mode=json`), and bytes as a text (`binary.handling.mode`)."""

UUID: Final = str(uuid.UUID(bytes=hashlib.md5(BYTES, usedforsecurity=False).digest(), version=3))
"""The placeholder of a UUID in an array."""
