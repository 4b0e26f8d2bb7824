"""Clients of Kafka and of schema registries, and the options that they and Spark connect with."""
