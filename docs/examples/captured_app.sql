-- Mirrors two tables of a PostgreSQL database. Replace hosts, names and tables; the password comes from LAKEHOLD_SECRET_PG_PASSWORD.
-- Run it again after each change: what exists is left as it is.
CREATE CONNECTION IF NOT EXISTS pg TO POSTGRES
  (HOST 'db.example', USER 'lakehold', PASSWORD SECRET 'pg_password', DATABASE 'shop');
CREATE CONNECTION IF NOT EXISTS kafka TO KAFKA (BROKER 'broker.example:9092');
CREATE CONNECTION IF NOT EXISTS connect TO CONNECT (URL 'http://connect.example:8083');

-- One transaction: both tables get the same first snapshot, and are readable together.
BEGIN;
CREATE SOURCE IF NOT EXISTS app FROM POSTGRES CONNECTION pg VIA CONNECT CONNECTION connect INTO KAFKA CONNECTION kafka FORMAT JSON;
CREATE TABLE IF NOT EXISTS app.users FROM SOURCE app (TABLE 'public.users') ENVELOPE DEBEZIUM;
CREATE TABLE IF NOT EXISTS app.carts FROM SOURCE app (TABLE 'public.carts') ENVELOPE DEBEZIUM;
COMMIT;
