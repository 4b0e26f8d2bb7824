"""Plans the steps from what was found to what is wanted."""
