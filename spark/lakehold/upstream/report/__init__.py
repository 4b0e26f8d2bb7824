"""Reports differences to people: refusals, hints, and stops of tables."""
