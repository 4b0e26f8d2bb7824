"""From the bytes of Kafka messages to typed Spark columns."""
