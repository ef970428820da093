package interop;

import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * A job of Flink, in this process: it reads numbers, and writes each with the sum of its key so far, exactly once.
 *
 * <p>Arguments: bootstrap, transaction naming strategy, directory, number of keys, numbers to fail at (once each, in all processes), and the
 * checkpoint to begin with, if there is one. It stops with a savepoint once the directory has a file "stop": a bounded source would not end
 * after a restart, since Flink's enumerator of Kafka's partitions says only after the first discovery that there are no others.
 */
public final class Sums {
    private static final int PARALLELISM = 2;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        TransactionNamingStrategy naming = TransactionNamingStrategy.valueOf(arguments[1]);
        Path directory = Path.of(arguments[2]);
        int keys = Integer.parseInt(arguments[3]);
        String failures = arguments[4];

        Configuration configuration = new Configuration();
        configuration.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofMillis(200));
        configuration.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        configuration.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, directory.resolve("checkpoints").toUri().toString());
        configuration.set(CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION, ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        configuration.set(CheckpointingOptions.TOLERABLE_FAILURE_NUMBER, 1000);
        configuration.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        configuration.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, 1000);
        configuration.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofMillis(100));
        if (arguments.length > 5) {
            configuration.set(StateRecoveryOptions.SAVEPOINT_PATH, arguments[5]);
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        environment.setParallelism(PARALLELISM);

        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(bootstrap)
                .setTopics("numbers")
                .setGroupId("sums")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setProperty("isolation.level", "read_committed")
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
                .setBootstrapServers(bootstrap)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("sums")
                .setTransactionNamingStrategy(naming)
                .setProperty("transaction.timeout.ms", "600000")
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic("sums")
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();

        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "numbers").uid("numbers")
                .map(new Failing(directory.toString(), failures)).returns(Types.LONG).uid("failing")
                .keyBy(number -> number % keys, Types.LONG)
                .process(new Sum()).returns(Types.STRING).uid("sum")
                .sinkTo(new DyingSink(sink, directory)).uid("sums");
        JobClient job = environment.executeAsync("sums");
        while (!Files.exists(directory.resolve("stop"))) {
            Thread.sleep(50);
        }
        job.stopWithSavepoint(false, directory.resolve("savepoint").toUri().toString(), SavepointFormatType.CANONICAL).get();
        job.getJobExecutionResult().get();
        System.out.println("the job has ended");
    }

    /** Reads a number; fails at some, once each: a file says that it has failed. */
    private static final class Failing implements MapFunction<String, Long> {
        private final String directory;
        private final String failures;

        Failing(String directory, String failures) {
            this.directory = directory;
            this.failures = "," + failures + ",";
        }

        @Override
        public Long map(String text) throws IOException {
            if (failures.contains("," + text + ",")) {
                try {
                    Files.createFile(Path.of(directory, "failed-at-" + text));
                } catch (FileAlreadyExistsException failedBefore) {
                    return Long.valueOf(text);
                }
                throw new IllegalStateException("fails at " + text);
            }
            return Long.valueOf(text);
        }
    }

    /** Adds up the numbers of a key. */
    private static final class Sum extends KeyedProcessFunction<Long, Long, String> {
        private transient ValueState<Long> sum;

        @Override
        public void open(OpenContext context) {
            sum = getRuntimeContext().getState(new ValueStateDescriptor<>("sum", Types.LONG));
        }

        @Override
        public void processElement(Long number, Context context, Collector<String> out) throws IOException {
            Long before = sum.value();
            long after = (before == null ? 0 : before) + number;
            sum.update(after);
            out.collect(number + "," + after);
        }
    }
}
