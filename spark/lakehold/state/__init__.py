"""The lake's own state: tables of `mz_catalog`, each change a compare-and-set."""
