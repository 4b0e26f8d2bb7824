"""Turns decoded records into changes: the effect of one message on one row, as the ENVELOPE clause of its table describes it."""
