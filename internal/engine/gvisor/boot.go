package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	rflag "gvisor.dev/gvisor/runsc/flag"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/gvisor/owners"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// bootArg0 is the name of the child that makes one sandbox's kernel and ends. A
// panic in gVisor's code ends this child and not the server, and gVisor takes
// the sandbox's stdio from the process's own.
const bootArg0 = "crannog-boot"

// bootRequest travels to the child on descriptor 3.
type bootRequest struct {
	ID          string
	BoxDir      string
	RuntimeRoot string
	OCI         *specs.Spec
	Root        engine.HostView
	Workspace   string
	Mounts      []engine.Bind
	Links       []engine.Link
	StandIns    []engine.Bind
	Limits      engine.Limits
	Hide        []string
	Absent      []string
	ReadOnly    []string
	// Owners lists the files that the user owns inside.
	Owners owners.Plan
	// CPUs keeps the sandbox on this many processors, where there is no group
	// that could bound its share. Zero leaves it alone.
	CPUs int
	// Platform is what programs run on.
	Platform string
}

// bootResult comes back on descriptor 4.
type bootResult struct {
	Error string
	// Refused is set if the request itself is at fault.
	Refused bool
	Sentry  process.Process
	Gofer   process.Process
	Socket  string
	Times   timeline
}

// runBoot is the child's main.
func runBoot() {
	// Everything that follows changes the thread's namespaces and mounts.
	runtime.LockOSThread()
	// This process lives for a few hundredths of a second: collecting its
	// garbage would only make the sandbox wait.
	debug.SetGCPercent(-1)
	in, out := os.NewFile(3, "request"), os.NewFile(4, "result")
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	unix.CloseOnExec(channelDescriptor)
	unix.CloseOnExec(channelDescriptor + 1)
	unix.CloseOnExec(highDescriptor)
	result, err := makeKernel(in)
	if err != nil {
		result.Error = err.Error()
	}
	if err := json.NewEncoder(out).Encode(result); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func makeKernel(in io.Reader) (result bootResult, err error) {
	result.Times.Began = time.Now()
	var req bootRequest
	if err := json.NewDecoder(in).Decode(&req); err != nil {
		return result, fmt.Errorf("request: %w", err)
	}
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}})
	if err := req.confine(); err != nil {
		return result, err
	}
	registerStill()
	if err := req.assembleRoot(); err != nil {
		return result, err
	}
	if err := req.cover(); err != nil {
		result.Refused = true
		return result, err
	}
	// gVisor makes its control socket in its root directory, by a path that must fit into an
	// address, and splits one of its settings at commas and colons. With paths through descriptors,
	// any state directory works.
	root, closeRoot, err := sandboxdir.Short(req.RuntimeRoot)
	if err != nil {
		return result, err
	}
	defer closeRoot()
	box, closeBox, err := sandboxdir.Short(req.BoxDir)
	if err != nil {
		return result, err
	}
	defer closeBox()
	conf, err := req.runtimeConfig(root, box)
	if err != nil {
		return result, err
	}
	// gVisor changes the specification that it is given, and reads the
	// bundle's own copy again in its other processes.
	boundInodes(req.OCI, req.Limits.DiskInodes)
	if err := planOwners(req.OCI, req.Owners); err != nil {
		return result, err
	}
	data, err := json.Marshal(req.OCI)
	if err != nil {
		return result, err
	}
	if err := os.WriteFile(filepath.Join(req.BoxDir, "config.json"), data, 0o600); err != nil {
		return result, err
	}
	result.Times.Rooted = time.Now()
	c, err := container.New(conf, container.Args{
		ID: req.ID, Spec: req.OCI, BundleDir: req.BoxDir,
		PassFiles: map[int]*os.File{
			guestboot.ChannelFD:     os.NewFile(channelDescriptor, "channel"),
			guestboot.ChannelFD + 1: os.NewFile(channelDescriptor+1, "channel"),
		},
	})
	if err != nil {
		return result, fmt.Errorf("create: %w", err)
	}
	result.Times.Made = time.Now()
	if result.Sentry, err = process.Identify(c.SandboxPid()); err != nil {
		return result, err
	}
	if result.Gofer, err = process.Identify(c.GoferPid.Load()); err != nil {
		return result, err
	}
	result.Socket = filepath.Join(req.RuntimeRoot, filepath.Base(c.Sandbox.GetControlSocketPath()))
	return result, nil
}

