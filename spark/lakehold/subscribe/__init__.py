"""Data out: snapshots -> diffs -> consolidated -> ordered or in an envelope."""
