"""Random bad input against the real code: `make fuzz SECONDS=60`."""
