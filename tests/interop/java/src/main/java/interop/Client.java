package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** One task of Kafka's Java client, with its defaults wherever nothing else is said. The judge is the test that starts it. */
public final class Client {
    private static final Duration WAIT_MAX = Duration.ofSeconds(30);
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "create" -> create(arguments[1], arguments[2], Integer.parseInt(arguments[3]));
            case "produce" -> produce(arguments[1], arguments[2], arguments[3], Integer.parseInt(arguments[4]), Integer.parseInt(arguments[5]));
            case "stream" -> stream(arguments[1], arguments[2]);
            case "consume" -> consume(
                arguments[1], arguments[2], arguments[3], Integer.parseInt(arguments[4]), arguments.length > 5 ? arguments[5] : "classic");
            case "transact" -> transact(arguments[1], arguments[2], Integer.parseInt(arguments[3]), Integer.parseInt(arguments[4]));
            case "transactions" -> transactions(arguments[1], arguments[2], arguments[3].split(","));
            case "read" -> read(arguments[1], arguments[2], arguments[3]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        OUT.flush();
    }

    private static Properties settings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (String name : System.getProperties().stringPropertyNames()) {
            if (name.startsWith("client.")) {
                settings.put(name.substring("client.".length()), System.getProperty(name));
            }
        }
        return settings;
    }

    /** Prints what the cluster then says of the topic: name and partition count. */
    private static void create(String bootstrap, String topic, int partitionCount) throws Exception {
        try (Admin admin = Admin.create(settings(bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, Optional.of(partitionCount), Optional.empty()))).all().get();
            var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            OUT.println(described.name() + "\t" + described.partitions().size());
        }
    }

    /** Half of the records; then "half" is printed and a line awaited; then the rest. Prints partition and offset of each. */
    private static void produce(String bootstrap, String topic, String codec, int count, int keyCount) throws Exception {
        Properties settings = settings(bootstrap);
        settings.put("compression.type", codec);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int index = 0; index < count; index++) {
                if (index == count / 2) {
                    producer.flush();
                    OUT.println("half");
                    OUT.flush();
                    in.readLine();
                }
                byte[] key = ("key-" + index % keyCount).getBytes(StandardCharsets.UTF_8);
                byte[] value = String.format("value-%06d", index).getBytes(StandardCharsets.UTF_8);
                sent.add(producer.send(new ProducerRecord<>(topic, key, value)));
            }
        }
        for (Future<RecordMetadata> future : sent) {
            RecordMetadata metadata = future.get();
            OUT.println(metadata.partition() + "\t" + metadata.offset());
        }
    }

    /** Sends each line of its input, a key and a value, as it comes. Prints number, partition and offset as each is acknowledged, or the error. */
    private static void stream(String bootstrap, String topic) throws Exception {
        Properties settings = settings(bootstrap);
        settings.put("linger.ms", "1");
        settings.put("retry.backoff.ms", "20");
        settings.put("reconnect.backoff.ms", "10");
        settings.put("reconnect.backoff.max.ms", "100");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            int number = 0;
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] parts = line.split("\t");
                byte[] key = parts[0].getBytes(StandardCharsets.UTF_8);
                byte[] value = parts[1].getBytes(StandardCharsets.UTF_8);
                String own = Integer.toString(number++);
                producer.send(new ProducerRecord<>(topic, key, value), (metadata, error) -> {
                    OUT.println(own + "\t" + (error == null ? metadata.partition() + "\t" + metadata.offset() : error));
                    OUT.flush();
                });
            }
        }
    }

    /** At least so many records, as a member of the group; a topic that begins with ^ is a pattern of the broker's. Prints partition, offset, key and value; then what the group has committed. */
    private static void consume(String bootstrap, String topic, String group, int countMin, String protocol) {
        Properties settings = settings(bootstrap);
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            if (topic.startsWith("^")) {
                consumer.subscribe(new SubscriptionPattern(topic));
            } else {
                consumer.subscribe(List.of(topic));
            }
            int count = 0;
            while (count < countMin) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(WAIT_MAX);
                if (records.isEmpty()) {
                    throw new IllegalStateException("no more records came");
                }
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    OUT.println(record.partition() + "\t" + record.offset() + "\t" + text(record.key()) + "\t" + text(record.value()));
                    count++;
                }
            }
            consumer.commitSync();
            if (topic.startsWith("^")) {
                return;
            }
            var partitions = new TreeSet<TopicPartition>((one, other) -> Integer.compare(one.partition(), other.partition()));
            consumer.partitionsFor(topic).forEach(info -> partitions.add(new TopicPartition(topic, info.partition())));
            for (Map.Entry<TopicPartition, OffsetAndMetadata> entry : consumer.committed(partitions).entrySet()) {
                long offset = entry.getValue() == null ? 0 : entry.getValue().offset();
                OUT.println("committed\t" + entry.getKey().partition() + "\t" + offset);
            }
        }
    }

    /** So many transactions of so many records, their values "transaction-record"; every third one is aborted. */
    private static void transact(String bootstrap, String topic, int count, int recordCount) {
        Properties settings = settings(bootstrap);
        settings.put("transactional.id", "java-" + topic);
        settings.put("compression.type", "lz4");
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            for (int transaction = 0; transaction < count; transaction++) {
                producer.beginTransaction();
                for (int index = 0; index < recordCount; index++) {
                    byte[] value = (transaction + "-" + index).getBytes(StandardCharsets.UTF_8);
                    producer.send(new ProducerRecord<>(topic, value));
                }
                if (transaction % 3 == 0) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
    }

    /**
     * A transaction for each line of its input, "commit" or "abort", a value and an offset: the value goes to each topic, the offset of the
     * first topic's partition 0 to group "g". Prints "ok" as each has ended, or the error, after which it ends.
     */
    private static void transactions(String bootstrap, String id, String[] topics) throws Exception {
        Properties settings = settings(bootstrap);
        settings.put("transactional.id", id);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            OUT.println("ok");
            OUT.flush();
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] parts = line.split("\t");
                producer.beginTransaction();
                for (String topic : topics) {
                    producer.send(new ProducerRecord<>(topic, parts[1].getBytes(StandardCharsets.UTF_8)));
                }
                var offsets = Map.of(new TopicPartition(topics[0], 0), new OffsetAndMetadata(Long.parseLong(parts[2])));
                producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata("g"));
                if (parts[0].equals("commit")) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                OUT.println("ok");
                OUT.flush();
            }
        } catch (KafkaException error) {
            OUT.println(error);
            OUT.flush();
        }
    }

    /** All records of all partitions that the isolation level shows: partition, offset and value. */
    private static void read(String bootstrap, String topic, String isolationLevel) {
        Properties settings = settings(bootstrap);
        settings.put("isolation.level", isolationLevel);
        settings.put("auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(info -> partitions.add(new TopicPartition(topic, info.partition())));
            consumer.assign(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    OUT.println(record.partition() + "\t" + record.offset() + "\t" + text(record.value()));
                }
            }
        }
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
