package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/integration/agents"
)

// runVerbs are the commands that run a program in a sandbox: run, exec and shell.
type runVerbs struct{ *app }

// runFlags are the flags of crannog run.
type runFlags struct {
	sandboxFlags
	commandFlags
	detach bool
	rm     bool
	// noChanges retains neither the changes of the workspace nor the recordings. summary prints the
	// changes even without a terminal.
	noChanges, summary bool
	branch             string
	mcp                bool
	agent              *agentRun // nil is a plain command
}

// commandFlags are the flags about one command.
type commandFlags struct {
	user    string
	cwd     string
	timeout string
	noTTY   bool
	// detachChildren ends the command's output with the command itself, even if child processes
	// continue.
	detachChildren bool
	// maxOutput bounds the output in --json.
	maxOutput string
}

func (c *commandFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&c.user, "user", "u", "", "`user` inside (default user)")
	f.StringVarP(&c.cwd, "cwd", "w", "", "working `directory` inside")
	f.StringVarP(&c.timeout, "timeout", "t", "", "kill the command after a `time`; exit code 124")
	f.BoolVar(&c.detachChildren, "detach-children", false, "end when the command itself ends, even if a background process keeps its output open")
	f.StringVar(&c.maxOutput, "max-output", "", "maximum output that --json returns, such as 1m")
	f.BoolVarP(&c.noTTY, "no-tty", "T", false, "allocate no terminal inside")
	// Flags after the command's name belong to the command.
	f.SetInterspersed(false)
}

func (a runVerbs) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARG...]",
		Short: "Run a command, or an agent by its name, in a new sandbox",
		Long: "Run a command in a new sandbox, which is removed afterwards.\n\n" +
			"The current directory is visible at /workspace, copy-on-write: the command may\n" +
			"change files, but the host's files never change. Of the environment only the\n" +
			"language, the time zone (TZ, or /etc/localtime) and the terminal's type are passed,\n" +
			"because the rest may contain secrets. There is no network unless --allow, --net, --policy\n" +
			"or --ask gives one; see crannog help network. The exit code is the command's; see\n" +
			"crannog help exit-codes.\n\n" +
			"The command's output ends when no process has it open any more: a server that the\n" +
			"command leaves in the background keeps run waiting, unless the server's output is\n" +
			"redirected (>/dev/null 2>&1) or --detach-children is given.\n\n" +
			"As the first word, without -- before it, these names are agents that are installed\n" +
			"on this machine (crannog help agents):\n\n" + strings.TrimRight(agentTable(), "\n"),
		Example:     "  crannog run -- sh -c 'echo $((6*7))'\n  crannog run --timeout 30s --memory 512m make test\n  tar c . | crannog run wc -c",
		Annotations: map[string]string{"code": "own"},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return agents.Names(), cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkMountHabit(cmd, args); err != nil {
				return err
			}
			f.agent, args = agentByName(cmd.ArgsLenAtDash(), args)
			return a.run(cmd.Context(), &f, args)
		},
	}
	f.sandboxFlags.add(cmd.Flags())
	f.addTools(cmd)
	f.commandFlags.add(cmd)
	f.offer(cmd)
	a.offerStart(cmd)
	cmd.Flags().BoolVar(&f.ask, "ask", false, "ask at this terminal about approval requests; without a policy, about every host")
	cmd.Flags().StringVar(&f.entrypoint, "entrypoint", "", "`command` in place of the image's entrypoint")
	cmd.Flags().BoolVarP(&f.detach, "detach", "d", false, "print the sandbox's ID and leave the command running; crannog logs -f shows its output")
	cmd.Flags().BoolVar(&f.mcp, "mcp", false, "the command is an MCP server on standard streams: it has no terminal, and ends with its input")
	cmd.Flags().StringVar(&f.branch, "branch", "", "create a git branch of this `name` inside and work on it; the repository here does not change")
	cmd.Flags().BoolVar(&f.noChanges, "no-changes", false, "retain neither changes nor recordings (not with --name or -d)")
	cmd.Flags().BoolVar(&f.summary, "summary", false, "print a summary of changes at the end, even without a terminal")
	cmd.Flags().BoolVar(&f.rm, "rm", true, "remove the sandbox at the end (not with --name or -d)")
	return cmd
}

// outlives reports whether the sandbox outlives the command.
func (f *runFlags) outlives() bool { return f.detach || f.name != "" || !f.rm }

// check refuses contradictory flags before an engine is started.
func (f *runFlags) check() error {
	if _, err := f.access(); err != nil {
		return err
	}
	if err := checkBranch(f); err != nil {
		return err
	}
	if _, err := splitMounts(f.mounts); err != nil {
		return err
	}
	if _, err := splitVolumes(f.volumes); err != nil {
		return err
	}
	if err := f.checkStart(); err != nil {
		return err
	}
	onEnd, err := f.atEnd()
	if err != nil {
		return err
	}
	if onEnd != (api.OnEnd{}) && !f.outlives() {
		return usagef("--on-end and --wake need --name or --detach: this sandbox is removed afterwards")
	}
	return nil
}

