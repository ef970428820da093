import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;

/** Prints what java.util.Properties makes of each file of a directory: one line a file, its UTF-16 units in hexadecimal. */
public class ReadProperties {
    public static void main(String[] arguments) throws Exception {
        List<Path> files = new ArrayList<>();
        try (var found = Files.list(Path.of(arguments[0]))) {
            found.forEach(files::add);
        }
        Collections.sort(files);
        for (Path file : files) {
            System.out.println(file.getFileName() + " " + read(file));
        }
    }

    private static String read(Path file) throws Exception {
        Properties properties = new Properties();
        try (InputStream in = Files.newInputStream(file)) {
            properties.load(in);
        } catch (IllegalArgumentException malformed) {
            return "malformed";
        }
        List<String> pairs = new ArrayList<>();
        for (String name : properties.stringPropertyNames()) {
            pairs.add(hex(name) + "=" + hex(properties.getProperty(name)));
        }
        Collections.sort(pairs);
        return String.join(",", pairs);
    }

    private static String hex(String text) {
        StringBuilder out = new StringBuilder();
        for (char unit : text.toCharArray()) {
            out.append(String.format("%04x", (int) unit));
        }
        return out.toString();
    }
}
