package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
	"github.com/crannog/crannog/internal/server/standard"
	"github.com/crannog/crannog/internal/telemetry"
)

// serverVerbs is the command that serves the API, with all its frontends.
type serverVerbs struct{ *app }

// serveFlags are the flags of crannog serve.
type serveFlags struct {
	key     string
	keyFile string
	domain  string
	dryRun  bool
	noKey   bool
}

func (a serverVerbs) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the server", Args: cobra.NoArgs,
		Long: "Run the server: the E2B API and Crannog's own API on one port. Standard output gets\n" +
			"three export lines for a shell, and comments:\n\n" +
			"  crannog serve > crannog.env &\n" +
			"  . ./crannog.env\n\n" +
			"Only hashes of keys are stored, so an earlier key cannot be printed again. Each start\n" +
			"creates a key and prints it, unless --key-file or E2B_API_KEY provides one. Keys stay\n" +
			"valid after the server has ended: crannog key ls lists them, key revoke revokes one.",
		Example: "  crannog serve\n  crannog serve --listen 127.0.0.1:7171 --state /srv/crannog",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.String("listen", "", "`address` to listen on (default 127.0.0.1:7070)")
	flags.Bool("insecure", false, "allow an address that other machines can reach, without TLS")
	flags.StringVar(&f.key, "key", "", "API `key` that clients show, instead of a new one; it is visible in the list of processes, so prefer --key-file or $E2B_API_KEY")
	flags.StringVar(&f.keyFile, "key-file", "", "`file` with the API key that clients show; - is standard input")
	flags.BoolVar(&f.noKey, "no-key", false, "create and print no key and no link to the console; crannog key create and crannog console make them")
	flags.StringVar(&f.domain, "domain", "", "domain of the host names of sandboxes, such as sbx.example.com:443 (default on loopback localhost:PORT)")
	flags.String("log-format", "", "`format` of the server's log: text or json (default text)")
	offerValues(cmd, "log-format", []cobra.Completion{"text", "json"})
	flags.String("otlp-endpoint", "", "`URL` of an OpenTelemetry receiver for traces and metrics (default $OTEL_EXPORTER_OTLP_ENDPOINT; without either nothing is sent)")
	flags.String("approval-webhook", "", "`URL` that receives each approval request and decision, signed with CRANNOG_APPROVAL_WEBHOOK_SECRET")
	flags.String("organisation-policy", "", "`file` with the policy that limits every sandbox")
	flags.String("project-policy", "", "`file` with a policy below the organisation's, for this server's sandboxes")
	flags.String("default-level", "", "`level` of a sandbox that names none (default standard)")
	flags.String("default-engine", "", "`engine` of a sandbox that names none (default: the first that crannog engines lists)")
	a.offerEngines(cmd, "default-engine")
	flags.String("docker-host", "", "`address` of the Docker Engine for the engine docker (default that of DOCKER_HOST, or Docker's)")
	flags.String("microvm-kernel", "", "`path` of the kernel of the engine microvm, or of a directory with kernels (default /boot)")
	flags.String("docker-runtime", "", "OCI `runtime` of the engine docker, such as crun (default that of the Docker Engine)")
	flags.String("max-live", "", "sandboxes alive at once (default 200)")
	flags.String("starts-at-once", "", "sandboxes that start at the same time; 0 adapts to the machine (default 0)")
	flags.String("max-queued", "", "requests that may wait for a sandbox (default 1000)")
	flags.String("max-queue-wait", "", "longest expected waiting `time` at which a request is queued (default 5m)")
	flags.String("pool", "", "`memory` for warm sandboxes: auto, a size, or off (default auto)")
	flags.String("pool-languages", "", "`languages` that are loaded in warm sandboxes, separated by commas, or none (default python,javascript)")
	offerValues(cmd, "pool-languages", []cobra.Completion{"python", "javascript", "python,javascript", "none"})
	flags.String("default-timeout", "", "lifetime of a sandbox that names none (default 5m)")
	flags.String("max-timeout", "", "longest lifetime that a key may request (default 24h)")
	flags.String("retention", "", "how long the events of an ended sandbox are kept (default 24h)")
	flags.BoolVar(&f.dryRun, "dry-run", false, "check settings and machine, and do not start")
	return cmd
}

