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

	makeCalls      = "call"     // the probes, by name
	reachFiles     = "reach"    // each way to each of the named files
	changeFiles    = "change"   // each change of each of the named files
	changeSettings = "settings" // settings of the kernel
	inNamespaces   = "own"      // runs the rest of its arguments as root of separate namespaces
)

// These environment variables mark a process as a control. The second one names the process that
// stands for PID 1.
const (
	controlEnv = "PROBE_CONTROL"
	traceeEnv  = "PROBE_TRACEE"
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

func answers(what string, args []string) (list []answer) {
	switch what {
	case makeCalls:
		for _, name := range args {
			list = append(list, newAnswer(name, "", onOwnThread(probes[name].try)))
		}
	case reachFiles:
		for _, name := range slices.Sorted(maps.Keys(probesByPath)) {
			paths := args
			if slices.Contains(sparing, name) {
				paths = args[:min(len(args), sparingPaths)]
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
		return setAll()
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
	Text  string        `json:",omitempty"` // text of the error, also without a number
}

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
	// refusals are additional errors that count as a refusal of this attempt.
	refusals []syscall.Errno
	// lacks are the errors of a host without the feature. Only these, or a setting that disables
	// the feature, excuse a host from the control.
	lacks []syscall.Errno
	off   setting
	// allowed lists the personas for which the attempt succeeds in the sandbox, and why it gives
	// them nothing.
	allowed map[persona]string
}

// setting is a file of the host, and its content if a feature is disabled.
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

// probes are all attempts by name.
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

func probeNames() []string { return slices.Sorted(maps.Keys(probes)) }
