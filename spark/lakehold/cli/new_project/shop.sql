-- An example that runs as it is: lakehold sql -f shop.sql, then lakehold ingest shop.
-- The source is a directory of recorded messages. All statements: docs/reference/sql.md

CREATE SOURCE IF NOT EXISTS shop FROM FILES $messages FORMAT JSON;

CREATE TABLE IF NOT EXISTS shop.orders (id BIGINT, status STRING, total DECIMAL(10, 2))
  FROM SOURCE shop (TOPIC 'orders') ENVELOPE UPSERT;

-- Kafka takes the place of the directory:
--   CREATE CONNECTION kafka TO KAFKA (BROKER '127.0.0.1:9092');
--   CREATE SOURCE shop FROM KAFKA CONNECTION kafka (TOPICS ('orders')) FORMAT JSON;
