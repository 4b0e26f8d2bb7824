-- Keeps figures of a dashboard ready, and the state that it compares them with. Replace the query and the names.
BEGIN;
-- Refreshed by `lakehold publish`, or by the DAG lakehold_subscriptions whenever the table changes.
CREATE MATERIALIZED VIEW IF NOT EXISTS bi.orders_by_status KEY (status) WITH (RETAIN HISTORY = '30 days')
  AS SELECT status, count(*) AS orders, sum(total) AS total FROM shop.orders GROUP BY status;
-- The state of last week stays readable, also for engines other than Spark: it is a tag. Maintenance moves it by MAX LAG.
CREATE HOLD IF NOT EXISTS last_week ON bi.orders_by_status WITH (MAX LAG = '7 days');
COMMIT;
