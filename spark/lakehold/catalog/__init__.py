"""The lake's own state: `mz_catalog` tables, each change a compare-and-set (design, "System tables").

In reading order: `properties` and `schemas` say where the lake is and what is in it, `opening` opens it,
`compare_and_set` with `expiry` is the one way to change it, `state_table` and `log_table` are the two shapes of table.
On them stand `definitions` with `objects` (what is declared) and `readers`, `batches` with `batch_rows` (how far it
is); `memory` has their twins for tests. `data_tables` looks at the tables that users read.
"""
