package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/devcontainer"
)

// devVerbs is the command that opens the development container of a directory.
type devVerbs struct{ *app }

// devFlags are the flags of crannog dev.
type devFlags struct {
	config   string
	rebuild  bool
	localEnv []string
	noTTY    bool
	create   sandboxFlags

	ssh       bool
	endpoint  sshFlags
	noForward bool

	noMetadata bool
	lock       bool
}

func (a devVerbs) command() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev [flags] [DIR] [-- COMMAND [ARG...]]",
		Short: "Open the development container that a directory's devcontainer.json describes",
		Long: "Start a sandbox as devcontainer.json in DIR (default: the current directory) describes it,\n" +
			"or continue the one that was started before, and open a shell or run COMMAND in it.\n" +
			"Its commands run in their order: onCreateCommand, updateContentCommand and\n" +
			"postCreateCommand once, postStartCommand at each start, postAttachCommand each time. The\n" +
			"sandbox stays until crannog rm. The directory is copy-on-write: crannog diff and\n" +
			"crannog apply bring changes to this machine.\n\n" +
			"While the command runs, this machine listens on 127.0.0.1 for the ports of forwardPorts.\n" +
			"With --ssh it also listens for SSH clients: ssh, scp, sftp, rsync, and editors that work\n" +
			"over SSH. Without COMMAND, it then opens no shell and listens until interrupted.\n\n" +
			"The file is part of a repository and is not trusted. What it asks for beyond the sandbox\n" +
			"(commands on this machine, paths outside DIR, privileges, variables of this machine) is\n" +
			"refused, and everything that is refused or not supported is listed before anything starts.",
		Example:     "  crannog dev\n  crannog dev ./project -- npm test\n  crannog dev --rebuild --allow registry.example\n  crannog dev --ssh --ssh-config ~/.ssh/crannog-project.conf ./project",
		Annotations: map[string]string{"code": "own"},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, command, err := devArgs(args, cmd.ArgsLenAtDash())
			if err != nil {
				return err
			}
			return a.dev(cmd.Context(), &f, dir, command)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.config, "config", "", "use .devcontainer/`NAME`/devcontainer.json")
	fl.BoolVar(&f.rebuild, "rebuild", false, "remove the sandbox, build the image again and start anew")
	fl.StringArrayVar(&f.localEnv, "local-env", nil, "let the file read this `variable` of this machine; may be repeated")
	fl.BoolVar(&f.ssh, "ssh", false, "listen on 127.0.0.1 for SSH clients, and print their configuration")
	f.endpoint.add(cmd)
	fl.BoolVar(&f.noForward, "no-forward", false, "do not listen for the ports of forwardPorts")
	fl.BoolVar(&f.lock, "lock", false, "only write devcontainer-lock.json, which names the features by their digests")
	fl.BoolVar(&f.noMetadata, "no-image-metadata", false, "ignore the image's label "+devcontainer.MetadataLabel)
	fl.BoolVarP(&f.noTTY, "no-tty", "T", false, "allocate no terminal inside")
	b := &f.create
	fl.StringVar(&b.name, "name", "", "`name` of a new sandbox")
	fl.StringVar(&b.engine, "engine", "", "`engine` that isolates a new sandbox, as crannog engines lists them or auto")
	fl.StringVar(&b.atLeast, "at-least", "", "weakest `boundary` to accept: shared-kernel, wasm-runtime, userspace-kernel or own-kernel")
	fl.StringVar(&b.level, "level", "", "`level` of the policy: strict, standard, light or minimal (default standard)")
	fl.StringVar(&b.policy, "policy", "", "`file` with a policy document")
	fl.StringVar(&b.net, "net", "dev", "network: none, dev, open or policy")
	fl.StringArrayVar(&b.allow, "allow", nil, "allow `HOST[:PORT]`; may be repeated")
	// load reads these, because they are settings.
	fl.String("memory", "", "memory, such as 512m")
	fl.String("cpus", "", "CPUs, such as 1.5")
	fl.String("pids", "", "processes and threads")
	fl.String("disk", "", "disk space for its files, such as 1g")
	b.accessFlags.offer(cmd)
	return cmd
}

// devArgs separates the directory from the command after "--".
func devArgs(args []string, dash int) (dir string, command []string, err error) {
	if dash < 0 {
		dash = len(args)
	}
	dir = "."
	switch command = args[dash:]; {
	case dash > 1:
		return "", nil, usagef("dev takes one directory").hint("a command comes after --: crannog dev " + inert(args[0]) + " -- COMMAND")
	case dash == 1:
		dir = args[0]
	}
	return dir, command, nil
}

// devSession is one use of a development container.
type devSession struct {
	devVerbs
	flags *devFlags
	dir   string
	plan  devcontainer.Plan
	conn  *connection
	sb    *crannog.Sandbox
	// remote is remoteEnv with the variables of the sandbox inserted; unset are names to remove.
	remote, unset []string
	record        devRecord
}

