package guestmain

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/guest/interpreter"
	"github.com/crannog/crannog/internal/guest/probe"
)

// box is what the first process has made of a sandbox: what it boots, and
// makes anew when it becomes another one.
type box struct {
	around   surroundings
	users    identity.Users
	log      *slog.Logger
	standard standard
	streams  streams
	failed   chan error // the first value ends the program

	mu          sync.Mutex // held while the sandbox is made into something
	hostname    string
	links       map[string]string // those of the configuration, to where
	guest       *guest.Guest
	interpreter *interpreter.Server
}

// prepare makes the system around the guest what programs expect, and looks
// whether it is what was asked for.
func (b *box) prepare(cfg guest.Config) error {
	unix.Umask(0o022)
	return b.arrange(context.Background(), cfg, cfg.Renew == "" && !cfg.Archive)
}

// sparesHost refuses a configuration that would have files of the host changed.
func sparesHost(cfg guest.Config) error {
	if cfg.HostFiles && (cfg.Offline || cfg.Archive || len(cfg.Files)+len(cfg.Absent)+len(cfg.Tools.Links)+len(cfg.Tools.Files) > 0) {
		return errors.New("the sandbox has no files of its own, and its configuration changes some")
	}
	return nil
}

// arrange writes all files that depend on the configuration, and checks whether
// what it says holds.
func (b *box) arrange(ctx context.Context, cfg guest.Config, first bool) error {
	if err := sparesHost(cfg); err != nil {
		return err
	}
	if cfg.HostFiles {
		return b.check(ctx, cfg)
	}
	var named sync.WaitGroup
	// No check has to do with these files.
	named.Go(func() { nameFiles(b.around.root, cfg, b.log) })
	defer named.Wait()
	if err := furnish(cfg, b.users); err != nil {
		return err
	}
	if err := place(b.around.root, cfg.Files, first); err != nil {
		return err
	}
	b.links = relink(b.around.root, b.links, cfg.Files)
	user, err := b.users.Lookup(cfg.DefaultUser)
	if err != nil {
		return fmt.Errorf("default user: %w", err)
	}
	if first {
		// Only now: later, links of programs could have directories of the system given to the user.
		if err := showTools(b.around.root, cfg.Tools, user); err != nil {
			return err
		}
	}
	return b.check(ctx, cfg)
}

// check checks whether what the configuration says holds.
func (b *box) check(ctx context.Context, cfg guest.Config) error {
	user, err := b.users.Lookup(cfg.DefaultUser)
	if err != nil {
		return fmt.Errorf("default user: %w", err)
	}
	actor := identity.Actor{Switch: os.Geteuid() == 0}
	return probe.Run(ctx, cfg.Checks, func(work func() error) error { return actor.Do(user, work) })
}

// attend waits for what happens to the sandbox, for as long as it lives.
func (b *box) attend(happened *events) {
	var ahead bool
	for happened.file != nil {
		event, err := happened.next()
		if err == nil {
			ahead, err = b.answer(event, ahead)
		}
		if err != nil {
			// The engine waits for an answer, and a sandbox that is only in part
			// what it should be must not go on.
			b.failed <- err
			return
		}
	}
}

// answer does what an event asks for. A state may be saved again before this process has seen
// the first save: an instance that is restored from it gets the first event only. So the
// configuration decides, and the event of a configuration that was found before it is skipped.
func (b *box) answer(event string, ahead bool) (found bool, err error) {
	in := bufio.NewReader(descriptor(b.standard.in))
	if _, err := in.Peek(1); err != nil {
		if errors.Is(err, io.EOF) && (event != restored || ahead) {
			return false, nil
		}
		return false, fmt.Errorf("read configuration: %w", err)
	}
	return event != restored, b.goOn(in)
}

// goOn makes the sandbox, which has just been restored from a saved state,
// what its new configuration says, and says so.
func (b *box) goOn(in io.Reader) error {
	b.guest.Hold()
	// Their other ends belong to another time, if not to another sandbox.
	b.interpreter.Sever()
	b.streams.cut()
	cfg, _, err := guest.Decode(in)
	if err != nil {
		return err
	}
	if cfg.Archive {
		return errors.New("an archive is for a sandbox in which nothing runs yet")
	}
	if cfg.Renew == "" {
		return errors.New("the configuration does not say what became of the sandbox")
	}
	if err := b.become(context.Background(), cfg, b.around.become); err != nil {
		return err
	}
	b.preload(cfg.Preload)
	if _, err := fmt.Fprintln(descriptor(b.standard.out), guestboot.Ready); err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	return nil
}

// claim makes the sandbox, which waited for it, somebody's.
func (b *box) claim(ctx context.Context, cfg guest.Config) error {
	return b.become(ctx, cfg, b.rename)
}

// rename sets the host name of a sandbox that has not been another one, also
// where the kernel is not ours. An own kernel puts in force by the same call
// what of the host's files is the user's and what is covered, so after an error
// of it nothing may run. A name that another kernel refuses is only wrong.
func (b *box) rename(hostname string, fresh bool) error {
	err := b.around.become(hostname, fresh)
	if !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if hostname != "" {
		if err := unix.Sethostname([]byte(hostname)); err != nil {
			b.log.Warn("hostname is not set", "err", err)
		}
	}
	return nil
}

// become makes a running sandbox what cfg says. The new tokens are not accepted
// before the checks hold.
func (b *box) become(ctx context.Context, cfg guest.Config, name func(string, bool) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cfg.Hostname == "" {
		cfg.Hostname = b.hostname
	}
	// Also under an old name: a kernel that is restored from a saved state has the name
	// that it was made with, and a pre-started one was made without a name.
	if err := name(cfg.Hostname, cfg.Renew == guest.Copied); err != nil {
		return err
	}
	b.hostname = cfg.Hostname
	if err := b.arrange(ctx, cfg, false); err != nil {
		return err
	}
	if err := b.guest.Renew(cfg); err != nil {
		return err
	}
	b.interpreter.Renew(interpreter.Renewal{
		Home: b.guest.Environ()["HOME"],
		// A resumed sandbox keeps its random streams.
		Fresh: cfg.Renew != guest.Resumed,
	})
	return nil
}
