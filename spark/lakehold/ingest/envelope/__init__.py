"""Turns decoded records into changes: what one message does to one row, as its table's envelope says."""
