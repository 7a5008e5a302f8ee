"""Methods of other systems and their flownet equivalents, for the text of ``AttributeError``."""

from __future__ import annotations

from collections.abc import Mapping

_STREAM: Mapping[str, str] = {
    # PyFlink
    "add_sink": "sink_to(sink)",
    "get_side_output": "side_output(tag)",
    "assign_timestamps": "assign_timestamps_and_watermarks(strategy)",
    "co_group": "join(other) for pairs, or connect(other).process(...) with state of your own",
    "execute_and_collect_async": "execute_and_collect()",
    "get_name": "name(...), which sets the name",
    "project": "map(...), or to_rows(...).select(...)",
    "shuffle": "rebalance()",
    "slot_sharing_group": "place_on(...)",
    "split": "filter(...) twice, or process(...) with side outputs",
    # Bytewax
    "branch": "filter(...) twice, or process(...) with side outputs",
    "fold": "key_by(...).reduce(...), or key_by(...).map_with_state(...)",
    "fold_final": "key_by(...).window(fn.EndOfInput()).aggregate(...)",
    "fold_window": "key_by(...).window(...).aggregate(...)",
    "inspect": "map(...) with a function that prints and returns its record, or print()",
    "map_value": "map(...)",
    "output": "sink_to(sink)",
    "stateful_map": "key_by(...).map_with_state(...)",
    # Quix Streams
    "apply": "map(...), or flat_map(...)",
    "group_by": "key_by(...)",
    "hopping_window": 'key_by(...).window(fn.Sliding("1min", "10s"))',
    "session_window": 'key_by(...).window(fn.Session("30min"))',
    "to_topic": "sink_to(fn.KafkaSink(...))",
    "tumbling_window": 'key_by(...).window(fn.Tumbling("1min"))',
    "update": "map(...)",
    # Python and Spark
    "distinct": "key_by(...).deduplicate()",
    "foreach": "sink_to(sink)",
    "head": "take(count)",
    "limit": "take(count)",
    "write": "sink_to(sink)",
}

_KEYED_STREAM: Mapping[str, str] = {
    **_STREAM,
    "aggregate": "window(...).aggregate(...), or reduce(...) and map_with_state(...) without windows",
    "fold": "reduce(...), or map_with_state(...)",
    "max_by": "reduce(lambda one, other: max(one, other, key=...)), or window(...).max_by(...)",
    "min_by": "reduce(lambda one, other: min(one, other, key=...)), or window(...).min_by(...)",
    "stateful_map": "map_with_state(...)",
}

_ROWS: Mapping[str, str] = {
    # polars
    "agg": "group_by(...).agg(...), or group_by(all=fn.lit(0)).agg(...) to take all rows together",
    "bottom_k": "key_by(...).window(...).top_n(count, by, descending=False)",
    "collect_schema": "schema",
    "drop_nulls": 'filter(fn.col("x").is_not_null())',
    "dtypes": "schema",
    "fill_null": 'with_columns(x=fn.col("x").fill_null(value))',
    "group_by_dynamic": "key_by(...).window(fn.Tumbling(...)).agg(...)",
    "head": "top_n(count, by) of a window: an endless stream has no first rows",
    "join_asof": "key_by(...).as_of_join(other.key_by(...))",
    "lazy": "the rows as they are: a dataflow is a plan until it runs",
    "limit": "top_n(count, by) of a window: an endless stream has no first rows",
    "sink_csv": "write_csv(folder)",
    "sink_parquet": "write_parquet(folder)",
    "sort": "top_n(count, by) of a window, or sort the result of to_polars()",
    "top_k": "key_by(...).window(...).top_n(count, by)",
    "unique": "key_by(...).deduplicate()",
    "vstack": "union(other)",
    "with_column": "with_columns(...)",
    # pandas and Spark
    "apply": "with_columns(...), or map_batches(...)",
    "assign": "with_columns(...)",
    "dropDuplicates": "key_by(...).deduplicate()",
    "foreachBatch": "map_batches(...), or sink_to(sink)",
    "groupBy": "group_by(...)",
    "groupby": "group_by(...)",
    "merge": "key_by(...).join(other.key_by(...))",
    "orderBy": "top_n(count, by) of a window, or sort the result of to_polars()",
    "query": "filter(...)",
    "show": "to_polars(), or collect()",
    "print": "to_objects().print()",
    "where": "filter(...)",
    "withColumn": "with_columns(...)",
    "withWatermark": "assign_timestamps(...)",
    "withColumnRenamed": "rename({old: new})",
}

_ENVIRONMENT: Mapping[str, str] = {
    # PyFlink
    "add_jars": "nothing: there is no JVM",
    "add_python_file": "nothing: functions are sent to workers with the modules of your program",
    "add_source": "from_source(source)",
    "from_sequence": "from_collection(range(first, last + 1))",
    "read_text_file": "read_text(path)",
    "set_buffer_timeout": 'Environment(buffer_timeout="5ms")',
    "set_max_parallelism": "Environment(max_parallelism=...)",
    "set_parallelism": "Environment(parallelism=...)",
    "set_restart_strategy": "Environment(restart=...)",
    "set_state_backend": "Environment(state_backend=...)",
    # Bytewax, Quix Streams, polars
    "dataframe": "from_source(fn.KafkaSource(...))",
    "input": "from_source(source)",
    "run": "execute()",
    "scan_csv": "read_csv(path)",
    "scan_parquet": "read_parquet(path)",
    "sql": "expressions on rows: there is no SQL yet",
    "topic": "from_source(fn.KafkaSource(...))",
}

_CONTEXT: Mapping[str, str] = {
    "get_broadcast_state": "broadcast_state",
    "get_current_key": "key",
    "get_index_of_this_subtask": "subtask",
    "get_number_of_parallel_subtasks": "parallelism",
    "get_partition_key": "key",
    "get_time_domain": "time_domain",
    "register_event_time_timer": "timer_service().register_event_time_timer(timestamp_ms)",
    "register_processing_time_timer": "set_timer(timestamp_ms)",
}

_STATE: Mapping[str, str] = {
    "contains": "key in state",
    "entries": "items()",
    "is_empty": "not state",
    "put": "state[key] = value",
    "put_all": "update(mapping)",
    "remove": "del state[key]",
}

_HINTS: Mapping[str, Mapping[str, str]] = {
    "Environment": _ENVIRONMENT,
    "KeyedStream": _KEYED_STREAM,
    "MapState": _STATE,
    "ProcessContext": _CONTEXT,
    "Rows": _ROWS,
    "Stream": _STREAM,
}


def no_attribute(kind: str, name: str) -> AttributeError:
    """Make the error of a name that a class does not have, with what to use instead if another system has the name."""
    text = f"{kind!r} object has no attribute {name!r}"
    instead = _HINTS.get(kind, {}).get(name)
    return AttributeError(text if instead is None else f"{text}: use {instead}")
