-- The shop's tables, from the change log that is recorded in the directory below. Can be applied again.
CREATE SOURCE IF NOT EXISTS shop FROM FILES '$recording' FORMAT JSON TRANSACTION METADATA TOPIC 'shop.transaction';

CREATE TABLE IF NOT EXISTS shop.customers FROM SOURCE shop (TOPIC 'shop.public.customers') ENVELOPE DEBEZIUM;
CREATE TABLE IF NOT EXISTS shop.orders FROM SOURCE shop (TOPIC 'shop.public.orders') ENVELOPE DEBEZIUM;
CREATE TABLE IF NOT EXISTS shop.order_items FROM SOURCE shop (TOPIC 'shop.public.order_items') ENVELOPE DEBEZIUM UPSERT;
