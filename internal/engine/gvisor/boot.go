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
	"github.com/crannog/crannog/internal/engine/linux/ocispec"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// bootArg0 is the argv[0] of the child that creates one sandbox's kernel and exits. It is a
// separate process, because a panic in gVisor's code must not end the server, and because gVisor
// uses the standard streams of its process as those of the sandbox.
const bootArg0 = "crannog-boot"

// bootRequest is sent to the child on descriptor 3.
type bootRequest struct {
	ID          string
	SandboxDir  string
	RuntimeRoot string
	OCI         *specs.Spec
	Root        engine.HostView
	// Packed is the EROFS file that is the root instead of the view, or "".
	Packed    string
	Workspace string
	Mounts    []engine.Bind
	Volumes   []engine.Volume
	Links     []engine.Link
	StandIns  []engine.Bind
	Limits    engine.Limits
	Hide      []string
	Absent    []string
	ReadOnly  []string
	// Owners lists the files that the user owns in the sandbox.
	Owners owners.Plan
	// CPUs restricts the sandbox to this many processors if no group can limit its share. Zero
	// means no restriction.
	CPUs int
	// Platform is the gVisor platform that programs run on.
	Platform string
	// Containers lets container engines run in the sandbox.
	Containers bool
}

// bootResult is returned on descriptor 4.
type bootResult struct {
	Error string
	// Refused is set if the request itself is invalid.
	Refused bool
	Sentry  process.Process
	Gofer   process.Process
	Socket  string
	Times   timeline
}

// runBoot is the main function of the child.
func runBoot() {
	// The child changes the namespaces and mounts of this thread.
	runtime.LockOSThread()
	// This process lives for less than 0.1 s, and garbage collection would only delay the sandbox.
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

// makeKernel reads a request and creates the kernel of a sandbox.
func makeKernel(in io.Reader) (result bootResult, err error) {
	result.Times.Began = time.Now()
	var req bootRequest
	if err := json.NewDecoder(in).Decode(&req); err != nil {
		return result, fmt.Errorf("request: %w", err)
	}
	log.SetTarget(bootLog{})
	if err := req.confine(); err != nil {
		return result, err
	}
	registerIdlePlatform()
	if err := req.assembleRoot(); err != nil {
		return result, err
	}
	if err := req.cover(); err != nil {
		result.Refused = true
		return result, err
	}
	for _, v := range req.Volumes {
		req.OCI.Mounts = append(req.OCI.Mounts, ocispec.Volume(v))
	}
	// gVisor creates its control socket in its root directory, by a path that must fit into a
	// socket address, and splits one of its settings at commas and colons. Paths through
	// descriptors work for any state directory.
	root, closeRoot, err := sandboxdir.Short(req.RuntimeRoot)
	if err != nil {
		return result, err
	}
	defer closeRoot()
	dir, closeDir, err := sandboxdir.Short(req.SandboxDir)
	if err != nil {
		return result, err
	}
	defer closeDir()
	conf, err := req.runtimeConfig(root, dir)
	if err != nil {
		return result, err
	}
	// gVisor changes the specification that it receives, and reads the copy in the bundle again in
	// its other processes.
	boundInodes(req.OCI, req.Limits.DiskInodes)
	if req.Packed != "" {
		describePackedRoot(req.OCI, req.Packed, dir, req.Limits.DiskBytes)
	}
	if err := planOwners(req.OCI, req.Owners); err != nil {
		return result, err
	}
	data, err := json.Marshal(req.OCI)
	if err != nil {
		return result, err
	}
	if err := os.WriteFile(filepath.Join(req.SandboxDir, "config.json"), data, 0o600); err != nil {
		return result, err
	}
	result.Times.Rooted = time.Now()
	passed := map[int]*os.File{
		guestboot.ChannelFD:     os.NewFile(channelDescriptor, "channel"),
		guestboot.ChannelFD + 1: os.NewFile(channelDescriptor+1, "channel"),
	}
	if req.Packed != "" {
		if passed[writesDescriptor], err = openWrites(dir); err != nil {
			return result, err
		}
	}
	c, err := container.New(conf, container.Args{ID: req.ID, Spec: req.OCI, BundleDir: req.SandboxDir, PassFiles: passed})
	if err != nil {
		return result, fmt.Errorf("create: %w", err)
	}
	result.Times.Made = time.Now()
	if result.Sentry, err = process.Identify(c.SandboxPid()); err != nil {
		return result, err
	}
	if pid := c.GoferPid.Load(); pid > 0 {
		if result.Gofer, err = process.Identify(pid); err != nil {
			return result, err
		}
	}
	result.Socket = filepath.Join(req.RuntimeRoot, filepath.Base(c.Sandbox.GetControlSocketPath()))
	return result, nil
}

// confine restricts this child and its descendants to some processors if there is no control group.
// Otherwise the child is in the group from its first instruction.
func (r *bootRequest) confine() error {
	if r.CPUs == 0 {
		return nil
	}
	var available, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &available); err != nil {
		return fmt.Errorf("processors: %w", err)
	}
	for cpu := 0; want.Count() < min(r.CPUs, available.Count()); cpu++ {
		if available.IsSet(cpu) {
			want.Set(cpu)
		}
	}
	return confineThreads(&want)
}

