import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.streaming.runtime.io.benchmark.DataSkewStreamNetworkThroughputBenchmark;
import org.apache.flink.streaming.runtime.io.benchmark.StreamNetworkBroadcastThroughputBenchmark;
import org.apache.flink.streaming.runtime.io.benchmark.StreamNetworkThroughputBenchmark;

/**
 * Flink's own benchmark of its network stack, from the classes that it publishes with its tests: writer threads, one
 * network thread a side, one reading thread, TCP over loopback, all in this JVM. Arguments are key=value:
 *
 *   kind=rr|skewed|broadcast      how records are dealt out
 *   writers=4 channels=100        of each writer
 *   timeout=100                   of buffers, in ms
 *   n=20000000                    records that all writers together emit in the measured run
 *   warm=2                        runs of as many records before it, in the same channels
 *
 * The clock and CPU (of the whole JVM) run from the first record until the reader has the last one. Prints one line of
 * JSON; what arrives of a broadcast record counts once a channel.
 */
public class FlinkNetworkPeer {
    /** The reader has all a moment before the writers know that they are done; until then they take no new work. */
    static final long WRITERS_END_MS = 500;

    public static void main(String[] args) throws Exception {
        Map<String, String> given = new HashMap<>();
        for (String arg : args) given.put(arg.substring(0, arg.indexOf('=')), arg.substring(arg.indexOf('=') + 1));
        int writers = Integer.parseInt(given.get("writers")), channels = Integer.parseInt(given.get("channels"));
        long n = Long.parseLong(given.get("n")), warm = Long.parseLong(given.get("warm"));
        String kind = given.get("kind");

        StreamNetworkThroughputBenchmark benchmark = switch (kind) {
            case "rr" -> new StreamNetworkThroughputBenchmark();
            case "skewed" -> new DataSkewStreamNetworkThroughputBenchmark();
            case "broadcast" -> new StreamNetworkBroadcastThroughputBenchmark();
            default -> throw new IllegalArgumentException(kind);
        };
        // As Flink's own suite has it.
        int buffers = Math.max(2048, writers * channels * 4);
        benchmark.setUp(writers, channels, Integer.parseInt(given.get("timeout")), false, buffers, buffers);
        for (long run = 0; run < warm; run++) {
            benchmark.executeBenchmark(n);
            Thread.sleep(WRITERS_END_MS);
        }
        long cpu = cpuNanos(), start = System.nanoTime();
        benchmark.executeBenchmark(n);
        double seconds = (System.nanoTime() - start) / 1e9, arrived = (double) n * (kind.equals("broadcast") ? channels : 1);
        System.out.printf("{\"records_per_s\": %.1f, \"cpu_ns_per_record\": %.2f}%n", arrived / seconds, (cpuNanos() - cpu) / arrived);
        System.exit(0);
    }

    static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
