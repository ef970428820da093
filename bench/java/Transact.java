import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions of Kafka's own producer, at the level that the cluster has:
 * {@code Transact BOOTSTRAP TOPIC PARTITIONS VALUE_BYTES RECORDS WARM_SECONDS SECONDS PACE_MS}; after the warm-up one every so often, with 0 one
 * after the other. It says "begin" after the warm-up and, at the end, how many there were, the median and the 99th percentile of a commit, and
 * the median from the begin of one to the begin of the next, in microseconds.
 */
public final class Transact {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "transactional.id", "java-" + arguments[4], "linger.ms", "0");
        int partitions = Integer.parseInt(arguments[2]);
        byte[] value = new byte[Integer.parseInt(arguments[3])];
        Arrays.fill(value, (byte) 'x');
        int records = Integer.parseInt(arguments[4]);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            long[] commits = new long[1 << 20];
            long[] rounds = new long[1 << 20];
            int count = 0;
            long began = System.nanoTime();
            long warm = began + Long.parseLong(arguments[5]) * 1_000_000_000L;
            long end = warm + Long.parseLong(arguments[6]) * 1_000_000_000L;
            long pace = Long.parseLong(arguments[7]) * 1_000_000L;
            boolean isWarm = false;
            for (long at = began; at < end; at = System.nanoTime()) {
                if (!isWarm && at >= warm) {
                    isWarm = true;
                    count = 0;
                    System.out.println("begin");
                }
                producer.beginTransaction();
                Future<?>[] sent = new Future<?>[records];
                for (int number = 0; number < records; number++) {
                    sent[number] = producer.send(new ProducerRecord<>(arguments[1], number % partitions, null, value));
                }
                producer.flush();
                long asked = System.nanoTime();
                producer.commitTransaction();
                long done = System.nanoTime();
                for (Future<?> each : sent) {
                    each.get();
                }
                commits[count] = (done - asked) / 1000;
                rounds[count++] = (System.nanoTime() - at) / 1000;
                long rest = at + pace - System.nanoTime();
                if (isWarm && rest > 0) {
                    Thread.sleep(rest / 1_000_000L, (int) (rest % 1_000_000L));
                }
            }
            Arrays.sort(commits, 0, count);
            Arrays.sort(rounds, 0, count);
            System.out.println("end " + count + " " + commits[count / 2] + " " + commits[count * 99 / 100] + " " + rounds[count / 2]);
        }
    }
}
