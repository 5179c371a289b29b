package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const exitCodes = `Each kind of failure has one exit code, whatever the command:

  0     done; nothing found; as expected; allowed
  1     failed for another reason; or, of a command that looks for something, found
  2     the command line, a setting, a value or a document is wrong, whether the
        program or the server finds it
  3     there is no such sandbox, snapshot, key, command or file of a sandbox
  4     denied by the policy or the server, or because a key is missing or wrong
  5     the name is taken, or the sandbox is in a state that forbids it, or has ended
  6     the server cannot be reached

1 means found for policy show, check, test and explain (something to look at; not
as expected; asked or denied), audit verify, prove and verify-artifact (the audit
log is not as it was written), and doctor (sandboxes cannot run here; warnings are
0). A failure that keeps these from looking is 2, or one of 3 to 6.

run, exec and shell end with the exit code of the command inside, which may be any
of these. A failure before the command runs is therefore one of

  125   any failure from above
  126   the command cannot be executed
  127   there is no such command inside

and the end of the command is one of

  124   the time limit (--timeout, --ttl) ended the command
  128+N signal N ended the command; 137 also after the memory limit
`

const networkHelp = `A sandbox has no network unless a flag gives one. All its connections then end in
the egress gateway, a process of the server that allows what the policy allows and
writes each request to the audit log.

  --allow example.com        this host on port 443, and no other
  --allow example.com:8443   another port; --allow '*.example.com' all names below
  --net dev                  package registries, git forges, model APIs; mostly to read
  --net open                 every public host
  --ask                      ask about each host, at this terminal
  --policy FILE              what a document allows; crannog policy check FILE checks it
  --level strict             stricter about everything else: writes, pushes, files

Flags add up: --ask --allow example.com does not ask about that host. Whatever is
allowed, no sandbox reaches this machine or the metadata services of clouds, and
it reaches a private network only if the policy lists it in cidrs. crannog policy
set changes the policy of a running sandbox; crannog net log shows its requests.

Denials are printed on standard error, and as denied with --json, each with the
rule that denied:

  network.none        the sandbox was created without a network
  network.unlisted    no block of the policy names this host
  host:NAME           a block names the host, and none of its rules allows this request
  host:NAME/RULE      this rule denies it
  network.writes      the policy leaves changes (POST and others) to people
  network.tunnels     bytes that the gateway cannot inspect, such as an unknown protocol
  git.push            this ref is not among those that may be pushed to
  packages.publish    publishing needs a person
  identity.*          name, certificate and Host header do not name the same host
  floor.*             never allowed: this machine, metadata, ambiguous requests

crannog policy explain SANDBOX GET URL prints the rule that decides and what would
allow the request. crannog approvals lists requests that wait for a person.
`

// addHelp adds the help topics that are not commands, and a tree of all commands.
func (a *app) addHelp(root *cobra.Command) {
	root.AddCommand(
		&cobra.Command{Use: "exit-codes", Short: "What exit codes mean", Long: strings.TrimSpace(exitCodes)},
		&cobra.Command{Use: "agents", Short: "Agents that run by name, and what they get", Long: strings.TrimSpace(agentsHelp())},
		&cobra.Command{Use: "sandboxes", Short: "How to name a sandbox, also one that has ended", Long: strings.TrimSpace(referenceHelp)},
		&cobra.Command{Use: "network", Short: "How to let a sandbox reach something, and what denials mean", Long: strings.TrimSpace(networkHelp)},
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

// printTree prints a command and all commands below it, indented by lead.
func (a *app) printTree(cmd *cobra.Command, lead string) {
	fmt.Fprintf(a.Stdout, "%s%s  %s\n", lead, cmd.Use, cmd.Short)
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			a.printTree(sub, lead+"  ")
		}
	}
}
