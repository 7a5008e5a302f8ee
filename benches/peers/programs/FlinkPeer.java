import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

/**
 * One Flink measurement in one JVM: a source and a sink in two TaskManagers of a MiniCluster, so that their channel is
 * Netty TCP over loopback. Arguments are key=value:
 *
 *   job=exchange|latency   what to run
 *   timeout=100            buffer timeout in ms
 *   n=40000000             records of an exchange job
 *   rate=1000 seconds=6    of a latency job; its first second is dropped
 *   warm=2                 jobs in this JVM before the measured one (latency: 5 s at 100,000 records/s)
 *
 * The clock runs from the first record emitted to the sink's end of input, so deployment is not in it. CPU is that of
 * the whole JVM (both TaskManagers, JIT, GC) over that span. Prints one line of JSON.
 */
public class FlinkPeer {
    static final long NANOS = 1_000_000_000L;
    static final AtomicLong start = new AtomicLong();
    static volatile long end, seen, cpuAtStart, cpuAtEnd;
    static volatile long[] latencies;

    public static void main(String[] args) throws Exception {
        Map<String, String> given = new HashMap<>();
        for (String arg : args) given.put(arg.substring(0, arg.indexOf('=')), arg.substring(arg.indexOf('=') + 1));
        boolean isLatency = given.get("job").equals("latency");
        long warm = Long.parseLong(given.getOrDefault("warm", "2"));

        Configuration conf = new Configuration();
        conf.set(RestOptions.BIND_PORT, "0");
        conf.set(TaskManagerOptions.NETWORK_MEMORY_MIN, MemorySize.ofMebiBytes(64));
        conf.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.ofMebiBytes(64));
        MiniCluster cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
                .setConfiguration(conf).setNumTaskManagers(2).setNumSlotsPerTaskManager(1).build());
        cluster.start();
        for (long run = 0; run <= warm; run++) runOnce(cluster, conf, given, isLatency, run < warm);
        report(isLatency);
        cluster.close();
        System.exit(0);
    }

    static void runOnce(MiniCluster cluster, Configuration conf, Map<String, String> given, boolean isLatency, boolean isWarmUp)
            throws Exception {
        start.set(0);
        long n = Long.parseLong(given.getOrDefault("n", "40000000"));
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(conf);
        env.setRuntimeMode(RuntimeExecutionMode.STREAMING);
        env.setParallelism(1);
        env.getConfig().enableObjectReuse();
        env.disableOperatorChaining();
        env.setBufferTimeout(Long.parseLong(given.getOrDefault("timeout", "100")));
        long rate = isWarmUp ? 100_000 : Long.parseLong(given.getOrDefault("rate", "1000"));
        long seconds = isWarmUp ? 5 : Long.parseLong(given.getOrDefault("seconds", "6"));
        env.addSource(isLatency ? new Stamps(rate, rate * seconds) : new Numbers(n), Types.LONG).slotSharingGroup("source")
                .rebalance().transform("sink", Types.GENERIC(Object.class), isLatency ? new LatencySink(rate * seconds) : new Count())
                .slotSharingGroup("sink");
        cluster.executeJobBlocking(env.getStreamGraph().getJobGraph());
        if (seen != (isLatency ? rate * seconds : n)) throw new IllegalStateException("records were lost: " + seen);
    }

    static void report(boolean isLatency) {
        String line = String.format("{\"records_per_s\": %.1f, \"cpu_ns_per_record\": %.2f",
                seen / ((end - start.get()) / 1e9), (cpuAtEnd - cpuAtStart) / (double) seen);
        if (isLatency) {
            long[] kept = Arrays.copyOfRange(latencies, latencies.length / 6, latencies.length);
            Arrays.sort(kept);
            line += String.format(", \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f", kept[kept.length / 2] / 1e3,
                    kept[(int) (kept.length * .99)] / 1e3, kept[(int) (kept.length * .999)] / 1e3);
        }
        System.out.println(line + "}");
    }

    static void started() {
        if (start.compareAndSet(0, System.nanoTime())) cpuAtStart = cpuNanos();
    }

    static void ended(long records) {
        end = System.nanoTime();
        cpuAtEnd = cpuNanos();
        seen = records;
    }

    /** User and system time of this process; the kernel counts in ticks of 10 ms. */
    static long cpuNanos() {
        try {
            String stat = Files.readString(Path.of("/proc/self/stat"));
            String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
            return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) * 10_000_000L;
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    static class Numbers extends RichParallelSourceFunction<Long> {
        final long n;

        Numbers(long n) { this.n = n; }

        public void run(SourceContext<Long> out) {
            Object lock = out.getCheckpointLock();
            started();
            for (long i = 0; i < n; i++) synchronized (lock) { out.collect(i); }
        }

        public void cancel() {}
    }

    static class Stamps extends RichParallelSourceFunction<Long> {
        final long rate, n;

        Stamps(long rate, long n) { this.rate = rate; this.n = n; }

        public void run(SourceContext<Long> out) {
            Object lock = out.getCheckpointLock();
            started();
            long begin = System.nanoTime(), now;
            for (long i = 0; i < n; i++) {
                long due = begin + i * NANOS / rate;
                while ((now = System.nanoTime()) < due) LockSupport.parkNanos(due - now);
                synchronized (lock) { out.collect(System.nanoTime()); }
            }
        }

        public void cancel() {}
    }

    /** Counts and discards; the cheapest sink there is. */
    static class Count extends AbstractStreamOperator<Object> implements OneInputStreamOperator<Long, Object> {
        long records;

        public void processElement(StreamRecord<Long> record) { records++; }

        public void finish() throws Exception {
            ended(records);
            super.finish();
        }
    }

    static class LatencySink extends AbstractStreamOperator<Object> implements OneInputStreamOperator<Long, Object> {
        final long n;
        int records;
        transient long[] taken;

        LatencySink(long n) { this.n = n; }

        public void open() throws Exception {
            super.open();
            taken = new long[(int) n];
        }

        public void processElement(StreamRecord<Long> record) { taken[records++] = System.nanoTime() - record.getValue(); }

        public void finish() throws Exception {
            latencies = taken;
            ended(records);
            super.finish();
        }
    }
}
