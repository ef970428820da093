package interop;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import kafka.cluster.Broker;
import kafka.controller.LeaderIsrAndControllerEpoch;
import kafka.controller.ReplicaAssignment;
import kafka.zk.AdminZkClient;
import kafka.zk.KafkaZkClient;
import kafka.zk.TopicZNode;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.common.utils.Time;
import org.apache.zookeeper.client.ZKClientConfig;
import scala.jdk.javaapi.CollectionConverters;

/** Apache Kafka 3.9's own client of ZooKeeper: it reads every znode of a cluster, and changes configurations as Kafka's tools do. */
public final class Znodes {
    public static void main(String[] arguments) {
        KafkaZkClient client = KafkaZkClient.apply(
            arguments[0], false, 10000, 10000, 10, Time.SYSTEM, "interop", new ZKClientConfig(), "kafka.server", "SessionExpireListener", false, false);
        try {
            switch (arguments[1]) {
                case "read" -> read(client);
                case "token" -> print("token", client.getDelegationTokenInfo(arguments[2]).get());
                case "put-token" -> putToken(client, arguments[2], arguments[3], Long.parseLong(arguments[4]));
                case "config" -> configure(new AdminZkClient(client, scala.Option.empty()), arguments);
                default -> throw new IllegalArgumentException(arguments[1]);
            }
        } finally {
            client.close();
        }
    }

    private static void read(KafkaZkClient client) {
        print("cluster", client.getClusterId().get());
        print("controller", client.getControllerId().get());
        print("controller epoch", client.getControllerEpoch().get()._1());
        TreeMap<Integer, Broker> brokers = new TreeMap<>();
        CollectionConverters.asJava(client.getAllBrokersInCluster()).forEach(broker -> brokers.put(broker.id(), broker));
        brokers.values().forEach(broker -> print("broker " + broker.id(), CollectionConverters.asJava(broker.endPoints()).get(0).connectionString() + " rack " + broker.rack().getOrElse(() -> "-")));
        for (String topic : new TreeSet<>(CollectionConverters.asJava(client.getAllTopicsInCluster(false)))) {
            scala.collection.immutable.Set<String> asked = CollectionConverters.asScala(java.util.Set.of(topic)).toSet();
            TopicZNode.TopicIdReplicaAssignment found = CollectionConverters.asJava(client.getReplicaAssignmentAndTopicIdForTopics(asked)).iterator().next();
            print("topic " + topic, found.topicId().get());
            TreeMap<Integer, TopicPartition> partitions = new TreeMap<>();
            Map<TopicPartition, ReplicaAssignment> assignment = CollectionConverters.asJava(found.assignment());
            assignment.keySet().forEach(partition -> partitions.put(partition.partition(), partition));
            Map<TopicPartition, LeaderIsrAndControllerEpoch> states = CollectionConverters.asJava(
                client.getTopicPartitionStates(CollectionConverters.asScala(List.copyOf(partitions.values())).toSeq()));
            for (TopicPartition partition : partitions.values()) {
                LeaderIsrAndControllerEpoch state = states.get(partition);
                print("partition " + partition, CollectionConverters.asJava(assignment.get(partition).replicas())
                    + " leader " + state.leaderAndIsr().leader() + " epoch " + state.leaderAndIsr().leaderEpoch()
                    + " isr " + CollectionConverters.asJava(state.leaderAndIsr().isr())
                    + " partition epoch " + state.leaderAndIsr().partitionEpoch() + " controller epoch " + state.controllerEpoch());
            }
            print("config of " + topic, new TreeMap<>(client.getEntityConfigs("topics", topic)));
        }
        print("config of user a b", new TreeMap<>(client.getEntityConfigs("users", "a%20b")));
    }

    /** As Kafka's DelegationTokenManagerZk does; what the HMAC is, no znode says. */
    private static void putToken(KafkaZkClient client, String id, String owner, long untilMs) {
        KafkaPrincipal principal = SecurityUtils.parseKafkaPrincipal(owner);
        client.setOrCreateDelegationToken(new DelegationToken(new TokenInformation(id, principal, List.of(), 1, untilMs, untilMs), new byte[0]));
        client.createTokenChangeNotification(id);
        print("token", client.getDelegationTokenInfo(id).get());
    }

    private static void configure(AdminZkClient admin, String[] arguments) {
        Properties values = new Properties();
        Arrays.stream(arguments).skip(3).map(pair -> pair.split("=", 2)).forEach(pair -> values.setProperty(pair[0], pair[1]));
        String[] entity = arguments[2].split("/", 2);
        switch (entity[0]) {
            case "topics" -> admin.changeTopicConfig(entity[1], values);
            case "brokers" -> admin.changeBrokerConfig(scala.Option.<Object>empty(), values);
            case "clients" -> admin.changeClientIdConfig(entity[1], values);
            default -> throw new IllegalArgumentException(entity[0]);
        }
        print("changed", arguments[2]);
    }

    private static void print(String name, Object value) {
        System.out.println(name + ": " + value);
    }
}
