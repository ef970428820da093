import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Kafka's StandardAuthorizer, asked line by line.
 *
 * <p>Lines, with tabs between their parts: "new SUPER_USERS EVERYONE"; "acl ID TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION";
 * "gone ID"; "may PRINCIPAL HOST OPERATION TYPE NAME" and "any PRINCIPAL HOST OPERATION TYPE", each of which is answered with 0 or 1.
 */
public class Ask {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        StandardAuthorizer authorizer = null;
        Map<String, Uuid> ids = new HashMap<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            switch (parts[0]) {
                case "new":
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(Map.of("super.users", parts[1], "allow.everyone.if.no.acl.found", parts[2], "node.id", "1", "process.roles", "broker"));
                    authorizer.withPluginMetrics(new Unmeasured());
                    authorizer.completeInitialLoad();
                    ids.clear();
                    break;
                case "acl":
                    Uuid id = Uuid.randomUuid();
                    ids.put(parts[1], id);
                    authorizer.addAcl(id, new StandardAcl(
                        ResourceType.fromCode(Byte.parseByte(parts[2])), parts[3], PatternType.fromCode(Byte.parseByte(parts[4])),
                        parts[5], parts[6], AclOperation.fromCode(Byte.parseByte(parts[7])),
                        AclPermissionType.fromCode(Byte.parseByte(parts[8]))));
                    break;
                case "gone":
                    authorizer.removeAcl(ids.remove(parts[1]));
                    break;
                case "may":
                    Action action = new Action(AclOperation.fromCode(Byte.parseByte(parts[3])),
                        new ResourcePattern(ResourceType.fromCode(Byte.parseByte(parts[4])), parts[5], PatternType.LITERAL), 1, false, false);
                    answers.append(authorizer.authorize(asker(parts[1], parts[2]), List.of(action)).get(0) == AuthorizationResult.ALLOWED ? '1' : '0');
                    break;
                default:
                    answers.append(authorizer.authorizeByResourceType(asker(parts[1], parts[2]), AclOperation.fromCode(Byte.parseByte(parts[3])),
                        ResourceType.fromCode(Byte.parseByte(parts[4]))) == AuthorizationResult.ALLOWED ? '1' : '0');
            }
        }
        System.out.print(answers);
    }

    static AuthorizableRequestContext asker(String principal, String host) throws Exception {
        String[] named = principal.split(":", 2);
        KafkaPrincipal who = new KafkaPrincipal(named[0], named[1]);
        InetAddress address = InetAddress.getByName(host);
        return new AuthorizableRequestContext() {
            public String listenerName() { return "PLAINTEXT"; }
            public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
            public KafkaPrincipal principal() { return who; }
            public InetAddress clientAddress() { return address; }
            public int requestType() { return 0; }
            public int requestVersion() { return 0; }
            public String clientId() { return ""; }
            public int correlationId() { return 0; }
        };
    }

    /** Nothing is measured. */
    static class Unmeasured implements PluginMetrics {
        public MetricName metricName(String name, String description, java.util.LinkedHashMap<String, String> tags) {
            return new MetricName(name, "plugins", description, tags);
        }
        public void addMetric(MetricName name, org.apache.kafka.common.metrics.MetricValueProvider<?> provider) { }
        public void removeMetric(MetricName name) { }
        public org.apache.kafka.common.metrics.Sensor addSensor(String name) { return SENSORS.sensor(name); }
        public void removeSensor(String name) { SENSORS.removeSensor(name); }
        static final org.apache.kafka.common.metrics.Metrics SENSORS = new org.apache.kafka.common.metrics.Metrics();
    }
}
