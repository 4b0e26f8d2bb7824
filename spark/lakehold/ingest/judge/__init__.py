"""Judging: which changes of a batch decide the state of which keys, and what the batch amounts to.

UPSERT and DEBEZIUM UPSERT take the last message of a key. DEBEZIUM takes the last that the high-water mark has not passed
(`envelopes.md`, "Description"): a change counts if it lies above everything applied before it, whether in an earlier batch (the
marks of its partition) or earlier in this one (of the same key). Rows of one snapshot share a position, so an equal one counts
again; a resent one lies below. Rows of an ad-hoc snapshot have no position and Debezium places them in the stream itself:
they count where they stand.

Spark judges what is many (`by_spark`); what was read in the driver is judged there (`in_driver`), because a shuffle and an
aggregation cost more than the merge of a hundred changes. Both give the same, which a property test holds them to.
"""
