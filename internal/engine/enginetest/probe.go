package enginetest

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/reexec"
)

// probeArg is the first argument that makes a test binary a probe. The next argument selects what
// the probe does.
const (
	probeArg = "enginetest-probe"

	makeCalls      = "call"     // runs the named probes
	reachFiles     = "reach"    // tries to reach each named file with each of probesByPath
	changeFiles    = "change"   // tries each of fileChanges on each named file
	changeSettings = "settings" // tries to change kernel settings
	inNamespaces   = "own"      // runs the rest of its arguments as root of separate namespaces
)

const (
	// controlEnv is the environment variable that marks a process as a control on the host.
	controlEnv = "PROBE_CONTROL"
	// traceeEnv holds the PID of the process that a control attacks instead of PID 1.
	traceeEnv = "PROBE_TRACEE"
)

// ProbeRole lets a test binary run the probes. The same binary runs in a sandbox, where a probe
// must be refused, and on the host as root, where it must succeed: without that control a refusal
// proves nothing.
func ProbeRole() reexec.Role {
	return reexec.Role{
		Match: func(args []string) bool { return len(args) > 2 && args[1] == probeArg },
		Run: func() {
			out := json.NewEncoder(os.Stdout)
			for _, a := range answers(os.Args[2], os.Args[3:]) {
				if err := out.Encode(a); err != nil {
					os.Exit(1)
				}
			}
		},
	}
}

// answers runs the attempts that mode selects and returns their results.
func answers(mode string, args []string) (list []answer) {
	switch mode {
	case makeCalls:
		for _, name := range args {
			list = append(list, newAnswer(name, "", onOwnThread(probes[name].try)))
		}
	case reachFiles:
		for _, name := range slices.Sorted(maps.Keys(probesByPath)) {
			paths := args
			if slices.Contains(expensiveProbes, name) {
				paths = args[:min(len(args), expensivePaths)]
			}
			for _, path := range paths {
				list = append(list, newAnswer(name, path, onOwnThread(func() error { return probesByPath[name](path) })))
			}
		}
	case changeFiles:
		for _, c := range fileChanges {
			for _, path := range args {
				list = append(list, newAnswer(c.name, path, onOwnThread(func() error { return c.try(path, false) })))
			}
		}
	case changeSettings:
		return trySettings()
	case inNamespaces:
		cmd := exec.Command("/proc/self/exe", append([]string{probeArg}, args...)...)
		cmd.SysProcAttr = ownNamespaces()
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			list = append(list, newAnswer(inNamespaces, "", err))
		}
	}
	return list
}

// ownNamespaces makes a process root of a new user and mount namespace.
func ownNamespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
}

// answer is the result of an attempt.
type answer struct {
	Name  string
	Path  string        `json:",omitempty"`
	Errno syscall.Errno `json:",omitempty"`
	Text  string        `json:",omitempty"` // the text of the error, also if it has no number
}

// newAnswer returns the answer for an attempt that returned err.
func newAnswer(name, path string, err error) answer {
	a := answer{Name: name, Path: path}
	if err != nil {
		a.Text = err.Error()
		if !errors.As(err, &a.Errno) && errors.Is(err, os.ErrNotExist) {
			a.Errno = unix.ENOENT
		}
	}
	return a
}

// succeeded reports whether the attempt returned no error.
func (a answer) succeeded() bool { return a.Errno == 0 && a.Text == "" }

// onOwnThread runs an attempt on a separate thread, which ends with it, so that changes to the
// thread do not affect the next attempt.
func onOwnThread(try func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- try()
	}()
	return <-done
}

// probe is an attempt that must be refused in a sandbox for every user. Dangerous calls have
// arguments that are invalid on a kernel that permits them, so that nothing happens there.
type probe struct {
	try func() error
	// refusals lists additional errors that count as a refusal of this attempt.
	refusals []syscall.Errno
	// lacks lists the errors of a host without the feature. On such a host, or if off shows that a
	// setting disables the feature, the control may fail.
	lacks []syscall.Errno
	off   setting
	// allowed maps the personas for which the attempt succeeds in the sandbox to the reason why
	// that is harmless.
	allowed map[persona]string
}

// setting is a settings file of the host, and its content if a feature is disabled.
type setting struct{ path, value string }

// refused reports whether an answer is a refusal.
func (p probe) refused(a answer) bool {
	return slices.Contains(append([]syscall.Errno{
		unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EROFS, unix.ENODEV, unix.EOPNOTSUPP,
		unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT, unix.ENOENT,
	}, p.refusals...), a.Errno)
}

// persona is the user as which an attempt is made in the sandbox.
type persona string

const (
	asUser  persona = "user"
	asRoot  persona = "root"
	asOwner persona = "root of its own namespaces"
)

// probes holds all attempts by name.
var probes = func() map[string]probe {
	all := map[string]probe{}
	for _, group := range []map[string]probe{kernelProbes, mountProbes, fileProbes, initProbes, rightProbes} {
		for name, p := range group {
			if _, twice := all[name]; twice {
				panic("two probes have the name " + name)
			}
			all[name] = p
		}
	}
	return all
}()

// probeNames returns the names of all probes.
func probeNames() []string { return slices.Sorted(maps.Keys(probes)) }
