package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress/confine"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/packages/store"
)

// Descriptors that the process inherits.
const (
	fdListener = 3 + iota
	fdLock     // held open, never read
	fdReady
	fdSpool
	fdPackages
	fdEnd
)

// User ID to which the process changes from root.
const nobody = 65534

const (
	softMemory = 1 << 30
	hardMemory = 4 << 30
	// maxFileBytes limits every file that the process writes: flow files, spooled bodies, packages
	// and its log.
	maxFileBytes = store.MaxLayer + 1<<20
	// maxDescriptors is enough for 256 sandboxes with 256 connections each, and as many again for
	// attachments, flow files and closing connections.
	maxDescriptors = 1 << 17
)

// Roles returns the roles of the process, for a program that links this package.
func Roles() []reexec.Role {
	return []reexec.Role{{Match: reexec.Arg0(Arg0), Run: func() { Serve(Environment{}) }}}
}

// Serve is the process's main function. It does not return.
func Serve(w Environment) {
	ServeGathered(nil, func([]byte) (Environment, error) { return w, nil })
}

// ServeGathered is like Serve, with an Environment that newEnvironment makes from the result of
// gather. gather runs with the rights of the user who started the process. It is called once, even
// in a program that restarts to be confined.
func ServeGathered(gather func() ([]byte, error), newEnvironment func([]byte) (Environment, error)) {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	s, listener, err := confineProcess(log, gather, newEnvironment)
	ready := os.NewFile(fdReady, "ready")
	unix.CloseOnExec(fdReady)
	if err != nil {
		_ = json.NewEncoder(ready).Encode(toWire(err))
		log.Error("the egress gateway cannot start", "err", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	_, _ = ready.WriteString("{}\n") // the starting program may have exited
	ready.Close()
	if err := s.run(ctx, listener); err != nil {
		log.Error("the egress gateway has failed", "err", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// confineProcess takes the inherited descriptors and gives up all other rights.
func confineProcess(log *slog.Logger, gather func() ([]byte, error), newEnvironment func([]byte) (Environment, error)) (*server, *net.UnixListener, error) {
	started, err := confine.Begin(confine.Rules{
		UID: nobody, Files: maxDescriptors, FileBytes: maxFileBytes, SoftMemory: softMemory, HardMemory: hardMemory,
		Spool: fmt.Sprintf("/proc/self/fd/%d", fdSpool), Read: append(readable(), fmt.Sprintf("/proc/self/fd/%d", fdPackages)),
		// gVisor, which is linked into this program, exits if it cannot read this file.
		Start: []string{"/proc/sys/vm/mmap_min_addr"},
	}, func() ([]byte, error) {
		if err := closeStrays(); err != nil || gather == nil {
			return nil, err
		}
		return gather()
	})
	if err != nil {
		return nil, nil, err
	}
	w, err := newEnvironment(started.Gathered)
	if err != nil {
		return nil, nil, err
	}
	unix.CloseOnExec(fdLock)
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE)
	file := os.NewFile(fdListener, "listener")
	l, err := net.FileListener(file)
	if err != nil {
		return nil, nil, err
	}
	file.Close()
	listener, ok := l.(*net.UnixListener)
	if !ok {
		return nil, nil, errors.New("the listener is not a Unix socket")
	}
	w.bodies = os.NewFile(fdSpool, "spool")
	unix.CloseOnExec(fdPackages)
	w.packages = openPackageCache(os.NewFile(fdPackages, "packages"), w.bodyFile)
	if err := w.prepare(); err != nil {
		return nil, nil, err
	}
	report, err := started.Apply()
	if err != nil {
		return nil, nil, err
	}
	return newServer(w, started.UID, report, log), listener, nil
}

// readable returns the files that the resolver and TLS read while the process runs. It includes all
// of /etc, because the host replaces its resolver's file whenever it changes networks, and a
// Landlock rule is bound to a file, not to a name.
func readable() []string {
	paths := []string{
		"/etc", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
		"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl/certs", "/etc/ssl/certs/ca-certificates.crt",
		os.Getenv("SSL_CERT_FILE"),
	}
	return confine.Targets(append(paths, filepath.SplitList(os.Getenv("SSL_CERT_DIR"))...)...)
}

// closeStrays closes descriptors that the starting program had itself inherited, such as a user's
// files or a device.
func closeStrays() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < fdEnd {
			continue
		}
		target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if err != nil {
			continue // the descriptor of the directory listing, which is closed already
		}
		// Do not close the runtime's poller.
		if strings.HasPrefix(target, "anon_inode:[event") {
			continue
		}
		if err := unix.Close(fd); err != nil && !errors.Is(err, syscall.EBADF) {
			return err
		}
	}
	return nil
}
