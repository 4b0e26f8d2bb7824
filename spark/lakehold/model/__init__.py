"""The vocabulary of batches and readers: values and rules, without an engine or a store."""
