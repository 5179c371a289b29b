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

// guestSandbox is the sandbox as its first process sees it. It configures the sandbox at boot, and
// again when the sandbox is restored, copied or claimed.
type guestSandbox struct {
	platform platform
	users    identity.Users
	log      *slog.Logger
	standard standard
	streams  streams
	failed   chan error // the first value ends the program

	mu          sync.Mutex // held while the sandbox is set up
	hostname    string
	links       map[string]string // the links of the configuration, with their targets
	guest       *guest.Guest
	interpreter *interpreter.Server
}

// prepare configures the system at boot, and runs the checks of cfg.
func (b *guestSandbox) prepare(cfg guest.Config) error {
	unix.Umask(0o022)
	return b.setUp(context.Background(), cfg, cfg.Renew == "" && !cfg.Archive)
}

// checkHostFiles rejects a configuration that would change files of the host.
func checkHostFiles(cfg guest.Config) error {
	if cfg.HostFiles && (cfg.Offline || cfg.Archive || len(cfg.Files)+len(cfg.Absent)+len(cfg.Tools.Links)+len(cfg.Tools.Files) > 0) {
		return errors.New("the configuration changes files, but the sandbox shows the files of the host")
	}
	return nil
}

// setUp writes all files that depend on the configuration, and runs its checks.
func (b *guestSandbox) setUp(ctx context.Context, cfg guest.Config, first bool) error {
	if err := checkHostFiles(cfg); err != nil {
		return err
	}
	if cfg.HostFiles {
		return b.check(ctx, cfg)
	}
	var naming sync.WaitGroup
	// No check depends on these files, so they are written concurrently.
	naming.Go(func() { nameFiles(b.platform.root, cfg, b.log) })
	defer naming.Wait()
	if err := createDirectories(cfg, b.users); err != nil {
		return err
	}
	if err := writeFiles(b.platform.root, cfg.Files, first); err != nil {
		return err
	}
	b.links = relink(b.platform.root, b.links, cfg.Files)
	user, err := b.users.Lookup(cfg.DefaultUser)
	if err != nil {
		return fmt.Errorf("default user: %w", err)
	}
	if first {
		// This runs only at a first boot. Later, links that programs created could redirect the
		// change of owner to system directories.
		if err := showTools(b.platform.root, cfg.Tools, user); err != nil {
			return err
		}
	}
	return b.check(ctx, cfg)
}

// check runs the checks of the configuration.
func (b *guestSandbox) check(ctx context.Context, cfg guest.Config) error {
	user, err := b.users.Lookup(cfg.DefaultUser)
	if err != nil {
		return fmt.Errorf("default user: %w", err)
	}
	actor := identity.Actor{Switch: os.Geteuid() == 0}
	return probe.Run(ctx, cfg.Checks, func(work func() error) error { return actor.Do(user, work) })
}

// serveEvents handles events of the sandbox until the sandbox ends.
func (b *guestSandbox) serveEvents(source *events) {
	var applied bool // the configuration of the next event was already applied
	for source.file != nil {
		event, err := source.next()
		if err == nil {
			applied, err = b.handleEvent(event, applied)
		}
		if err != nil {
			// The engine waits for an answer, and a partly configured sandbox must not continue.
			b.failed <- err
			return
		}
	}
}

// handleEvent handles an event. If there is a configuration to read, the sandbox was restored, even
// if the event only reports a save: when a second save starts before this process has read the
// event of the first, a sandbox that is restored from the second save gets only one event.
// handleEvent reports whether it applied a configuration before its event. The event of that
// configuration is then skipped.
func (b *guestSandbox) handleEvent(event string, applied bool) (early bool, err error) {
	in := bufio.NewReader(descriptor(b.standard.in))
	if _, err := in.Peek(1); err != nil {
		if errors.Is(err, io.EOF) && (event != restoreEvent || applied) {
			return false, nil
		}
		return false, fmt.Errorf("read configuration: %w", err)
	}
	return event != restoreEvent, b.applyRestored(in, func() error { return nil })
}

// applyRestored applies the new configuration of a sandbox that was just restored, calls release,
// which lets programs continue that were stopped until then, and reports that it is ready.
func (b *guestSandbox) applyRestored(in io.Reader, release func() error) error {
	b.guest.Hold()
	// The peers of these connections belong to the time before the save, or to another sandbox.
	b.interpreter.Sever()
	b.streams.cut()
	cfg, _, err := guest.Decode(in)
	if err != nil {
		return err
	}
	if cfg.Archive {
		return errors.New("an archive was sent to a sandbox in which programs already run")
	}
	if cfg.Renew == "" {
		return errors.New("the configuration does not state what happened to the sandbox")
	}
	if err := b.become(context.Background(), cfg, b.platform.become); err != nil {
		return err
	}
	if err := release(); err != nil {
		return err
	}
	b.preload(cfg.Preload)
	if _, err := fmt.Fprintln(descriptor(b.standard.out), guestboot.Ready); err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	return nil
}

// claim configures a warm sandbox for its first user.
func (b *guestSandbox) claim(ctx context.Context, cfg guest.Config) error {
	return b.become(ctx, cfg, b.rename)
}

// rename sets the host name at a first boot or a claim. On Crannog's own kernel, the same call also
// activates the ownership and masks of the host's files. After an error of that kernel nothing may
// run. On another kernel, an error only means that the name is wrong.
func (b *guestSandbox) rename(hostname string, fresh bool) error {
	err := b.platform.become(hostname, fresh)
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

// become configures a running sandbox according to cfg. The new tokens are accepted only after the
// checks have passed.
func (b *guestSandbox) become(ctx context.Context, cfg guest.Config, setName func(string, bool) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cfg.Hostname == "" {
		cfg.Hostname = b.hostname
	}
	// Set the name even if it is unchanged: a restored kernel has the name from when it was saved,
	// and a pre-started kernel has none.
	if err := setName(cfg.Hostname, cfg.Renew == guest.Copied); err != nil {
		return err
	}
	b.hostname = cfg.Hostname
	if err := b.setUp(ctx, cfg, false); err != nil {
		return err
	}
	if err := b.guest.Renew(cfg); err != nil {
		return err
	}
	b.interpreter.Renew(interpreter.Renewal{
		Home: b.guest.Environ()["HOME"],
		// A resumed sandbox continues its random streams.
		Fresh: cfg.Renew != guest.Resumed,
	})
	return nil
}