func (a serverVerbs) serve(ctx context.Context, f *serveFlags) error {
	log, err := a.serverLog()
	if err != nil {
		return err
	}
	settings, err := a.settings()
	if err != nil {
		return err
	}
	given, err := a.givenKey(f)
	if err != nil {
		return err
	}
	sending, err := telemetry.Read(a.config.Telemetry.Endpoint, a.variable)
	if err != nil {
		return fail("configure telemetry", err)
	}
	if f.dryRun {
		return a.checkServe(ctx, log)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	defer context.AfterFunc(ctx, stop)()
	listener, err := a.listener(ctx)
	if err != nil {
		return err
	}
	tracing, err := telemetry.Open(ctx, sending, a.version, log)
	if err != nil {
		return errors.Join(fail("configure telemetry", err), listener.Close())
	}
	return errors.Join(a.serveOn(ctx, f, log, settings, given, listener, tracing), tracing.Close(ctx))
}

// serveOn serves on a listener until the context ends.
func (a serverVerbs) serveOn(ctx context.Context, f *serveFlags, log *slog.Logger, settings sandbox.Settings, given string, listener net.Listener, tracing *telemetry.Tracing) error {
	domain := first(f.domain, ownDomain(listener.Addr().String()))
	base := "http://" + reachable(listener.Addr().String())
	d, err := standard.Open(ctx, standard.Options{
		State: a.config.State, Log: log, Tracing: tracing, Server: true, Domain: domain, Version: a.version, Frontends: a.frontends(base, domain, settings, log),
		Pool: a.pool(), Webhook: a.webhook(log),
		Settings: settings, Starts: standard.Starts(a.config), Connections: standard.Connections(a.config),
		DefaultEngine: a.config.Engines.Default, Docker: standard.DockerOf(a.config), MicroVM: standard.MicroVMOf(a.config), NoDevice: standard.NoDevice(a.config), Images: standard.ImagesOf(a.config), Packages: standard.PackagesOf(a.config), SecretsKey: a.config.Secrets.Key, SecretsExec: a.config.Secrets.Exec, Audit: standard.Audit(a.config), HostEtc: a.config.HostEtcPaths(),
	})
	if err != nil {
		return errors.Join(fail("start the server", err).hint(first(fault.HintOf(err), "crannog doctor shows what this machine lacks")), listener.Close())
	}
	secret, link, err := a.credentials(ctx, f, d, given, base)
	if err != nil {
		return errors.Join(err, listener.Close(), d.Close(context.WithoutCancel(ctx)))
	}
	if err := d.Listen(ctx); err != nil {
		return errors.Join(fail("start the server", err).hint(fault.HintOf(err)), listener.Close(), d.Close(context.WithoutCancel(ctx)))
	}
	a.printStart(d, listener.Addr().String(), secret, link)
	err = d.Serve(ctx, listener)
	err = errors.Join(err, d.Close(context.WithoutCancel(ctx)))
	if err != nil {
		return fail("serve", err)
	}
	return nil
}

// pool returns the configuration of the warm pool, or nil.
func (a serverVerbs) pool() *server.Pool {
	if !a.config.Pool.On {
		return nil
	}
	return &server.Pool{Bytes: a.config.Pool.Bytes, Languages: a.config.PoolLanguages}
}

// webhook returns the configuration of the approval webhook, or nil.
func (a serverVerbs) webhook(log *slog.Logger) *approval.Webhook {
	if a.config.Webhook.URL == "" {
		return nil
	}
	return &approval.Webhook{URL: a.config.Webhook.URL, Secret: a.config.Webhook.Secret.Reveal(), Log: log}
}

// serverLog returns the server's log, with the level of the settings.
func (a serverVerbs) serverLog() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.config.Telemetry.LogLevel)); err != nil {
		return nil, fail("use log_level", invalid(codeSettings, err))
	}
	if a.verbose {
		level = slog.LevelDebug
	}
	return telemetry.NewLog(a.Stderr, a.config.Telemetry.LogFormat, level), nil
}

