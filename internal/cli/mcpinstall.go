package cli

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/integration/registration"
)

// installFlags are the flags about the place and the content of an entry.
type installFlags struct {
	scope string
	http  string
	dry   bool
	yes   bool
}

func (f *installFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.scope, "scope", string(registration.User), "scope: `user`, or project (a file in the current directory)")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "show what would be changed")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	offerValues(cmd, "scope", []cobra.Completion{string(registration.User), string(registration.Project)})
}

func (a mcpVerbs) mcpInstallCommand() *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use: "install " + strings.Join(registration.Clients(), "|") + " [-- FLAG...]", Short: "Register the MCP server with an agent's program",
		Long: "Add an entry for crannog to the MCP servers of an agent's program, after showing the\n" +
			"change. The rest of the file does not change, and a backup is written beside it. A key\n" +
			"is never written: with --http the entry names the environment variable that holds it.\n\n" +
			"Arguments after -- are flags for crannog mcp in that entry.",
		Example: "  crannog mcp install claude\n  crannog mcp install codex -- --allow pypi.org\n  crannog mcp install vscode --scope project --http http://localhost:7070/mcp",
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); dash == 1 || dash < 0 && len(args) == 1 {
				return nil
			}
			return errors.New("name one program; flags of crannog mcp follow --")
		},
		ValidArgsFunction: completeClients,
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := a.serverEntry(&f, args[1:])
			if err != nil {
				return err
			}
			place, err := a.configPlace()
			if err != nil {
				return err
			}
			change, err := registration.Install(args[0], registration.Scope(f.scope), place, s)
			return a.edit(change, err, &f, "tell "+args[0]+" of crannog")
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.http, "http", "", "`address` of a server's /mcp, to be used instead of starting a program")
	return cmd
}

func (a mcpVerbs) mcpUninstallCommand() *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use: "uninstall " + strings.Join(registration.Clients(), "|"), Short: "Remove the MCP server from an agent's program", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeClients,
		RunE: func(_ *cobra.Command, args []string) error {
			place, err := a.configPlace()
			if err != nil {
				return err
			}
			change, err := registration.Uninstall(args[0], registration.Scope(f.scope), place)
			return a.edit(change, err, &f, "remove crannog from "+args[0])
		},
	}
	f.add(cmd)
	return cmd
}

func completeClients(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return registration.Clients(), cobra.ShellCompDirectiveNoFileComp
}

// serverEntry returns the content of the entry. Desktop programs may have another PATH, so the
// entry contains the full path of this program.
func (a mcpVerbs) serverEntry(f *installFlags, flags []string) (registration.Server, error) {
	if f.http != "" {
		u, err := url.Parse(f.http)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			return registration.Server{}, usagef("--http: %q is not an address such as http://localhost:7070/mcp", f.http)
		case u.User != nil || strings.Contains(u.RawQuery, "key"):
			return registration.Server{}, usagef("--http: the address must not contain a key, because programs print addresses")
		case len(flags) > 0:
			return registration.Server{}, usagef("flags of crannog mcp and --http exclude each other: the server at that address has its own settings")
		}
		if u.Path == "" || u.Path == "/" {
			u.Path = "/mcp"
		}
		return registration.Server{URL: u.String()}, nil
	}
	self, err := os.Executable()
	if err != nil {
		return registration.Server{}, fail("find this program", err)
	}
	s := registration.Server{Command: self, Args: []string{"mcp"}}
	for _, v := range a.config.Values() {
		if v.Name == "state" && v.Origin != "default" {
			// The started program will not have the environment variable that sets the state
			// directory here.
			state, err := filepath.Abs(v.Value)
			if err != nil {
				return s, fail("find the state", err)
			}
			s.Args = append(s.Args, "--state", state)
		}
	}
	s.Args = append(s.Args, flags...)
	return s, nil
}

// configPlace returns the directories in which agents' programs have their configuration.
func (a mcpVerbs) configPlace() (registration.Directories, error) {
	dir, err := filepath.Abs(".")
	if err != nil {
		return registration.Directories{}, fail("find the current directory", err)
	}
	return registration.Directories{Home: a.home.Home, Directory: dir, Variable: a.variable}, nil
}

// editResult is the output of --json.
type editResult struct {
	Path    string `json:"path"`
	Changed bool   `json:"changed"`
	Diff    string `json:"diff,omitempty"`
	Backup  string `json:"backup,omitempty"`
}

// edit shows a change, asks for confirmation, and writes it.
func (a mcpVerbs) edit(change *registration.Change, err error, f *installFlags, what string) error {
	if err != nil {
		return fail(what, err)
	}
	out := editResult{Path: change.Path, Diff: change.Diff()}
	if change.Empty() {
		if a.json {
			return a.object(out)
		}
		a.note("%s is up to date", change.Path)
		return nil
	}
	if !a.json {
		fmt.Fprint(a.Stdout, printable(out.Diff))
	}
	if !f.dry {
		if err := a.confirm(f.yes, false, "change "+change.Path); err != nil {
			return err
		}
		if out.Backup, err = change.Write(); err != nil {
			return fail(what, err)
		}
		out.Changed = true
	}
	if a.json {
		return a.object(out)
	}
	switch {
	case f.dry:
		a.note("nothing was changed")
	case out.Backup != "":
		a.note("the previous file is %s", out.Backup)
	}
	if change.Instructions != "" {
		a.note("%s", change.Instructions)
	}
	return nil
}
