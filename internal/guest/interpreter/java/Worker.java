import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import jdk.jshell.*;
import jdk.jshell.Snippet.SubKind;

/**
 * The Java worker. It reads requests from descriptor 3, each a line of words, of which texts are
 * "=" and base64. It sends messages to descriptor 4, and waits for acknowledgements on descriptor
 * 5. Code runs in this virtual machine, as snippets of jshell.
 */
class Worker {
    private static final List<String> IMPORTS = List.of("java.io.*", "java.math.*", "java.net.*", "java.nio.file.*",
        "java.util.*", "java.util.concurrent.*", "java.util.function.*", "java.util.regex.*", "java.util.stream.*");

    private final OutputStream messages = new FileOutputStream(descriptor(4));
    private final InputStream acks = new FileInputStream(descriptor(5));
    private final JShell shell = JShell.builder().executionEngine("local").out(System.out).err(System.err).build();
    /** Whether code runs that may be interrupted. The lock also guards the change of this. */
    private boolean running;
    private boolean interrupted;

    private Worker() throws IOException {
        for (String name : IMPORTS) shell.eval("import " + name + ";");
        sun.misc.Signal.handle(new sun.misc.Signal("INT"), signal -> interrupt());
    }

    public static void main(String[] args) throws IOException {
        // Each line of output is passed on at once, and the rest before a message.
        System.setOut(new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(new FileOutputStream(FileDescriptor.err), true, StandardCharsets.UTF_8));
        var requests = new BufferedReader(new InputStreamReader(new FileInputStream(descriptor(3)), StandardCharsets.US_ASCII));
        var worker = new Worker();
        worker.send("ready", 0, "");
        for (String line; (line = requests.readLine()) != null;) worker.serve(line.split(" "));
        System.exit(0);
    }

    /** The pipes belong to the user of the guest, so they cannot be opened by their names. */
    private static FileDescriptor descriptor(int number) {
        try {
            var descriptor = new FileDescriptor();
            var field = FileDescriptor.class.getDeclaredField("fd");
            field.setAccessible(true);
            field.setInt(descriptor, number);
            return descriptor;
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private void serve(String[] words) throws IOException {
        switch (words[0]) {
            case "code" -> {
                var before = new HashMap<String, String>();
                for (int i = 3; i + 1 < words.length; i += 2) {
                    String name = text(words[i]);
                    before.put(name, System.getProperty(name));
                    setProperty(name, text(words[i + 1]));
                }
                int n = Integer.parseInt(words[1]);
                run(n, text(words[2]));
                before.forEach(Worker::setProperty);
                send("done", n, "");
            }
            case "preload" -> send("done", 0, "");
            case "renew" -> renew(Long.parseLong(words[1]));
            default -> { }
        }
    }

    /** Variables of a request are properties of the system, because Java cannot change its environment. */
    private static void setProperty(String name, String value) {
        if (name.isEmpty()) return; // Java refuses it
        if (value == null) System.clearProperty(name);
        else System.setProperty(name, value);
    }

    /** Reseeds the generators that all code shares. */
    private static void renew(long seed) {
        Collections.shuffle(new ArrayList<>(List.of(1, 2))); // creates its generator
        Math.random();
        for (var field : List.of("java.lang.Math$RandomNumberGeneratorHolder.randomNumberGenerator", "java.util.Collections.r")) {
            try {
                int dot = field.lastIndexOf('.');
                var generator = Class.forName(field.substring(0, dot)).getDeclaredField(field.substring(dot + 1));
                generator.setAccessible(true);
                ((Random) generator.get(null)).setSeed(seed);
            } catch (ReflectiveOperationException e) {
                System.err.println("random numbers of this copy are not new: " + e);
            }
        }
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word.substring(1)), StandardCharsets.UTF_8);
    }

    private void interrupt() {
        synchronized (this) {
            if (!running) return; // it came too late
            interrupted = true;
        }
        shell.stop();
    }

    /** Evaluates code, one snippet after the other. */
    private void run(int n, String code) throws IOException {
        synchronized (this) {
            running = true;
            interrupted = false;
        }
        try {
            for (String rest = code; !rest.isBlank();) {
                var found = shell.sourceCodeAnalysis().analyzeCompletion(rest);
                if (found.completeness() == SourceCodeAnalysis.Completeness.EMPTY) break;
                String source = found.source() == null ? rest : found.source();
                rest = found.source() == null ? "" : found.remaining();
                for (var event : shell.eval(source)) {
                    if (event.causeSnippet() == null && !report(n, event, rest.isBlank())) return;
                }
                if (isInterrupted()) return;
            }
        } finally {
            boolean report;
            synchronized (this) {
                running = false;
                report = interrupted;
            }
            if (report) error(n, "KeyboardInterrupt", "The code was interrupted.", "The code was interrupted.");
        }
    }

    private synchronized boolean isInterrupted() { return interrupted; }

    /** Sends the outcome of a snippet, and returns whether the next one may run. */
    private boolean report(int n, SnippetEvent event, boolean last) throws IOException {
        if (isInterrupted()) return false;
        if (event.exception() != null) {
            fail(n, event.exception());
            return false;
        }
        if (event.status() == Snippet.Status.REJECTED) {
            var text = new StringJoiner("\n");
            shell.diagnostics(event.snippet()).forEach(d -> text.add(d.getMessage(Locale.ROOT)));
            error(n, "CompilationError", text.toString(), text + "\n" + event.snippet().source());
            return false;
        }
        String value = shown(event);
        if (value != null) {
            send("result", n, ",\"ack\":true,\"is_main_result\":" + last + ",\"text\":" + quoted(value));
            if (acks.read() < 0) System.exit(0);
        }
        return true;
    }

    /** Returns the text of an expression's value, or null if there is nothing to show. */
    private static String shown(SnippetEvent event) {
        var kind = event.snippet().subKind();
        if (event.value() == null || event.value().isEmpty() || kind != SubKind.TEMP_VAR_EXPRESSION_SUBKIND
            && kind != SubKind.VAR_VALUE_SUBKIND && kind != SubKind.OTHER_EXPRESSION_SUBKIND) return null;
        String value = event.value();
        String type = event.snippet() instanceof VarSnippet v ? v.typeName()
            : event.snippet() instanceof ExpressionSnippet e ? e.typeName() : "";
        // jshell shows texts as literals.
        if (type.equals("String") && value.length() > 1 && value.startsWith("\"") && value.endsWith("\"")) {
            try {
                return value.substring(1, value.length() - 1).translateEscapes();
            } catch (IllegalArgumentException e) {
                return value;
            }
        }
        return value;
    }

    private void fail(int n, JShellException e) throws IOException {
        String name = e instanceof EvalException thrown ? thrown.getExceptionClassName() : "UnresolvedReference";
        var trace = new StringJoiner("\n    at ", name + ": " + e.getMessage() + "\n    at ", "");
        for (var frame : e.getStackTrace()) trace.add(frame.toString());
        error(n, name, String.valueOf(e.getMessage()), trace.toString());
    }

    private void error(int n, String name, String value, String traceback) throws IOException {
        send("error", n, ",\"name\":" + quoted(name) + ",\"value\":" + quoted(value) + ",\"traceback\":" + quoted(traceback));
    }

    private void send(String type, int n, String fields) throws IOException {
        System.out.flush();
        System.err.flush();
        messages.write(("{\"type\":\"" + type + "\",\"n\":" + n + fields + "}\n").getBytes(StandardCharsets.UTF_8));
    }

    private static String quoted(String text) {
        var out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < ' ' || Character.isSurrogate(c)) out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.append('"').toString();
    }
}
