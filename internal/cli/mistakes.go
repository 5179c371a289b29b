package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// habits are flags of docker and podman that people type by habit, with their replacements.
// mountHint handles mounts.
var habits = map[string]string{
	"i":           "a command reads crannog's input, and has a terminal if crannog has one: omit -i",
	"t":           "a command has a terminal if crannog has one: omit -t; -T means no terminal, --timeout is a time limit",
	"p":           "ports need not be published: crannog serve shows each port of a sandbox at http://PORT-ID.localhost:7070",
	"m":           "the memory limit is --memory 512m",
	"h":           "a sandbox has its own host name",
	"network":     "the network is --allow HOST or --net none, dev or open: crannog help network",
	"workdir":     "the working directory is --cwd DIR, or -w DIR",
	"label":       "labels are --metadata NAME=VALUE",
	"entrypoint":  "the command follows the flags: crannog run -- COMMAND",
	"cap-add":     "programs inside get no capabilities of the host; -u root runs it as root of the sandbox",
	"privileged":  "programs inside get no capabilities of the host; -u root runs it as root of the sandbox",
	"read-only":   "files of the host never change: /workspace is copy-on-write",
	"pids-limit":  "the limit of processes is --pids 100",
	"restart":     "a sandbox does not restart by itself; --ttl TIME --on-end pause keeps it",
	"interactive": "a command reads crannog's input, and has a terminal if crannog has one: omit --interactive",
	"tty":         "a command has a terminal if crannog has one: omit --tty; -T means no terminal",
	"publish":     "ports need not be published: crannog serve shows each port of a sandbox at http://PORT-ID.localhost:7070",
}

// commandHabits are commands of docker and podman, with their replacements.
var commandHabits = map[string][]string{
	"run": {"create", "start", "up"}, "stop": {"end"}, "rm": {"remove", "delete", "destroy"}, "stats": {"top"},
	"shell": {"attach", "ssh", "connect", "sh", "bash"}, "inspect": {"info", "show", "describe"}, "logs": {"log"}, "resume": {"unpause", "start"},
	"cp": {"copy", "upload", "download"}, "diff": {"status", "changes"}, "serve": {"server", "daemon"}, "discard": {"revert"}, "console": {"ui", "web"},
}

// mountHint explains how to mount a directory of the host.
func mountHint(cmd *cobra.Command) string {
	if cmd.Flags().Lookup("mount") != nil {
		return "to mount a directory of the host, use --mount SRC[:DST][:ro|:cow], or --workspace DIR for /workspace"
	}
	return "to mount a directory of the host copy-on-write at /workspace, use --workspace DIR; crannog cp copies others"
}

// flagMistake explains an invalid flag.
func flagMistake(cmd *cobra.Command, err error) error {
	f := usagef("%s", err.Error())
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		if strings.Contains(err.Error(), `for "-v, --verbose" flag`) {
			return f.hint("-v is --verbose; " + mountHint(cmd))
		}
		return f
	}
	name := unknown.GetSpecifiedName()
	switch name {
	case "v", "volume", "mount":
		return f.hint(mountHint(cmd))
	}
	if text := habits[name]; text != "" {
		return f.hint(text)
	}
	if unknown.GetSpecifiedShortnames() == "" {
		if near := nearFlag(cmd, name); near != "" {
			return f.hint("did you mean --" + near + "?")
		}
	}
	return f.hint("crannog help " + strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ") + " lists the flags")
}

// maxEdits is the maximum number of wrong letters for a suggestion.
const maxEdits = 2

// nearFlag returns the flag whose name is most similar to the typed one, or begins with it.
func nearFlag(cmd *cobra.Command, typed string) string {
	var names []string
	begins := ""
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		names = append(names, f.Name)
		if len(typed) > 2 && strings.HasPrefix(f.Name, typed) {
			begins = f.Name
		}
	})
	return first(nearest(typed, names), begins)
}

// noCommand is the error for a command that does not exist below parent.
func noCommand(parent *cobra.Command, name string) error {
	f := usagef("unknown command %q", strings.TrimPrefix(parent.CommandPath()+" "+name, parent.Root().Name()+" "))
	parent.SuggestionsMinimumDistance = maxEdits
	near := parent.SuggestionsFor(name)
	for _, sub := range parent.Commands() {
		if slices.Contains(sub.SuggestFor, name) {
			near = []string{sub.Name()} // a command of docker is not a typing error
		}
	}
	if len(near) > 0 {
		return f.hint("did you mean " + parent.CommandPath() + " " + strings.Join(near, ", or "+parent.CommandPath()+" ") + "?")
	}
	return f.hint(strings.Replace(parent.CommandPath(), parent.Root().Name(), parent.Root().Name()+" help", 1) + " lists the commands")
}

// checkSubcommands makes a command that only groups others refuse an unknown subcommand. Otherwise
// the command would print its help and succeed.
func checkSubcommands(cmd *cobra.Command) {
	cmd.SuggestFor = append(cmd.SuggestFor, commandHabits[cmd.Name()]...)
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noCommand(cmd, args[0])
			}
			return cmd.Help()
		}
	}
	for _, sub := range cmd.Commands() {
		checkSubcommands(sub)
	}
}

// checkMountHabit refuses docker's -v DIR:DIR, which would be parsed as --verbose and a command of
// that name.
func checkMountHabit(cmd *cobra.Command, args []string) error {
	verbose := cmd.Flags().Lookup("verbose")
	if verbose == nil || !verbose.Changed || cmd.ArgsLenAtDash() == 0 || len(args) == 0 {
		return nil
	}
	source, _, hasColon := strings.Cut(args[0], ":")
	if !hasColon || !strings.ContainsAny(source, "/.~") && source != "" {
		return nil
	}
	return usagef("-v means --verbose, so %q would be the command", inert(args[0])).hint(mountHint(cmd))
}
