"""Timelines: the timestamps at which tables are readable, and the snapshot that each of them means."""