func (a runVerbs) run(ctx context.Context, f *runFlags, args []string) error {
	if f.ask && f.detach {
		return usagef("--ask and --detach exclude each other: a detached command has no terminal for prompts").hint("crannog approvals --watch shows the requests")
	}
	if f.image != "" && f.agent != nil {
		return usagef("--image needs a command, but %s is an agent on this machine", f.agent.Name).hint("crannog run --image IMAGE -- COMMAND runs a program of the image")
	}
	if len(args) == 0 && f.agent == nil && f.image == "" {
		return usagef("run needs a command").hint("crannog run -- sh -c 'echo $((6*7))'")
	}
	if err := f.check(); err != nil {
		return err
	}
	if err := a.checkMCP(f); err != nil {
		return err
	}
	if f.detach && a.holder == nil && !a.hasServer(ctx) {
		return a.detach()
	}
	signals, release := notifySignals()
	defer release()
	// Until the command runs, a signal cancels the start.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var code int
	err := a.with(ctx, func(c *connection) error {
		if f.agent != nil {
			f.agentTools = f.agent.Tools
			if err := f.agent.prepare(ctx, a.app, c, f); err != nil {
				return err
			}
			args = append(f.agent.found.Args, args...)
		}
		if f.image != "" {
			img, err := imageVerbs(a).fetchImage(ctx, c, &f.imageFlags, f.engine)
			if err != nil {
				return err
			}
			// The image was just fetched, so it need not be fetched again.
			f.pull = ""
			if args, err = imageArgs(&f.imageFlags, img, args); err != nil {
				return err
			}
		}
		b, err := a.open(ctx, c, f, signals, cancel)
		if err != nil {
			return err
		}
		b.warnOfApprovers(ctx)
		b.reportTracked()
		b.reportTools()
		b.reportNotes()
		b.reportKeys()
		if err = b.prepare(ctx); err == nil {
			code, err = b.do(ctx, c, args)
			if err == nil && !a.json {
				b.keepChanges(ctx)
			}
			b.keepRecordings(ctx)
		}
		if err == nil && a.holder != nil && b.detached != nil {
			release()
			err = a.holder.waitForEnd(b.detached)
		}
		return errors.Join(err, b.end(ctx))
	})
	if sig, ok := errors.AsType[signalError](context.Cause(ctx)); ok && code == 0 {
		return exitCode(128 + int(sig))
	}
	if err != nil {
		return fail("run "+commandName(f, args), err)
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// commandName returns the name of the command for errors.
func commandName(f *runFlags, args []string) string {
	if f.agent != nil {
		return f.agent.Name
	}
	if len(args) == 0 {
		return f.image
	}
	return args[0]
}

// prepare prepares the files inside before the command runs. After an error, the sandbox is
// removed.
func (b *runSandbox) prepare(ctx context.Context) (err error) {
	if b.flags.agent != nil {
		err = b.flags.agent.prepareFiles(ctx, b.sb)
	}
	if err == nil && b.flags.branch != "" {
		err = b.createBranch(ctx, b.flags.branch)
	}
	b.keep = b.keep && err == nil
	return err
}

// signalError is the cause of a context that a signal canceled.
type signalError syscall.Signal

func (s signalError) Error() string { return syscall.Signal(s).String() }

// runSandbox is the sandbox of a run.
type runSandbox struct {
	app          *app
	flags        *runFlags
	sb           *crannog.Sandbox
	dir          string // working directory of the command
	hasWorkspace bool   // /workspace is a directory of the host
	keep         bool   // the sandbox outlives the command
	local        bool   // the engine is on this machine
	signals      <-chan os.Signal
	cancel       context.CancelCauseFunc
	endLease     func()       // ends the lease
	detached     *crannog.Cmd // the detached command, once it has started
}

// open creates the sandbox of a run.
func (a runVerbs) open(ctx context.Context, c *connection, f *runFlags, signals <-chan os.Signal, cancel context.CancelCauseFunc) (*runSandbox, error) {
	opts, workspace, err := a.sandboxOptions(ctx, &f.sandboxFlags, c)
	if err != nil {
		return nil, err
	}
	if f.agent != nil {
		more, err := f.agent.options(a.app, f)
		if err != nil {
			return nil, err
		}
		opts = append(opts, more...)
	}
	ttl, err := lifetime(f.ttl)
	if err != nil {
		return nil, err
	}
	b := &runSandbox{app: a.app, flags: f, signals: signals, cancel: cancel, endLease: func() {}, keep: f.outlives(), local: c.local}
	lease := false
	switch {
	case ttl > 0:
		opts = append(opts, crannog.Timeout(ttl))
	case b.keep && c.local:
		opts = append(opts, crannog.Forever())
	case b.keep:
		opts = append(opts, crannog.Timeout(time.Hour))
	default:
		lease = true
		opts = append(opts, crannog.Timeout(leaseTime))
	}
	if !b.keep && c.local {
		opts = append(opts, crannog.Ephemeral())
	}
	b.dir, b.hasWorkspace = first(f.cwd, "/workspace"), workspace
	if !workspace && f.cwd == "" && !c.local {
		b.dir = ""
	}
	request := rand.Text()
	opts = append(opts, crannog.RequestID(request))
	stop := a.queueProgress(ctx, c, "starting a sandbox", func(q api.QueuedStart) bool { return q.RequestID == request })
	create := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			if sig, ok := s.(syscall.Signal); ok {
				cancel(signalError(sig))
			}
		case <-create:
		}
	}()
	b.sb, err = c.Create(ctx, opts...)
	close(create)
	stop()
	if err != nil {
		return nil, fail("create a sandbox", err)
	}
	if lease {
		b.endLease = a.keepAlive(ctx, b.sb)
	}
	return b, nil
}

