"""The functions that clients may call: Spark's own, except those that reach beyond the lake."""

from __future__ import annotations

from lakehold.sql.query.row_functions import ROW_FUNCTIONS

REACHING_FUNCTIONS = frozenset(
    {"reflect", "try_reflect", "java_method"}
    | {"from_avro", "schema_of_avro", "from_protobuf", "to_protobuf", "from_xml", "schema_of_xml"}
    | {"python_worker_logs"}
)
"""Functions that call any Java method, read a file that an argument names, or show the server's logs."""

_OTHERS = """
aes_encrypt any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
approx_top_k_combine approx_top_k_estimate array_agg assert_true avg bit_and bit_or bit_xor bitmap_and_agg
bitmap_construct_agg bitmap_or_agg bool_and bool_or collations collect_list collect_set corr count count_if
count_min_sketch covar_pop covar_samp cume_dist curdate current_catalog current_database current_date
current_schema current_time current_timestamp current_timezone current_user dense_rank every explode
explode_outer first first_value grouping grouping_id histogram_numeric hll_sketch_agg hll_union hll_union_agg
inline inline_outer input_file_block_length input_file_block_start input_file_name json_tuple
kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint
kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
kll_sketch_to_string_double kll_sketch_to_string_float kurtosis lag last last_value lead listagg
localtimestamp max max_by mean median min min_by mode monotonically_increasing_id now nth_value ntile
percent_rank percentile percentile_approx percentile_cont percentile_disc posexplode posexplode_outer
raise_error rand randn random randstr range rank regr_avgx regr_avgy regr_count regr_intercept regr_r2
regr_slope regr_sxx regr_sxy regr_syy row_number schema_of_variant_agg session_user session_window shuffle
skewness some spark_partition_id sql_keywords st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid
stack std stddev stddev_pop stddev_samp string_agg sum theta_difference theta_intersection
theta_intersection_agg theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg to_avro try_avg
try_sum uniform user uuid var_pop var_samp variance variant_explode variant_explode_outer version window
window_time
"""
"""Aggregates, functions of windows and tables, and those that depend on more than their arguments."""

CLIENT_FUNCTIONS = (ROW_FUNCTIONS | frozenset(_OTHERS.split())) - REACHING_FUNCTIONS
"""The functions of Spark 4.1 that a client may call. Those of a later Spark may do anything, so each must be added here first."""

ICEBERG_FUNCTIONS = frozenset({"bucket", "truncate", "years", "months", "days", "hours", "iceberg_version"})
"""The functions that Iceberg has in the namespace `system` of its catalog."""

_BEFORE_BRACKETS = """
AGGREGATE ALL AND ANTI ANY AS ASC BETWEEN BY CASE CHANGES CHAR CHARACTER CODEGEN COST CROSS CUBE DEBEZIUM DEC DECIMAL DESC
DESCRIBE DISTINCT DIV ELSE EXCEPT EXCLUDE EXISTS EXPLAIN EXTEND EXTENDED EXTRACT FILTER FOR FORMATTED FROM GROUP GROUPING HAVING
ILIKE IN INTERSECT INTERVAL JOIN KEY LATERAL LIKE LIMIT MINUS NOT NULLS NUMERIC OF OFFSET ON OR OVER PARTITION PIVOT QUERY
REGEXP REPEATABLE RLIKE ROLLUP SELECT SETS SOME SUBSCRIBE TABLE TABLESAMPLE THEN TO TRACK UNION UNPIVOT UPSERT USING VALUES
VARCHAR WHEN WHERE WITH WITHIN
"""
BEFORE_BRACKETS = frozenset(_BEFORE_BRACKETS.split())
"""Words that stand before a bracket without being a call."""
