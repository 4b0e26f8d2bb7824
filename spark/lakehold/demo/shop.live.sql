-- The shop's tables, from a database through Debezium, Kafka and a schema registry. Can be applied again.
CREATE CONNECTION IF NOT EXISTS kafka TO KAFKA (BROKER '$kafka');
CREATE CONNECTION IF NOT EXISTS registry TO SCHEMA REGISTRY (URL '$registry');
CREATE SOURCE IF NOT EXISTS shop
  FROM KAFKA CONNECTION kafka (TOPICS ('$prefix.public.customers', '$prefix.public.orders', '$prefix.public.order_items'))
  FORMAT AVRO USING SCHEMA REGISTRY CONNECTION registry
  TRANSACTION METADATA TOPIC '$prefix.transaction';

CREATE TABLE IF NOT EXISTS shop.customers FROM SOURCE shop (TOPIC '$prefix.public.customers') ENVELOPE DEBEZIUM;
CREATE TABLE IF NOT EXISTS shop.orders FROM SOURCE shop (TOPIC '$prefix.public.orders') ENVELOPE DEBEZIUM;
CREATE TABLE IF NOT EXISTS shop.order_items FROM SOURCE shop (TOPIC '$prefix.public.order_items') ENVELOPE DEBEZIUM UPSERT;