// checkServe makes all checks that are possible without starting the server.
func (a serverVerbs) checkServe(ctx context.Context, log *slog.Logger) error {
	engines, err := standard.Engines(standard.Options{State: a.config.State, Log: log, DefaultEngine: a.config.Engines.Default, Docker: standard.DockerOf(a.config), MicroVM: standard.MicroVMOf(a.config), NoDevice: standard.NoDevice(a.config)})
	if err != nil {
		return fail("configure the engines", err)
	}
	if err := engine.Refusal(engines.Default().Probe(ctx)); err != nil {
		return fail("run sandboxes here", err).hint(first(fault.HintOf(err), "crannog doctor shows details"))
	}
	a.note("the settings are valid, and sandboxes can run here")
	return nil
}

// maxKey bounds the file of a key, in bytes. Every key is shorter.
const maxKey = 4 << 10

// givenKey returns the secret that the user chose, or "".
func (a serverVerbs) givenKey(f *serveFlags) (string, error) {
	switch {
	case f.key != "" && f.keyFile != "":
		return "", usagef("--key and --key-file exclude each other")
	case f.noKey && (f.key != "" || f.keyFile != ""):
		return "", usagef("--no-key excludes --key and --key-file")
	case f.key != "":
		a.note("the value of --key is visible in this machine's list of processes; --key-file does not show it")
		return f.key, nil
	case f.keyFile == "":
		return first(a.config.Client.Key.Reveal(), a.variable("E2B_API_KEY")), nil
	}
	var text []byte
	var err error
	if f.keyFile == "-" {
		text, err = io.ReadAll(io.LimitReader(a.Stdin, maxKey))
	} else {
		text, err = readFile(f.keyFile, maxKey)
	}
	if err != nil {
		return "", fail("read the key", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", usagef("--key-file: %s is empty", f.keyFile)
	}
	return key, nil
}

// credentials returns a key and a line with a link to the console for the start message, or "" with
// --no-key. A service manager would keep the message in its log.
func (a serverVerbs) credentials(ctx context.Context, f *serveFlags, d *server.Server, given, base string) (secret, link string, err error) {
	if f.noKey {
		return "", "", nil
	}
	if secret, err = a.serverKey(ctx, d, given); err != nil {
		return "", "", fail("create a key", err)
	}
	if link, err = a.firstLink(ctx, d, base); err != nil {
		return "", "", fail("create a link to the console", err)
	}
	return secret, link, nil
}

// serverKey returns the secret for clients of this process.
func (a serverVerbs) serverKey(ctx context.Context, d *server.Server, given string) (string, error) {
	if given != "" {
		_, err := d.Keys.Adopt(ctx, "given", given)
		return given, err
	}
	secret, _, err := d.Keys.Create(ctx, "serve "+time.Now().UTC().Format("2006-01-02 15:04:05"))
	return secret, err
}

// printStart prints information for people, as comments, and variables for a shell.
func (a serverVerbs) printStart(d *server.Server, addr, secret, console string) {
	base := "http://" + reachable(addr)
	info := d.Engines.Default().Info()
	fmt.Fprintf(a.Stdout, "# crannog %s, engine %s (%s), state %s; Ctrl-C stops it\n", a.version, info.Name, info.Boundary, oneLine(a.config.State))
	for _, note := range info.Notes {
		fmt.Fprintf(a.Stdout, "# note: %s\n", strings.ReplaceAll(note, "\n", " "))
	}
	if !config.Loopback(hostOf(addr)) {
		fmt.Fprintln(a.Stdout, "# note: other machines can reach this port, and there is no TLS")
	}
	if secret == "" {
		fmt.Fprintf(a.Stdout, "# serving on %s\n", base)
		flush(a.Stdout)
		return
	}
	fmt.Fprintf(a.Stdout, "# %s\n", console)
	for _, pair := range [][2]string{{"E2B_API_URL", base}, {"E2B_SANDBOX_URL", base}, {"E2B_API_KEY", secret}} {
		fmt.Fprintf(a.Stdout, "export %s=%s\n", pair[0], pair[1])
	}
	flush(a.Stdout)
}

// ownDomain returns the default domain for host names of sandboxes. On loopback, these are names
// below localhost, which browsers and curl resolve themselves.
func ownDomain(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || !config.Loopback(host) {
		return ""
	}
	return net.JoinHostPort("localhost", port)
}

// hostOf returns the host of an address.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

// reachable replaces "every address" by an address that a local client can use.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// flush makes a file's content visible to processes that wait for it.
func flush(w io.Writer) {
	if f, ok := w.(*os.File); ok {
		// Terminals and pipes cannot be synced and need not be.
		_ = f.Sync()
	}
}
