"""Kafka Connect: its REST interface, and the topics through which lakehold and a connector exchange signals."""
