"""The vocabulary of batches and readers: values and what follows from them, without an engine or a store."""
