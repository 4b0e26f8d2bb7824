"""Turns decoded records into changes: the effect of one message on one row, by the envelope of its table."""
