"""Whole transactions: where a batch of a source with a transaction topic may end.

A batch ends at a commit of the upstream database, so that at every timestamp the tables of the source are what upstream was
after some transaction. The rules, why they are so and which tests hold them: `docs/internals/transactions.md`.

`planning.py` and `records.py` use Spark and the reader. All other modules are pure: columns in Arrow and NumPy, one engine for
few records and for many, which never goes through messages one by one.
"""
