import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.PipelineOptions;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamSink;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.sink.DataStreamSinkProvider;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.LogicalTypeRoot;
import org.apache.flink.table.types.logical.RowType;

/**
 * Nexmark's queries as Flink SQL, in one JVM that runs a query as often as it is asked to. Arguments: a folder, a query, a
 * parallelism. The folder has the events of each kind, a file of tab-separated values for each subtask, which are in memory
 * before anything runs.
 *
 * Each line of standard input is a wish: "run" runs the query, drops what it finds, and prints one line of JSON; "find FILE"
 * writes what it finds, folded to what stands at the end, a line for each row. The clock runs from the first record that a
 * source emits until the last sink has its end of input, so neither planning nor deployment is in it.
 */
public class FlinkSqlPeer {
    /** Columns of each kind of event; the last is its time, which is told twice: as a number and as a time attribute. */
    static final Map<String, String[]> COLUMNS = Map.of(
            "person", new String[] {"id", "name*", "city*", "state*", "time_ms"},
            "auction", new String[] {"id", "seller", "category", "initial_bid", "time_ms", "expires_ms"},
            "bid", new String[] {"auction", "bidder", "price", "time_ms"});

    static final String COUNTS = "(SELECT auction, COUNT(*) AS num, window_start, window_end FROM TABLE(HOP(TABLE bid,"
            + " DESCRIPTOR(rt), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end)";

    /** As in the suite that Flink's developers use, where that is in SQL, with the columns of the programs beside it. */
    static final Map<String, String> QUERIES = Map.of(
            "q0", "SELECT auction, bidder, price, time_ms FROM bid",
            "q1", "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(15, 3)), time_ms FROM bid",
            "q2", "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
            "q3", "SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P ON A.seller = P.id"
                    + " WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')",
            "q4", "SELECT Q.category, AVG(CAST(Q.final AS DOUBLE)) FROM (SELECT MAX(B.price) AS final, A.category"
                    + " FROM auction A, bid B WHERE A.id = B.auction AND B.time_ms BETWEEN A.time_ms AND A.expires_ms"
                    + " GROUP BY A.id, A.category) Q GROUP BY Q.category",
            "q5", "SELECT A.window_end, A.auction, A.num FROM " + COUNTS + " AS A JOIN (SELECT MAX(num) AS most,"
                    + " window_start, window_end FROM " + COUNTS + " GROUP BY window_start, window_end) AS M"
                    + " ON A.window_start = M.window_start AND A.window_end = M.window_end AND A.num >= M.most",
            "q7", "SELECT B.auction, B.bidder, B.price, B.time_ms FROM bid B JOIN (SELECT MAX(price) AS most,"
                    + " window_time AS last_ms FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(rt), INTERVAL '10' SECOND))"
                    + " GROUP BY window_start, window_end, window_time) M ON B.price = M.most"
                    + " AND B.rt BETWEEN M.last_ms - INTERVAL '9.999' SECOND(1, 3) AND M.last_ms",
            "q8", "SELECT P.id, P.name, P.window_start FROM (SELECT id, name, window_start, window_end FROM TABLE(TUMBLE("
                    + "TABLE person, DESCRIPTOR(rt), INTERVAL '10' SECOND)) GROUP BY id, name, window_start, window_end) P"
                    + " JOIN (SELECT seller, window_start, window_end FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(rt),"
                    + " INTERVAL '10' SECOND)) GROUP BY seller, window_start, window_end) A ON P.id = A.seller"
                    + " AND P.window_start = A.window_start AND P.window_end = A.window_end");

