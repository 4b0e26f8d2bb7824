"""SUBSCRIBE: computes the diffs between snapshots, consolidates them and shapes them as ordered rows or an envelope."""