// confineThreads restricts all threads of this process to some processors. gVisor starts the kernel
// in an arbitrary thread, and a new thread inherits the processors of its creator. Therefore the
// threads are listed again until all of them are restricted.
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
			var current unix.CPUSet
			if err := unix.SchedGetaffinity(id, &current); errors.Is(err, unix.ESRCH) {
				continue // the thread has ended after the listing
			} else if err != nil {
				return fmt.Errorf("processors: %w", err)
			}
			if current == *want {
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

// runtimeConfig returns gVisor's configuration with gVisor's root directory and the sandbox's
// directory. Settings that are not named here have gVisor's defaults.
func (r *bootRequest) runtimeConfig(root, dir string) (*config.Config, error) {
	flags := rflag.NewFlagSet("crannog", rflag.ContinueOnError)
	config.RegisterFlags(flags)
	for name, value := range map[string]string{
		"root":     root,
		"platform": r.Platform,
		// The network is gVisor's own stack, which gets its interfaces in startRoot only. "none"
		// would refuse the forwarded connections by which the server reaches the guest.
		"network": "sandbox",
		// The child is already in our control group, which is faster and also works without root.
		"ignore-cgroups": "true",
		"host-settings":  "ignore",
		// Writes go to an unnamed file in the sandbox's directory. They use disk instead of memory,
		// the kernel frees the file with its last descriptor, and its size is the sandbox's disk
		// limit.
		"overlay2": fmt.Sprintf("root:dir=%s,size=%d", dir, r.Limits.DiskBytes),
		"rootless": fmt.Sprint(os.Getenv("CRANNOG_ROOTLESS") == "1"),
		// Without this, gVisor ignores set-id bits even where new privileges are allowed.
		"allow-suid": fmt.Sprint(!r.OCI.Process.NoNewPrivileges),
		"panic-log":  filepath.Join(dir, crashOutputName),
		// Without this, gVisor takes CAP_NET_RAW away from programs. Packets still end at the
		// sandbox's attachment, whose other end does not depend on the sandbox to form them well.
		"net-raw": fmt.Sprint(r.Containers),
		// No device or socket of the host can be reached by a path.
		"host-uds":  "none",
		"host-fifo": "none",
	} {
		if err := flags.Set(name, value); err != nil {
			return nil, fmt.Errorf("gvisor setting %s: %w", name, err)
		}
	}
	return config.NewFromFlags(flags)
}

// highDescriptor is open in the child that boots a sandbox. It makes the kernel create a large
// descriptor table for the child and its children while they still have one thread. gVisor places
// its standard streams at 253 to 255, and growing the table of a process with many threads waits
// for an RCU grace period of 10 to 15 ms per boot.
const highDescriptor = 300

// cleanTarget returns the path of a bind target below the root, or an error for a target that could
// leave the root.
func cleanTarget(root, target string) (string, error) {
	if !filepath.IsAbs(target) || filepath.Clean(target) != target || strings.Contains(target, "..") {
		return "", fmt.Errorf("bind target %q is not a clean absolute path", target)
	}
	return filepath.Join(root, target), nil
}
