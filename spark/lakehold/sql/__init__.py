"""SQL statements: text -> statement -> plan -> effects. Parsing and planning have no effects, and use no Spark session."""
