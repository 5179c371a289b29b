package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/integration/devtools"
)

// browserVerbs are the commands about the browser of a sandbox.
type browserVerbs struct{ *app }

// browserFlags are the flags of crannog browser.
type browserFlags struct {
	accessFlags
	template        string
	screenshot, pdf string
	full            bool
	wait, timeout   string
	size            string
}

// browserTemplate is the template that the recipe images/browser becomes.
const browserTemplate = "browser"

func (a browserVerbs) command() *cobra.Command {
	var f browserFlags
	cmd := &cobra.Command{
		Use: "browser [URL]", Short: "Start a browser in a new sandbox", Args: cobra.MaximumNArgs(1),
		Long: "Start Chromium in a new sandbox and open a page. With --screenshot or --pdf, write the page\n" +
			"to a file of this machine, and remove the sandbox. Otherwise print an address at which\n" +
			"Playwright and Puppeteer control the browser, until this command is interrupted; then the\n" +
			"sandbox is removed. The address works on this machine alone. It contains a secret: who\n" +
			"knows it controls the browser.\n\n" +
			"The sandbox reaches only the hosts that --allow, --net, --level or --policy permit. It sees\n" +
			"no files of this machine. It starts from the template browser, which has to be built once:\n" +
			"see docs/how-to/use-a-browser.md.",
		Example: "  crannog browser https://example.com --allow example.com --screenshot page.png\n" +
			"  crannog browser https://example.com --allow example.com --pdf - | lpr\n" +
			"  crannog browser --net open",
		RunE: func(cmd *cobra.Command, args []string) error {
			address := "about:blank"
			if len(args) > 0 {
				address = args[0]
			}
			return a.run(cmd.Context(), &f, address)
		},
	}
	flags := cmd.Flags()
	f.accessFlags.add(flags)
	_ = flags.MarkHidden("artifact") // nothing is exported
	f.offer(cmd)
	flags.StringVar(&f.template, "template", browserTemplate, "template with the browser")
	flags.StringVar(&f.screenshot, "screenshot", "", "write a picture (PNG) to a new `file`; - is standard output")
	flags.BoolVar(&f.full, "full-page", false, "the picture shows the full page and not only the window")
	flags.StringVar(&f.pdf, "pdf", "", "write a PDF to a new `file`; - is standard output")
	flags.StringVar(&f.size, "size", "1280x720", "size of the window, `WIDTHxHEIGHT`")
	flags.StringVar(&f.wait, "wait", "load", "`moment` at which the page is ready: load, or idle if no request is open any more")
	flags.StringVar(&f.timeout, "timeout", "1m", "`time` after which a page that has not loaded is an error")
	offerValues(cmd, "wait", []cobra.Completion{"load", "idle"})
	return cmd
}

// visit is what crannog browser does, after its flags have been checked.
type visit struct {
	url           string
	file          string // "" runs until interrupted
	moment        string
	timeout       time.Duration
	width, height int
	access        api.Access
	flags         *browserFlags
}

// check refuses contradictory flags before anything is started.
func (a browserVerbs) check(f *browserFlags, address string) (v visit, err error) {
	v = visit{file: first(f.screenshot, f.pdf), flags: f, moment: devtools.Loaded}
	switch {
	case f.screenshot != "" && f.pdf != "":
		return v, usagef("--screenshot and --pdf exclude each other")
	case f.full && f.screenshot == "":
		return v, usagef("--full-page needs --screenshot FILE")
	case v.file == "-" && a.json:
		return v, usagef("--json and the file on standard output exclude each other")
	case v.file == "-" && isTerminal(a.Stdout):
		return v, usagef("cannot write the file to a terminal").hint("name a file, or use a pipe")
	case f.wait == "idle":
		v.moment = devtools.Idle
	case f.wait != "load":
		return v, usagef("--wait: %q is not load or idle", f.wait)
	}
	if v.timeout, err = config.ParseDuration(f.timeout); err != nil || v.timeout <= 0 {
		return v, usagef("--timeout: %q is not a time such as 30s", f.timeout)
	}
	if v.width, v.height, err = windowSize(f.size); err != nil {
		return v, err
	}
	if v.url, err = pageAddress(address); err != nil {
		return v, err
	}
	if v.access, err = f.access(); err != nil {
		return v, err
	}
	if v.access.Level == "" && v.access.Net != "open" && v.access.Policy == "" {
		v.access.Level = a.config.Policies.Level // as for crannog run
	}
	if v.file != "" && v.file != "-" {
		if err := checkVacant(v.file); err != nil {
			return v, fail("write "+v.file, err)
		}
	}
	return v, nil
}

// maxWindow bounds the sides of a window.
const maxWindow = 8192

// windowSize parses WIDTHxHEIGHT.
func windowSize(text string) (width, height int, err error) {
	var rest string
	n, _ := fmt.Sscanf(text, "%dx%d%s", &width, &height, &rest)
	if n != 2 || width < 1 || height < 1 || width > maxWindow || height > maxWindow {
		return 0, 0, usagef("--size: %q is not a size such as 1280x720, of at most %dx%d", text, maxWindow, maxWindow)
	}
	return width, height, nil
}

