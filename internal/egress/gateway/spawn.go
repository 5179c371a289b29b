package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

const (
	self = "/proc/self/exe"
	// startTimeout is how long a process may take to be ready. Normally it takes some hundredths of
	// a second.
	startTimeout = 15 * time.Second
	// maxLog is the size at which the process's log is restarted.
	maxLog = 1 << 20
	// spoolName is the directory of bodies that wait for an approval. It always looks empty,
	// because its files have no names.
	spoolName = "spool"
)

// buildOf returns an identifier of an executable.
func buildOf(path string) (string, error) {
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		return "", fmt.Errorf("causeway: %s: %w", path, err)
	}
	return fmt.Sprintf("%d:%d:%d:%d.%d", info.Dev, info.Ino, info.Size, info.Mtim.Sec, info.Mtim.Nsec), nil
}

// startIfNone starts the process, unless it runs already or another program is starting it. It
// reports whether it started the process.
func startIfNone(ctx context.Context, dir *os.File, o Options) (bool, error) {
	lock, err := os.OpenFile(through(dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return false, fmt.Errorf("causeway: %w", err)
	}
	// The process shares the lock, and holds it after this descriptor is closed.
	defer lock.Close()
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("causeway: lock: %w", err)
	}
	return true, start(ctx, dir, lock, o)
}

// start starts the process with everything that it may not open itself, and returns when the
// process listens. The lock must be held.
func start(ctx context.Context, dir, lock *os.File, o Options) error {
	var open []*os.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	closeLater := func(f *os.File, err error) (*os.File, error) {
		if err == nil {
			open = append(open, f)
		}
		return f, err
	}
	listener, err := closeLater(listen(dir))
	if err != nil {
		return fmt.Errorf("causeway: listen: %w", err)
	}
	log, err := closeLater(openLog(dir))
	if err != nil {
		return fmt.Errorf("causeway: log: %w", err)
	}
	spool, err := closeLater(openSpool(dir))
	if err != nil {
		return fmt.Errorf("causeway: spool: %w", err)
	}
	cached, err := closeLater(openPackages(dir))
	if err != nil {
		return fmt.Errorf("causeway: %w", err)
	}
	ready, readyIn, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("causeway: %w", err)
	}
	open = append(open, ready, readyIn)
	// The process outlives the program that starts it.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), o.program())
	cmd.Args = []string{Arg0, dir.Name()}
	cmd.Dir, cmd.Env, cmd.Stderr = "/", environment(), log
	cmd.ExtraFiles = []*os.File{listener, lock, readyIn, spool, cached}
	// In a session of its own, the process does not end with the terminal of a command.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	run := cmd.Start
	if o.Start != nil {
		run = func() error { return o.Start(cmd) }
	}
	if err := run(); err != nil {
		return fault.Wrap(err, fault.Unavailable, "causeway_not_started", "the process that holds the sandboxes' networks could not be started")
	}
	go func() { _ = cmd.Wait() }() // the client detects the end on its connection
	readyIn.Close()
	if err := awaitReady(ctx, ready); err != nil {
		_ = cmd.Process.Kill()
		return err
	}
	return nil
}

// environment returns the only variables that the process gets: the paths of the certificate roots,
// if they are set.
func environment() []string {
	env := []string{}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func awaitReady(ctx context.Context, ready *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var w wireFault
	err := json.NewDecoder(ready).Decode(&w)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fault.Wrap(err, fault.Unavailable, "causeway_not_started", "the process that holds the sandboxes' networks ended before it was ready").
			WithHint("its last messages are in the file causeway/log of the state directory")
	case w.Text != "":
		return fault.Wrap(errors.New(w.Text), fault.Unavailable, "causeway_not_started", "the process that holds the sandboxes' networks cannot start: "+w.Text).WithHint(w.Hint)
	}
	return nil
}

// listen creates the socket under a temporary name, so that no client finds it before its mode is
// set.
func listen(dir *os.File) (*os.File, error) {
	const unready = socketName + ".new"
	if err := os.Remove(through(dir, unready)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: through(dir, unready), Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(through(dir, unready), 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(through(dir, unready), through(dir, socketName)); err != nil {
		return nil, err
	}
	return l.File()
}

// openLog opens the file for stack traces of a crash. Traces contain no secrets.
func openLog(dir *os.File) (*os.File, error) {
	f, err := os.OpenFile(through(dir, logName), os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Size() > maxLog {
		err = f.Truncate(0)
		if err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

func openSpool(dir *os.File) (*os.File, error) {
	path := through(dir, spoolName)
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 {
		// If there is no such user, the process keeps its user, who already owns the directory.
		_ = f.Chown(nobody, nobody)
	}
	return f, nil
}
