package docker

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// seccompProfile allows only the system calls of ordinary programs. It is Docker Engine's default
// profile without the calls that need a capability and the calls of 32-bit programs. It allows four
// socket families, and netlink only for routes. The 32 rules for ioctl allow every request except
// TIOCSTI, with which a program could type into a terminal that it shares: each rule allows the
// requests that differ from TIOCSTI in one bit. The profile is sent with each request, because a
// daemon may be configured to use none.
//
//go:embed seccomp.json
var seccompProfile string

// workspaceDir is the path of the workspace in a sandbox.
const workspaceDir = "/workspace"

// maskedPaths and readonlyPaths hide information about the host's kernel and protect its settings.
// They hold the paths that Docker Engine 29 protects, regardless of the daemon's version, and files
// that identify the host.
var (
	maskedPaths = []string{
		"/proc/key-users", "/sys/kernel/vmcoreinfo",
		"/proc/acpi", "/proc/asound", "/proc/cmdline", "/proc/config.gz", "/proc/devices", "/proc/diskstats", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/kallsyms", "/proc/kcore",
		"/proc/keys", "/proc/latency_stats", "/proc/modules", "/proc/partitions", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/proc/zoneinfo", "/sys/block", "/sys/class/block", "/sys/dev/block", "/sys/devices/virtual/powercap", "/sys/firmware",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// writable lists the writable directories, which are in the sandbox's memory.
var writable = []struct {
	path    string
	percent int64 // the maximum share of the disk limit
	options string
}{
	{"/home/user", 40, "mode=0755,exec"},
	{"/tmp", 25, "mode=1777,exec"},
	{"/var/tmp", 20, "mode=1777,exec"},
	{"/run", 5, "mode=0755"},
	{"/etc", 10, "mode=0755"},
}

// writableDirs returns the paths of the writable directories.
func writableDirs() (dirs []string) {
	for _, w := range writable {
		dirs = append(dirs, w.path)
	}
	return dirs
}

// maxOpenFiles bounds the descriptors of a process.
const maxOpenFiles = 16384

// volumeMount is a host directory that is copied into a volume of the daemon.
type volumeMount struct {
	source, target, volume string
}

// layout holds everything from which a container's request is made.
type layout struct {
	owner, image, runtime string
	spec                  engine.Spec
	volumes               []volumeMount
	protected             []string // paths in volumes that cannot be changed
}

// request returns the request to the daemon that creates a sandbox's container. It depends only on
// its receiver, so a golden file shows each change of a right or a limit to reviewers.
func (l layout) request() client.ContainerCreateOptions {
	limits := l.spec.Limits.OrDefault()
	labels := map[string]string{labelOwner: l.owner, labelSandbox: l.spec.ID}
	if l.spec.Egress.Kind == engine.EgressProxy {
		labels = map[string]string{labelOwner: l.owner, labelSandbox: l.spec.ID, labelEgress: string(engine.EgressProxy)}
	}
	user := strconv.Itoa(engine.UserID)
	tmpfs := map[string]string{}
	for _, w := range writable {
		tmpfs[w.path] = fmt.Sprintf("rw,nosuid,nodev,%s,size=%d,nr_inodes=%d,uid=%s,gid=%s",
			w.options, limits.DiskBytes*w.percent/100, max(limits.DiskInodes*w.percent/100, 1), user, user)
	}
	var mounts []mount.Mount
	for _, v := range l.volumes {
		mounts = append(mounts, mount.Mount{
			Type: mount.TypeVolume, Source: v.volume, Target: v.target,
			VolumeOptions: &mount.VolumeOptions{Labels: labels},
		})
	}
	for _, v := range l.spec.Volumes {
		mounts = append(mounts, mount.Mount{
			Type: mount.TypeBind, Source: v.Source, Target: v.Target, ReadOnly: v.ReadOnly,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
		})
	}
	if !slices.ContainsFunc(l.volumes, func(v volumeMount) bool { return v.target == workspaceDir }) {
		tmpfs[workspaceDir] = fmt.Sprintf("rw,nosuid,nodev,exec,mode=0755,size=%d,nr_inodes=%d,uid=%s,gid=%s", limits.DiskBytes, limits.DiskInodes, user, user)
	}
	useInit, pids := false, limits.PIDs // the guest is PID 1
	if hasOwnKernel(l.runtime) {
		pids = kernelThreads(limits.PIDs)
	}
	return client.ContainerCreateOptions{
		Name: containerName(l.owner, l.spec.ID),
		Config: &container.Config{
			Image: l.image, Hostname: l.spec.Hostname, Labels: labels,
			Entrypoint: []string{l.spec.Image.Guest, guestboot.PlainFlag}, Cmd: []string{}, WorkingDir: "/",
			Env:  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/home/user"},
			User: user + ":" + user,
			// The daemon adds no interface, name server or hosts file.
			NetworkDisabled: true,
			// The configuration contains the sandbox's tokens, so it is sent to standard input.
			OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
			// A health check of the image would run programs that no client started.
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		},
		HostConfig: &container.HostConfig{
			NetworkMode: "none", IpcMode: "private", CgroupnsMode: "private", Runtime: l.runtime,
			ReadonlyRootfs: true, Tmpfs: tmpfs, Mounts: mounts, ShmSize: limits.ShmBytes,
			CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges", "seccomp=" + profileFor(l.runtime)},
			MaskedPaths: maskedPaths, ReadonlyPaths: slices.Concat(readonlyPaths, l.protected),
			Init: &useInit,
			// In a sandbox without a network interface, the guest runs a name server, which listens on
			// port 53 without being root.
			Sysctls:       map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"},
			LogConfig:     container.LogConfig{Type: "none"},
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			Resources: container.Resources{
				Memory: limits.MemoryBytes, MemorySwap: limits.MemoryBytes, PidsLimit: &pids,
				CPUPeriod: cpuPeriod, CPUQuota: limits.MilliCPU * cpuPeriod / 1000,
				Ulimits: []*container.Ulimit{
					{Name: "nofile", Soft: maxOpenFiles, Hard: maxOpenFiles}, {Name: "core", Soft: 0, Hard: 0},
				},
			},
		},
	}
}

// cpuPeriod is the kernel's period for processor time, in microseconds.
const cpuPeriod = 100_000

// planVolumes returns the volumes for a specification.
func planVolumes(owner string, spec engine.Spec) (list []volumeMount) {
	name := containerName(owner, spec.ID)
	if spec.Workspace != "" {
		list = append(list, volumeMount{spec.Workspace, workspaceDir, name + "-workspace"})
	}
	return list
}
