"""Where a source's records come from: look, plan, read (design, "One batch")."""
