"""Deduplicates the changes of a batch to one table: finds the change of each key that is applied, repeats, errors and statistics.

UPSERT and DEBEZIUM UPSERT apply the last message of a key. DEBEZIUM applies the last change above the high-water mark
(`docs/reference/envelopes.md`, "High-water marks of DEBEZIUM"). There a change counts if it lies above everything applied before
it: by earlier batches (the high-water mark of its partition) and earlier in this batch (the changes of its key). Rows of one
connector snapshot share a position, so an equal position counts again; a row of the snapshot that is sent again later lies below.
Rows of an ad-hoc snapshot have no position: they count where Debezium placed them in the stream.

One engine deduplicates small and large batches. The engine sees headers, not rows; the README of this folder shows the parts.
"""
