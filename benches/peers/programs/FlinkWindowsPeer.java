import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.PipelineOptions;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;

/**
 * Sums by key and window of a second, of rows of a key, a size, a time and a price: by Flink's DataStream and by Flink SQL,
 * in one JVM that runs each as often as it is asked to. Arguments: rows, keys, rows in a millisecond, parallelism.
 *
 * Each line of standard input is a wish, "stream" or "sql", which is answered by one line of JSON. Rows are made before. The
 * clock runs from the first one that a source emits until the last sink has its end of input.
 */
public class FlinkWindowsPeer {
    static final String SQL = "SELECT f0, window_start, SUM(f1) FROM TABLE(TUMBLE(TABLE entries, DESCRIPTOR(rt),"
            + " INTERVAL '1' SECOND)) GROUP BY f0, window_start, window_end";

    static Tuple4<Long, Long, Long, Double>[][] parts;
    static final AtomicLong start = new AtomicLong();
    static final AtomicLong results = new AtomicLong();
    static final AtomicLong total = new AtomicLong();
    static volatile long end;

    @SuppressWarnings("unchecked")
    public static void main(String[] args) throws Exception {
        int rows = Integer.parseInt(args[0]), keys = Integer.parseInt(args[1]), ofMs = Integer.parseInt(args[2]);
        int parallelism = Integer.parseInt(args[3]);
        parts = new Tuple4[parallelism][rows / parallelism];
        for (int subtask = 0; subtask < parallelism; subtask++) {
            for (int at = 0; at < parts[subtask].length; at++) {
                long number = (long) at * parallelism + subtask;
                parts[subtask][at] = Tuple4.of(number * 7919 % keys, number % 1000, number / ofMs, number / 7.0);
            }
        }
        BufferedReader wishes = new BufferedReader(new InputStreamReader(System.in));
        for (String wish; (wish = wishes.readLine()) != null; ) {
            start.set(0);
            results.set(0);
            total.set(0);
            run(wish.equals("sql"), parallelism);
            System.out.printf("{\"seconds\": %.6f, \"results\": %d, \"total\": %d}%n", (end - start.get()) / 1e9,
                    results.get(), total.get());
            System.out.flush();
        }
        System.exit(0);
    }

    static void run(boolean bySql, int parallelism) throws Exception {
        Configuration conf = new Configuration();
        conf.set(RestOptions.BIND_PORT, "0");
        conf.set(TaskManagerOptions.NETWORK_MEMORY_MIN, MemorySize.ofMebiBytes(64));
        conf.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.ofMebiBytes(64));
        conf.set(PipelineOptions.OBJECT_REUSE, true);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(parallelism, conf);
        DataStream<Tuple4<Long, Long, Long, Double>> entries = env.addSource(new Entries())
                .assignTimestampsAndWatermarks(WatermarkStrategy.<Tuple4<Long, Long, Long, Double>>forMonotonousTimestamps()
                        .withTimestampAssigner((entry, before) -> entry.f2));
        if (bySql) {
            StreamTableEnvironment tables = StreamTableEnvironment.create(env);
            tables.getConfig().set("table.local-time-zone", "UTC");
            Schema schema = Schema.newBuilder().columnByMetadata("rt", DataTypes.TIMESTAMP_LTZ(3), "rowtime")
                    .watermark("rt", "SOURCE_WATERMARK()").build();
            tables.createTemporaryView("entries", tables.fromDataStream(entries, schema));
            tables.toDataStream(tables.sqlQuery(SQL)).addSink(new Noted<Row>() {
                long sum(Row row) { return (Long) row.getField(2); }
            });
        } else {
            entries.keyBy(entry -> entry.f0).window(TumblingEventTimeWindows.of(Duration.ofSeconds(1))).sum(1)
                    .addSink(new Noted<Tuple4<Long, Long, Long, Double>>() {
                        long sum(Tuple4<Long, Long, Long, Double> entry) { return entry.f1; }
                    });
        }
        env.execute();
    }

    /** The rows of its subtask. */
    public static class Entries extends RichParallelSourceFunction<Tuple4<Long, Long, Long, Double>> {
        public void run(SourceContext<Tuple4<Long, Long, Long, Double>> out) {
            Tuple4<Long, Long, Long, Double>[] mine = parts[getRuntimeContext().getTaskInfo().getIndexOfThisSubtask()];
            Object lock = out.getCheckpointLock();
            start.compareAndSet(0, System.nanoTime());
            for (Tuple4<Long, Long, Long, Double> entry : mine) synchronized (lock) { out.collect(entry); }
        }

        public void cancel() {}
    }

    /** Drops results, and notes how many there were, what they sum to, and when that was all. */
    public abstract static class Noted<T> extends RichSinkFunction<T> {
        transient long taken, sum;

        abstract long sum(T result);

        public void invoke(T result, Context context) {
            taken++;
            sum += sum(result);
        }

        public void finish() {
            synchronized (FlinkWindowsPeer.class) {
                results.addAndGet(taken);
                total.addAndGet(sum);
                end = System.nanoTime();
            }
        }
    }
}