// end removes a sandbox that is not kept, even if the context was canceled.
func (b *runSandbox) end(ctx context.Context) error {
	b.endLease()
	if b.keep {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := b.sb.Kill(ctx); err != nil && !errors.Is(err, crannog.ErrNotFound) {
		return fail("remove sandbox "+b.sb.ID(), err).hint("crannog rm " + b.sb.ID())
	}
	return nil
}

// do runs the command in the sandbox, and returns its exit code.
func (b *runSandbox) do(ctx context.Context, c *connection, args []string) (int, error) {
	a := b.app
	commandCtx := ctx
	if b.flags.detach {
		// The end of this process must not end the command.
		commandCtx = context.WithoutCancel(ctx)
	}
	cmd := b.sb.CommandContext(commandCtx, args[0], args[1:]...)
	tty := !b.flags.noTTY && !b.flags.detach && !a.json && a.interactive() && hasTerminals(b.sb.Info())
	// The sandbox's own variables take precedence over these defaults.
	cmd.Env = slices.DeleteFunc(a.environment(b.flags.user, b.sb.Info(), tty), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		_, given := b.flags.variables[name]
		return given
	})
	cmd.Env = append(cmd.Env, b.flags.bytesEnv...)
	if err := b.flags.apply(cmd); err != nil {
		return 0, err
	}
	cmd.Dir = b.dir
	if b.sb.Info().ImageDigest != "" && !b.hasWorkspace && b.flags.cwd == "" {
		cmd.Dir = "" // the image sets these
	}
	if b.flags.detach {
		return 0, b.startDetached(cmd)
	}
	runVerbs{a}.streams(cmd, tty)
	endServer := func() bool { return false }
	if b.flags.mcp {
		endServer = serveStdio(cmd)
		defer endServer()
		cmd.Env = append(cmd.Env, b.withoutRegistry()...)
	}
	if b.flags.ask {
		defer approvalVerbs{a}.startPrompts(ctx, c, b.sb, cmd)()
	}
	if a.json {
		return runVerbs{a}.collect(ctx, c, b.sb, cmd, b.flags.maxOutput, b.signals, b.keepChanges)
	}
	denialReport := runVerbs{a}.reportBlocked(ctx, b.sb, !tty || !b.flags.agent.fullScreen())
	var code int
	defer func() { denialReport.end(ctx, code != 0) }()
	r := &relay{app: a, cmd: cmd, signals: b.signals, kill: func() { b.cancel(signalError(syscall.SIGKILL)) }}
	var err error
	code, err = r.run(ctx)
	if endServer() {
		code = 0 // a server that ends looks like a lost connection
	}
	if err != nil {
		code, err = runVerbs{a}.explainEnd(ctx, b.sb, err)
	}
	if b.keep && err == nil && b.flags.name == "" {
		a.note("sandbox %s continues to run", b.sb.ID())
	}
	return code, err
}

// hasTerminals reports whether a program inside can have a terminal.
func hasTerminals(sb api.Sandbox) bool { return sb.Boundary != string(engine.WasmRuntime) }

// startDetached starts the command without waiting for it. If it cannot start, the sandbox is
// removed.
func (b *runSandbox) startDetached(cmd *crannog.Cmd) error {
	if err := cmd.Start(); err != nil {
		b.keep = false
		return err
	}
	b.detached = cmd
	if b.app.json {
		return b.app.object(b.sb.Info())
	}
	_, err := fmt.Fprintln(b.app.Stdout, b.sb.ID())
	return err
}

// apply sets the options of a command from flags.
func (c *commandFlags) apply(cmd *crannog.Cmd) error {
	cmd.User, cmd.Dir = c.user, c.cwd
	if c.detachChildren {
		cmd.WaitDelay = client.DetachDelay
	}
	if c.timeout == "" {
		return nil
	}
	d, err := config.ParseDuration(c.timeout)
	if err != nil || d == 0 {
		return usagef("--timeout: %q is not a time such as 30s", c.timeout)
	}
	cmd.Timeout = d
	return nil
}