    static final Map<String, List<RowData[]>> EVENTS = new ConcurrentHashMap<>();
    static final AtomicLong start = new AtomicLong();
    static final AtomicLong rows = new AtomicLong();
    static volatile long end, cpuAtStart, cpuAtEnd;
    /** What was found, if that is wanted. */
    static volatile Queue<Object[]> found;

    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[0]);
        String query = QUERIES.get(args[1]);
        int parallelism = Integer.parseInt(args[2]);
        for (String kind : COLUMNS.keySet()) read(folder, kind, parallelism);
        BufferedReader wishes = new BufferedReader(new InputStreamReader(System.in));
        for (String wish; (wish = wishes.readLine()) != null; ) {
            boolean finds = wish.startsWith("find ");
            found = finds ? new ConcurrentLinkedQueue<>() : null;
            run(query, parallelism);
            if (finds) write(Path.of(wish.substring("find ".length())));
            System.out.printf("{\"seconds\": %.6f, \"cpu_seconds\": %.3f, \"rows\": %d}%n", (end - start.get()) / 1e9,
                    (cpuAtEnd - cpuAtStart) / 1e9, rows.get());
            System.out.flush();
        }
        System.exit(0);
    }

    static void read(Path folder, String kind, int parallelism) throws IOException {
        List<RowData[]> parts = new ArrayList<>();
        for (int subtask = 0; subtask < parallelism; subtask++) {
            Path file = folder.resolve(kind + "-" + subtask + ".tsv");
            if (!Files.exists(file)) return;
            try (var lines = Files.lines(file)) {
                parts.add(lines.map(line -> row(kind, line.split("\t"))).toArray(RowData[]::new));
            }
        }
        EVENTS.put(kind, parts);
    }

    static RowData row(String kind, String[] values) {
        String[] columns = COLUMNS.get(kind);
        GenericRowData row = new GenericRowData(columns.length + 1);
        for (int at = 0; at < columns.length; at++) {
            row.setField(at, isText(columns[at]) ? StringData.fromString(values[at]) : Long.valueOf(values[at]));
        }
        long timeMs = row.getLong(Arrays.asList(columns).indexOf("time_ms"));
        row.setField(columns.length, TimestampData.fromEpochMillis(timeMs));
        return row;
    }

    static boolean isText(String column) { return column.endsWith("*"); }

    static void run(String query, int parallelism) throws Exception {
        start.set(0);
        rows.set(0);
        Configuration conf = new Configuration();
        conf.set(RestOptions.BIND_PORT, "0");
        conf.set(TaskManagerOptions.NETWORK_MEMORY_MIN, MemorySize.ofMebiBytes(64));
        conf.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.ofMebiBytes(64));
        conf.set(PipelineOptions.OBJECT_REUSE, true);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(parallelism, conf);
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        // As in the suite of Flink's developers.
        for (String[] setting : new String[][] {{"table.local-time-zone", "UTC"}, {"table.exec.mini-batch.enabled", "true"},
            {"table.exec.mini-batch.allow-latency", "2s"}, {"table.exec.mini-batch.size", "50000"},
            {"table.optimizer.distinct-agg.split.enabled", "true"}}) {
            tables.getConfig().set(setting[0], setting[1]);
        }
        for (String kind : EVENTS.keySet()) tables.createTemporaryView(kind, table(env, tables, kind));
        Table wanted = tables.sqlQuery(query);
        wanted.insertInto(TableDescriptor.forConnector("noted").schema(plain(wanted)).build()).execute().await();
    }

    /** The sink's columns, by position: a time attribute is a plain time there. */
    static Schema plain(Table table) {
        Schema.Builder schema = Schema.newBuilder();
        List<DataType> types = table.getResolvedSchema().getColumnDataTypes();
        for (int at = 0; at < types.size(); at++) {
            LogicalType type = types.get(at).getLogicalType();
            boolean isTime = type.is(LogicalTypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE);
            schema.column("c" + at, isTime ? DataTypes.TIMESTAMP(3) : types.get(at));
        }
        return schema.build();
    }

    static Table table(StreamExecutionEnvironment env, StreamTableEnvironment tables, String kind) {
        List<DataTypes.Field> fields = new ArrayList<>();
        Schema.Builder schema = Schema.newBuilder();
        for (String column : COLUMNS.get(kind)) {
            String name = column.replace("*", "");
            DataType type = (isText(column) ? DataTypes.STRING() : DataTypes.BIGINT()).notNull();
            fields.add(DataTypes.FIELD(name, type));
            schema.column(name, type);
        }
        DataType time = DataTypes.TIMESTAMP_LTZ(3).notNull();
        fields.add(DataTypes.FIELD("rt", time));
        schema.column("rt", time).watermark("rt", "rt - INTERVAL '3' SECOND");
        RowType rowType = (RowType) DataTypes.ROW(fields.toArray(DataTypes.Field[]::new)).getLogicalType();
        return tables.fromDataStream(env.addSource(new Events(kind), InternalTypeInfo.of(rowType)), schema.build());
    }

    /** What stands at the end: what was taken back is left out. */
    static void write(Path file) throws IOException {
        Map<List<Object>, Integer> standing = new HashMap<>();
        for (Object[] one : found) {
            List<Object> row = Arrays.asList(one).subList(1, one.length);
            standing.merge(row, (Integer) one[0], Integer::sum);
        }
        try (PrintWriter lines = new PrintWriter(Files.newBufferedWriter(file))) {
            standing.forEach((row, times) -> {
                for (int time = 0; time < times; time++) {
                    lines.println(String.join("\t", row.stream().map(String::valueOf).toList()));
                }
            });
        }
    }

    /** User and system time of this process; the kernel counts in ticks of 10 ms. */
    static long cpuNanos() {
        try {
            String stat = Files.readString(Path.of("/proc/self/stat"));
            String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
            return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) * 10_000_000L;
        } catch (IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    /** The events of a kind, those of its subtask. */
    static class Events extends RichParallelSourceFunction<RowData> {
        final String kind;

        Events(String kind) { this.kind = kind; }

        public void run(SourceContext<RowData> out) {
            RowData[] events = EVENTS.get(kind).get(getRuntimeContext().getTaskInfo().getIndexOfThisSubtask());
            Object lock = out.getCheckpointLock();
            if (start.compareAndSet(0, System.nanoTime())) cpuAtStart = cpuNanos();
            for (RowData event : events) synchronized (lock) { out.collect(event); }
        }

        public void cancel() {}
    }

    /** Drops rows, or keeps what they are, and notes when that was all. */
    static class Noted extends RichSinkFunction<RowData> {
        final List<LogicalType> types;
        transient RowData.FieldGetter[] getters;
        transient long taken;

        Noted(List<LogicalType> types) { this.types = types; }

        public void invoke(RowData row, Context context) {
            taken++;
            Queue<Object[]> kept = found;
            if (kept == null) return;
            if (getters == null) {
                getters = new RowData.FieldGetter[types.size()];
                for (int at = 0; at < getters.length; at++) getters[at] = RowData.createFieldGetter(types.get(at), at);
            }
            Object[] values = new Object[getters.length + 1];
            values[0] = switch (row.getRowKind()) { case INSERT, UPDATE_AFTER -> 1; default -> -1; };
            for (int at = 0; at < getters.length; at++) values[at + 1] = shown(getters[at].getFieldOrNull(row));
            kept.add(values);
        }

        static Object shown(Object value) {
            return value instanceof TimestampData time ? time.getMillisecond() : value instanceof Long ? value : String.valueOf(value);
        }

        public void finish() {
            synchronized (FlinkSqlPeer.class) {
                rows.addAndGet(taken);
                end = System.nanoTime();
                cpuAtEnd = cpuNanos();
            }
        }
    }

    /** The sink as a connector, which is how SQL reaches it. */
    public static class NotedFactory implements DynamicTableSinkFactory {
        public String factoryIdentifier() { return "noted"; }

        public Set<ConfigOption<?>> requiredOptions() { return new HashSet<>(); }

        public Set<ConfigOption<?>> optionalOptions() { return new HashSet<>(); }

        public DynamicTableSink createDynamicTableSink(Context context) {
            return new NotedSink(context.getPhysicalRowDataType().getLogicalType().getChildren());
        }
    }

    record NotedSink(List<LogicalType> types) implements DynamicTableSink {
        public ChangelogMode getChangelogMode(ChangelogMode requested) { return requested; }

        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return new DataStreamSinkProvider() {
                public DataStreamSink<?> consumeDataStream(ProviderContext provider, DataStream<RowData> rows) {
                    return rows.addSink(new Noted(types));
                }
            };
        }

        public DynamicTableSink copy() { return this; }

        public String asSummaryString() { return "noted"; }
    }
}
