"""Compares what is wanted with what was found. Each module finds one kind of difference, refuses it, or hints at it."""
