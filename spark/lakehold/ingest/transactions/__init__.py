"""Whole transactions: where a batch of a source with a transaction topic may end.

A batch ends at a transaction boundary of the upstream database, so that at every timestamp the tables of the source show the
state of upstream after some transaction. `docs/internals/transactions.md` has the rules, their reasons and the tests that
check them.

`header_reader.py` uses Spark and the reader. All other modules are pure: columns in Arrow and NumPy, one engine for
few records and for many, which never goes through messages one by one.
"""
