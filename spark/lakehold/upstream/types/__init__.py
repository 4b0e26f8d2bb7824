"""Types and names of columns: in the database, as Debezium sends them, and in the lake."""
