"""SQL statements: text -> statement -> plan -> effects. Parsing and planning have no effects, and only `engine` knows Spark."""
