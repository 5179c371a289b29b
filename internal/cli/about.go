package cli

import (
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/config"
)

func (a *app) configCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "config", Short: "Show every setting and where its value comes from", Args: cobra.NoArgs,
		Long: "Show every setting and where its value comes from. Later sources win: default,\n" +
			"file (~/.config/crannog/config.toml or /etc/crannog/config.toml), environment\n(CRANNOG_ and the name in capitals), flag.",
		RunE: func(*cobra.Command, []string) error {
			return list(a, &f, a.config.Values(), func(v config.Value) string { return v.Name },
				[]string{"NAME", "VALUE", "FROM", "MEANING"}, func(v config.Value) []string {
					return []string{v.Name, v.Value, v.Origin, v.Help}
				})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.object(map[string]string{
					"version": a.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			_, err := io.WriteString(a.Stdout, a.versionLine())
			return err
		},
	}
}

func (a *app) versionLine() string {
	return fmt.Sprintf("crannog %s %s %s/%s\n", a.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

const exitCodes = `Each kind of mistake has one code, whatever the command:

  0     done; nothing found; as expected; allowed
  1     failed; or, of a command that looks for something, found (see below)
  2     the command line, a setting, a value or a document is wrong
  3     there is no such sandbox, snapshot, key, command or file of a sandbox
  4     refused: by the policy, the server or its key check
  5     the name is taken, or the sandbox is in a state that forbids it, or has ended
  6     the server cannot be reached

1 means found for policy show, check, test and explain (something to look at; not
as expected; asked or denied), audit verify, prove and artifact (the audit log is not as
it was written), and doctor (sandboxes cannot run here; warnings are 0). What
keeps these from looking is 2, or one of 3 to 6.

run, exec and shell end with the code of the command inside, which may be any of
these. So all that keeps it from running is one of

  125   any mistake from above, before the command ran
  126   the command cannot be executed
  127   there is no such command inside

and its end is one of

  124   the time limit (--timeout, --ttl) ended the command
  128+N signal N ended the command; 137 also after the memory limit
`

const networkHelp = `A sandbox has no network unless a flag gives one. What it gets then ends in a
process of ours, which lets through what the policy allows and records it all.

  --allow example.com        this host on port 443, and no other
  --allow example.com:8443   another port; --allow '*.example.com' all names below
  --net dev                  package registries, git forges, model APIs; mostly to read
  --net open                 every public host
  --ask                      ask me about each host, at this terminal
  --policy FILE              what a document says; crannog policy check FILE reads it
  --level strict             stricter about all else: writes, pushes, files

Flags add up: --ask --allow example.com does not ask about that host. Whatever is
allowed, nothing reaches this machine or the metadata services of clouds, and a
private network only what a policy lists in cidrs. A running sandbox changes with
crannog policy set, and what it did is in crannog net log.

What is refused is told on standard error, and as denied with --json, with the
rule that did it:

  network.none        the sandbox was made without a network
  network.unlisted    no block of the policy is about this host
  host:NAME           a block is, and none of its rules allows this request
  host:NAME/RULE      this rule denies it
  network.writes      the policy leaves changes (POST and others) to people
  network.tunnels     bytes that the gateway cannot inspect, such as a protocol of its own
  git.push            this ref is not among those that may be pushed to
  packages.publish    publishing needs a person
  identity.*          the connection says to be about another host than it is
  floor.*             never allowed: this machine, metadata, unclear requests

crannog policy explain SANDBOX GET URL says which rule it is and what would
allow it. A question that waits for a person is in crannog approvals.
`

// addHelp adds the topics that belong to no command, and a tree of all.
func (a *app) addHelp(root *cobra.Command) {
	root.AddCommand(
		&cobra.Command{Use: "exit-codes", Short: "What exit codes mean", Long: strings.TrimSpace(exitCodes)},
		&cobra.Command{Use: "agents", Short: "Agents that run by their name, and what they get", Long: strings.TrimSpace(agentsHelp())},
		&cobra.Command{Use: "sandboxes", Short: "How to name a sandbox, also one that has ended", Long: strings.TrimSpace(referenceHelp)},
		&cobra.Command{Use: "network", Short: "How to let a sandbox reach something, and what refusals mean", Long: strings.TrimSpace(networkHelp)},
	)
	var tree bool
	help := &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about a command",
		RunE: func(_ *cobra.Command, args []string) error {
			if tree {
				a.printTree(root, "")
				return nil
			}
			found, _, err := root.Find(args)
			if err != nil || found == nil || found == root && len(args) > 0 {
				return noCommand(root, strings.Join(args, " "))
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
	}
	help.Flags().BoolVar(&tree, "tree", false, "show every command")
	root.SetHelpCommand(help)
}

func (a *app) printTree(cmd *cobra.Command, lead string) {
	fmt.Fprintf(a.Stdout, "%s%s  %s\n", lead, cmd.Use, cmd.Short)
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			a.printTree(sub, lead+"  ")
		}
	}
}
