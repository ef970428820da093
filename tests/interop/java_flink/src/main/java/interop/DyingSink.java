package interop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.StatefulSinkWriter;
import org.apache.flink.api.connector.sink2.SupportsCommitter;
import org.apache.flink.api.connector.sink2.SupportsWriterState;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.connector.kafka.sink.KafkaCommittable;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.KafkaWriterState;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.streaming.api.connector.sink2.CommittableMessage;
import org.apache.flink.streaming.api.connector.sink2.SupportsPostCommitTopology;
import org.apache.flink.streaming.api.datastream.DataStream;

/**
 * Flink's sink for Kafka, in a JVM that dies when a checkpoint is complete: before the checkpoint's transactions are committed if the directory
 * has a file "die-before-commit", and after it if it has a file "die-after-commit".
 */
final class DyingSink
        implements Sink<String>,
                SupportsWriterState<String, KafkaWriterState>,
                SupportsCommitter<KafkaCommittable>,
                SupportsPostCommitTopology<KafkaCommittable> {
    private static final int AS_BY_SIGKILL = 137;

    private final KafkaSink<String> sink;
    private final String directory;

    DyingSink(KafkaSink<String> sink, Path directory) {
        this.sink = sink;
        this.directory = directory.toString();
    }

    @Override
    public StatefulSinkWriter<String, KafkaWriterState> createWriter(WriterInitContext context) throws IOException {
        return sink.createWriter(context);
    }

    @Override
    public StatefulSinkWriter<String, KafkaWriterState> restoreWriter(WriterInitContext context, Collection<KafkaWriterState> states)
            throws IOException {
        return sink.restoreWriter(context, states);
    }

    @Override
    public SimpleVersionedSerializer<KafkaWriterState> getWriterStateSerializer() {
        return sink.getWriterStateSerializer();
    }

    @Override
    public Committer<KafkaCommittable> createCommitter(CommitterInitContext context) throws IOException {
        Committer<KafkaCommittable> committer = sink.createCommitter(context);
        return new Committer<>() {
            @Override
            public void commit(Collection<CommitRequest<KafkaCommittable>> requests) throws IOException, InterruptedException {
                if (!requests.isEmpty()) {
                    dieIfAsked("die-before-commit");
                }
                committer.commit(requests);
                if (!requests.isEmpty()) {
                    dieIfAsked("die-after-commit");
                }
            }

            @Override
            public void close() throws Exception {
                committer.close();
            }
        };
    }

    @Override
    public SimpleVersionedSerializer<KafkaCommittable> getCommittableSerializer() {
        return sink.getCommittableSerializer();
    }

    @Override
    public void addPostCommitTopology(DataStream<CommittableMessage<KafkaCommittable>> committables) {
        sink.addPostCommitTopology(committables);
    }

    /** The next JVM lives: the file is removed first. */
    private void dieIfAsked(String name) throws IOException {
        if (Files.deleteIfExists(Path.of(directory, name))) {
            Runtime.getRuntime().halt(AS_BY_SIGKILL);
        }
    }
}
