"""Reads the records of a source: fetch offsets, plan, read."""
