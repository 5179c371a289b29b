// Package cli implements the command line: flags, output and exit codes. It is a client of the API
// like any other.
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/config"
)

// Env is the environment of one invocation.
type Env struct {
	Stdin  *os.File
	Stdout io.Writer
	Stderr io.Writer
	// Vars are the caller's environment variables, "name=value".
	Vars   []string
	Config config.Env
	// Etc is the directory with the host's time zone; "" is /etc.
	Etc string
	// Version is the program's version.
	Version string
}

// app is one invocation: the data that its commands share. The commands themselves are methods of
// one type per group, such as runVerbs.
type app struct {
	terminal
	caller
	version string
	args    []string
	// holder is set in the background process of a detached command.
	holder     *holder
	config     config.Config
	configFile string
	// screen is the terminal of the running command, if it has one.
	screen *fullScreen
	// running is true for commands whose exit code is that of another program, so that an error of
	// Crannog needs a different one.
	running bool
	// checking is true for commands whose exit code distinguishes findings from errors.
	checking bool
}

// newApp returns an invocation in an environment.
func newApp(env Env, args ...string) *app {
	return &app{
		terminal: terminal{Stdin: env.Stdin, Stdout: env.Stdout, Stderr: env.Stderr},
		caller:   caller{vars: env.Vars, home: env.Config, etc: env.Etc},
		version:  env.Version, args: args,
	}
}

// Run executes a command line and returns the exit code. args do not contain the program's name.
func Run(ctx context.Context, args []string, env Env) int {
	a := newApp(env, args...)
	if len(args) == 1 && args[0] == holdVerb {
		if err := (runVerbs{a}).runHolder(); err != nil {
			a.report(err)
			return a.codeOf(err)
		}
	}
	root := a.root()
	root.SetArgs(a.args)
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	a.setKind(cmd)
	if exit, ok := errors.AsType[exitCode](err); ok {
		return int(exit)
	}
	a.report(err)
	return a.codeOf(err)
}

// setKind sets running and checking. Run also calls it, because mistakes in a command line are
// found before anything is loaded.
func (a *app) setKind(cmd *cobra.Command) {
	a.running, a.checking = cmd.Annotations["code"] == "own", cmd.Annotations["code"] == "check"
}

// exitCode is the result of another program, for which no message is printed.
type exitCode int

func (exitCode) Error() string { return "the command failed" }

// root returns the root command with all other commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "crannog",
		Short: "A safe place to run what agents write",
		Long: "Crannog runs programs in sandboxes. Each has its own kernel, does not see the host's\n" +
			"files, and reaches only the hosts that you allow.\n\n" +
			"  crannog run -- sh -c 'echo $((6*7))'",
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noCommand(cmd, args[0])
			}
			return cmd.Help()
		},
		PersistentPreRunE: a.load,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.configFile, "config", "", "settings `file`")
	flags.String("state", "", "`directory` of the server's state")
	flags.String("url", "", "server to talk to (default: the local one)")
	flags.BoolVar(&a.json, "json", false, "print JSON")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print only IDs, and no progress")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "print each step")
	root.SetFlagErrorFunc(flagMistake)
	root.Version = a.version
	root.SetVersionTemplate(a.versionLine())
	root.AddGroup(&cobra.Group{ID: "run", Title: "Run:"}, &cobra.Group{ID: "manage", Title: "Manage:"}, &cobra.Group{ID: "server", Title: "Server:"})
	a.add(root, "run", runVerbs{a}.runCommand(), runVerbs{a}.execCommand(), runVerbs{a}.shellCommand(), browserVerbs{a}.command(), devVerbs{a}.command(), sshVerbs{a}.command())
	a.add(root, "manage", listVerbs{a}.lsCommand(), listVerbs{a}.psCommand(), listVerbs{a}.inspectCommand(), logVerbs{a}.logsCommand(), netVerbs{a}.netCommand(), policyVerbs{a}.policyCommand(), copyVerbs{a}.cpCommand(),
		endVerbs{a}.stopCommand(), endVerbs{a}.rmCommand(), endVerbs{a}.pruneCommand(), listVerbs{a}.statsCommand(),
		stateVerbs{a}.pauseCommand(), stateVerbs{a}.resumeCommand(), stateVerbs{a}.snapshotCommand(), stateVerbs{a}.forkCommand(), imageVerbs{a}.commitCommand(), stateVerbs{a}.rollbackCommand(), stateVerbs{a}.resetCommand(), stateVerbs{a}.treeCommand(),
		approvalVerbs{a}.approvalsCommand(), approvalVerbs{a}.approveCommand(), approvalVerbs{a}.denyCommand(),
		changeVerbs{a}.diffCommand(), changeVerbs{a}.applyCommand(), changeVerbs{a}.exportCommand(), changeVerbs{a}.discardCommand())
	a.add(root, "manage", auditVerbs{a}.auditCommand())
	a.add(root, "server", serverVerbs{a}.serveCommand(), consoleVerbs{a}.webConsoleCommand(), mcpVerbs{a}.mcpCommand(), doctorVerbs{a}.doctorCommand(), engineVerbs{a}.enginesCommand(), engineVerbs{a}.benchCommand(), drillVerbs{a}.command(), imageVerbs{a}.command(), cacheVerbs{a}.command(), volumeVerbs{a}.command(), templateVerbs{a}.command(), keyVerbs{a}.keyCommand(), secretVerbs{a}.secretCommand(), a.configCommand(), completionCommand(a), manCommand(a), a.versionCommand())
	a.addHelp(root)
	checkSubcommands(root)
	strictArgs(root)
	return root
}

// strictArgs makes a wrong number of arguments a usage error.
func strictArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return usagef("%s: %s", c.Name(), err.Error()).hint(c.UseLine())
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		strictArgs(sub)
	}
}

// add adds commands to root, in a group of its help.
func (a *app) add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// load reads the settings before any command runs.
func (a *app) load(cmd *cobra.Command, _ []string) error {
	a.setKind(cmd)
	c, err := config.Load(a.home, a.configFile)
	if err != nil {
		return fail("read the settings", invalid(codeSettings, err))
	}
	// A flag with the name of a setting sets it, for any command.
	for _, name := range []string{"state", "url", "listen", "insecure", "template", "memory", "cpus", "pids", "disk", "inodes", "shm", "log_format", "otlp_endpoint", "approval_webhook",
		"organisation_policy", "project_policy", "default_level", "default_engine", "docker_host", "docker_runtime", "network_attachment", "microvm_kernel", "max_live", "starts_at_once", "max_queued", "max_queue_wait", "pool", "pool_languages", "default_timeout", "max_timeout", "retention"} {
		f := cmd.Flags().Lookup(strings.ReplaceAll(name, "_", "-"))
		if f == nil || !f.Changed {
			continue
		}
		value := f.Value.String()
		if strings.HasSuffix(name, "_policy") {
			// A path on the command line is relative to the current directory.
			if full, err := filepath.Abs(value); err == nil && value != "" {
				value = full
			}
		}
		if err := c.Set(name, value, "--"+f.Name); err != nil {
			return usagef("%s", err.Error())
		}
	}
	if err := checkAmounts(cmd, c); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return fail("use the settings", invalid(codeSettings, err)).hint("crannog config shows where each value comes from")
	}
	a.config = c
	return nil
}