// pageSchemes are the schemes of pages.
var pageSchemes = []string{"http", "https", "file", "data", "about"}

// pageAddress returns the address of a page. As in a browser, a host needs no scheme.
func pageAddress(text string) (string, error) {
	if !strings.Contains(text, "://") && !strings.HasPrefix(text, "about:") && !strings.HasPrefix(text, "data:") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || !slices.Contains(pageSchemes, u.Scheme) || (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() == "" {
		return "", usagef("%q is not the address of a page", inert(text)).hint("such as https://example.com/; a file of the sandbox is file:///PATH")
	}
	return text, nil
}

func (a browserVerbs) run(ctx context.Context, f *browserFlags, address string) error {
	v, err := a.check(f, address)
	if err != nil {
		return err
	}
	return a.withInterrupt(ctx, func(ctx context.Context, c *connection) (err error) {
		sb, end, err := a.start(ctx, c, &v)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
		return a.visit(ctx, sb, &v)
	})
}

// start creates the sandbox. The returned function removes it.
func (a browserVerbs) start(ctx context.Context, c *connection, v *visit) (*crannog.Sandbox, func() error, error) {
	opts := []crannog.CreateOption{crannog.Template(v.flags.template), crannog.Access(v.access), crannog.Timeout(leaseTime)}
	if c.local {
		opts = append(opts, crannog.Ephemeral())
	}
	stop := a.progress("starting a browser")
	sb, err := c.Create(ctx, opts...)
	stop()
	if err != nil {
		failed := fail("start a browser", err)
		switch {
		case crannog.Code(err) != "template_not_found":
		case v.flags.template != browserTemplate:
			failed = failed.hint("crannog template ls lists the templates")
		default:
			failed = failed.hint("build it once, from Crannog's sources:\n" +
				"crannog image bootstrap\n" +
				"crannog template build -t browser --build-arg BASE=localhost/debian:bookworm images/browser")
		}
		return nil, nil, failed
	}
	release := runVerbs(a).keepAlive(ctx, sb)
	return sb, func() error {
		release()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if err := sb.Kill(ctx); err != nil && !errors.Is(err, crannog.ErrNotFound) {
			return fail("remove sandbox "+sb.ID(), err).hint("crannog rm " + sb.ID())
		}
		return nil
	}, nil
}

// visit opens the page and does with it what the flags say.
func (a browserVerbs) visit(ctx context.Context, sb *crannog.Sandbox, v *visit) error {
	conn, err := devtools.Dial(ctx, sb.HTTPClient(), fmt.Sprintf("ws://localhost:%d/devtools/browser", guestboot.DevToolsPort))
	if err != nil {
		return fail("reach the browser", err).hint("does the template " + inert(v.flags.template) + " have a browser? crannog help browser")
	}
	defer conn.Close()
	page, err := conn.NewPage(ctx, v.width, v.height, v.file != "")
	if err != nil {
		return fail("open a page", err)
	}
	denials := runVerbs(a).reportBlocked(ctx, sb, true)
	failed := true
	defer func() { denials.end(ctx, failed) }()
	answer, err := a.open(ctx, page, v)
	if err != nil {
		return err
	}
	failed = false
	if v.file == "" {
		return a.offerBrowser(ctx, sb, conn, v)
	}
	return a.capture(ctx, sb, page, v, answer)
}

// open navigates, and returns an error if the page did not open or the gateway refused it.
func (a browserVerbs) open(ctx context.Context, page *devtools.Page, v *visit) (devtools.Answer, error) {
	stop := a.progress("loading the page")
	defer stop()
	loading, cancel := context.WithTimeoutCause(ctx, v.timeout, fault.Newf(fault.Timeout, "page_timeout", "the page has not loaded within %s", v.timeout))
	defer cancel()
	answer, err := page.Open(loading, v.url, v.moment)
	op := "open " + inert(v.url)
	if answer.Blocked != "" {
		e := fail(op, fault.Newf(fault.Denied, "navigation_denied", "%s", answer.Blocked))
		if !strings.Contains(answer.Blocked, " allow with ") {
			e = e.hint(allowHint(v.url))
		}
		return answer, e
	}
	if failed, ok := errors.AsType[*devtools.NavigationError](err); ok {
		e := fail(op, fault.Newf(fault.Unavailable, "navigation_failed", "%s", failed.Reason))
		if strings.Contains(failed.Reason, "ERR_NAME_NOT_RESOLVED") || strings.Contains(failed.Reason, "ERR_INTERNET_DISCONNECTED") {
			e = e.hint("a host that the policy does not permit has no name; " + allowHint(v.url))
		}
		return answer, e
	}
	if err != nil {
		e := fail(op, err)
		if loading.Err() != nil && ctx.Err() == nil {
			e = e.hint("--timeout sets a longer time; crannog net log shows what the sandbox waits for")
		}
		return answer, e
	}
	return answer, nil
}

// allowHint names the flag that permits the host of an address.
func allowHint(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return "crannog help network"
	}
	host := u.Host
	if u.Scheme == "http" && u.Port() == "" {
		host += ":80"
	}
	return "--allow " + inert(host) + " permits it; crannog help network"
}