func (a devVerbs) dev(ctx context.Context, f *devFlags, dir string, command []string) error {
	s, err := a.session(f, dir)
	if err != nil {
		return err
	}
	if f.lock {
		return s.writeLock(ctx, command)
	}
	var code int
	err = a.with(ctx, func(c *connection) error {
		err := interruptible(ctx, func(ctx context.Context) error {
			if err := s.open(ctx, c); err != nil {
				return err
			}
			return s.attachStages(ctx)
		})
		if err != nil {
			return err
		}
		if a.json && len(command) == 0 && !f.ssh {
			return a.object(s.describe())
		}
		code, err = s.use(ctx, command)
		return err
	})
	if err != nil {
		return fail("open the development container of "+inert(dir), err)
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}

// session makes the plan. Nothing starts if a part of it is not supported.
func (a devVerbs) session(f *devFlags, dir string) (*devSession, error) {
	full, err := resolved(dir)
	if err != nil {
		return nil, fail("find the directory", err)
	}
	if runVerbs(a).overlapsState(full) {
		return nil, usagef("%s contains crannog's state, with the tokens of every sandbox", full)
	}
	if err := f.create.checkStart(); err != nil {
		return nil, err
	}
	if !f.ssh && (f.endpoint.port != 0 || len(f.endpoint.keys) > 0 || f.endpoint.config != "") {
		return nil, usagef("--ssh-port, --ssh-key and --ssh-config need --ssh")
	}
	if _, err := f.create.access(); err != nil {
		return nil, err
	}
	plan, err := devcontainer.Make(devcontainer.Options{Dir: full, Config: f.config, LookUp: a.lookUp, LocalEnv: f.localEnv, NewLock: f.lock})
	if err != nil {
		return nil, fail("use the devcontainer.json of "+inert(dir), err)
	}
	for _, note := range plan.Notes {
		a.note("%s", note)
	}
	return &devSession{devVerbs: a, flags: f, dir: full, plan: plan}, nil
}

// devView is the output of --json.
type devView struct {
	Sandbox   string `json:"sandbox"`
	Name      string `json:"name,omitempty"`
	Config    string `json:"config"`
	Folder    string `json:"workspace_folder"`
	User      string `json:"user,omitempty"`
	Ports     []int  `json:"forward_ports"`
	Continued bool   `json:"continued"`
	// SSH is set while an SSH endpoint exists.
	SSH *sshView `json:"ssh,omitempty"`
}

func (s *devSession) describe() devView {
	return devView{
		Sandbox: s.sb.ID(), Name: s.plan.Name, Config: s.plan.File, Folder: s.plan.Folder, User: s.plan.User,
		Ports: append([]int{}, s.plan.Ports...), Continued: s.record.continued,
	}
}

// anyShell starts bash, or sh in small images without it.
const anyShell = "if command -v bash >/dev/null 2>&1; then exec bash -l; fi; exec sh -l"

// run runs the user's command, or a shell.
func (s *devSession) run(ctx context.Context, command []string) (int, error) {
	signals, release := notifySignals()
	defer release()
	if len(command) == 0 {
		command = []string{"/bin/sh", "-c", anyShell}
	}
	tty := !s.flags.noTTY && !s.json && s.interactive() && hasTerminals(s.sb.Info())
	cmd := s.command(ctx, command, tty)
	a := runVerbs{s.app}
	if s.json {
		return a.collect(ctx, s.conn, s.sb, cmd, "", signals, nil)
	}
	a.streams(cmd, tty)
	denialReport := a.reportBlocked(ctx, s.sb, true)
	code, err := a.attached(ctx, s.sb, cmd, signals)
	denialReport.end(ctx, code != 0)
	return code, err
}

// command returns a command that runs as the configuration's user, with its variables and in its
// directory.
func (s *devSession) command(ctx context.Context, args []string, tty bool) *crannog.Cmd {
	if len(s.unset) > 0 {
		removal := []string{"env"}
		for _, name := range s.unset {
			removal = append(removal, "-u", name)
		}
		args = append(append(removal, "--"), args...)
	}
	cmd := s.sb.CommandContext(ctx, args[0], args[1:]...)
	cmd.User, cmd.Dir = s.plan.User, s.plan.Folder
	cmd.Env = slices.DeleteFunc(s.environment(s.plan.User, s.sb.Info(), tty), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		_, set := s.plan.ContainerEnv[name]
		return set
	})
	cmd.Env = append(cmd.Env, s.remote...)
	return cmd
}

// devFile returns the path of a file about this development container in the state directory.
func (s *devSession) devFile(suffix string) (string, error) {
	dir := filepath.Join(s.config.State, "dev")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create the directory for development containers: %w", err)
	}
	return filepath.Join(dir, s.plan.ID+suffix), nil
}

var errDevRemote = errors.New("crannog dev needs a server on this machine: the directory cannot be shown to a sandbox elsewhere")
