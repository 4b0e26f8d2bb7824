"""The small parts of statements: tokens, names, types, durations, options and clauses that several statements have."""
