"""The lake's own state: `mz_catalog` tables, each change a compare-and-set (design, "System tables").

In reading order: `properties` and `schemas` say where the lake is and what is in it, `opening` opens it, `attempts` is
how a table is changed while others change it, `compare_and_set` with `expiry` the one way to change rows, `state_table`
and `log_table` are the two shapes of table; `refs` with `metadata_files` changes tags of any table.
On them stand `definitions` with `objects` (what is declared) and `readers`, `batches` with `batch_rows` (how far it
is); `memory` has their twins for tests. `data_tables` looks at the tables that users read.
"""