// confine keeps this child, and so all its descendants, on some processors where there is no group.
// If there is a group, the child is in it from its first instruction.
func (r *bootRequest) confine() error {
	if r.CPUs == 0 {
		return nil
	}
	var have, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &have); err != nil {
		return fmt.Errorf("processors: %w", err)
	}
	for cpu := 0; want.Count() < min(r.CPUs, have.Count()); cpu++ {
		if have.IsSet(cpu) {
			want.Set(cpu)
		}
	}
	return confineThreads(&want)
}

// confineThreads keeps all threads of this process on some processors. gVisor starts the kernel in
// a thread of its own choice, and a new thread inherits the processors of the thread that made it.
// So the threads are listed again until none of them is elsewhere.
func confineThreads(want *unix.CPUSet) error {
	for found := true; found; {
		found = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("processors: %w", err)
		}
		for _, task := range tasks {
			id, err := strconv.Atoi(task.Name())
			if err != nil {
				return fmt.Errorf("processors: %w", err)
			}
			var have unix.CPUSet
			if err := unix.SchedGetaffinity(id, &have); errors.Is(err, unix.ESRCH) {
				continue // it ended since it was listed
			} else if err != nil {
				return fmt.Errorf("processors: %w", err)
			}
			if have == *want {
				continue
			}
			if err := unix.SchedSetaffinity(id, want); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("processors: %w", err)
			}
			found = true
		}
	}
	return nil
}

// runtimeConfig is gVisor's configuration, with its root directory and the
// sandbox's own. What is not named here has gVisor's default.
func (r *bootRequest) runtimeConfig(root, box string) (*config.Config, error) {
	flags := rflag.NewFlagSet("crannog", rflag.ContinueOnError)
	config.RegisterFlags(flags)
	for name, value := range map[string]string{
		"root":     root,
		"platform": r.Platform,
		// The network is gVisor's own stack, and the only links that it is
		// given are in startRoot. "none" would refuse the forwarded
		// connections by which the daemon reaches the guest.
		"network": "sandbox",
		// Our own group is joined in confine, which is faster and also works
		// without root.
		"ignore-cgroups": "true",
		"host-settings":  "ignore",
		// Writes go to a file without a name in the sandbox's directory: they
		// cost disk and not memory, the kernel frees it with the last
		// descriptor, and its size is the sandbox's disk limit.
		"overlay2": fmt.Sprintf("root:dir=%s,size=%d", box, r.Limits.DiskBytes),
		"rootless": fmt.Sprint(os.Getenv("CRANNOG_ROOTLESS") == "1"),
		// Without it gVisor ignores set-id bits even where new privileges are allowed.
		"allow-suid": fmt.Sprint(!r.OCI.Process.NoNewPrivileges),
		"panic-log":  filepath.Join(box, wordsName),
		// Nothing of the host's devices or sockets is reachable by a path.
		"host-uds":  "none",
		"host-fifo": "none",
	} {
		if err := flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("gvisor setting %s: %w", name, err)
		}
	}
	return config.NewFromFlags(flags)
}

// highDescriptor is open in the child that boots a sandbox, so that the kernel
// gives it, and the processes that it starts, a large descriptor table when it
// is made and still has one thread. gVisor places its stdio at 253 to 255;
// growing the table of a process with many threads waits for an RCU grace
// period, 10 to 15 ms per boot.
const highDescriptor = 300

// cleanTarget refuses a bind target that could leave the root.
func cleanTarget(root, target string) (string, error) {
	if !filepath.IsAbs(target) || filepath.Clean(target) != target || strings.Contains(target, "..") {
		return "", fmt.Errorf("bind target %q is not a clean absolute path", target)
	}
	return filepath.Join(root, target), nil
}
