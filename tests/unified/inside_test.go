package unified_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Paths in the machine.
const (
	programsDir = "/mnt"
	exchangeDir = "/media"
	cgroupDir   = "/sys/fs/cgroup"
	workDir     = "/run/work"
	// serviceDir is the cgroup of scripts, like a service manager's.
	serviceDir = cgroupDir + "/system.slice/tests.service"
)

// firstArg is the argument that the kernel passes to the first process.
const firstArg = "unified-machine"

// runnerArg0 is the name of the process that runs the steps. The first process only reaps others.
const runnerArg0 = "unified-runner"

// runFirstProcess is the first process of the machine. It never returns, because the kernel would
// panic.
func runFirstProcess() {
	if err := prepare(); err != nil {
		fmt.Println("prepare:", err)
	} else if err := reapUntilDone(); err != nil {
		fmt.Println("runner:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // the emulator exits instead of restarting
	select {}
}

// mount has the arguments of mount(2).
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

// prepare makes the host's files the root, and adds what only a machine has: devices, processes,
// control groups, and space to write.
func prepare() error {
	for _, name := range modules {
		f, err := os.Open("/modules/" + name)
		if err != nil {
			return err
		}
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		f.Close()
	}
	const options9p = "trans=virtio,version=9p2000.L,msize=512000"
	if err := unix.Mount(hostTag, "/host", "9p", unix.MS_RDONLY, options9p+",cache=loose"); err != nil {
		return fmt.Errorf("the host's files: %w", err)
	}
	if err := errors.Join(os.Chdir("/host"), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), os.Chdir("/")); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	if err := mountAll([]mount{{exchangeTag, exchangeDir, "9p", 0, options9p}}); err != nil {
		return err
	}
	p, err := readPlan()
	if err != nil {
		return err
	}
	err = mountAll([]mount{
		{p.Programs, programsDir, "", unix.MS_BIND, ""}, // before a mount at /tmp hides it
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=755"},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
		{"tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, ""},
		{"tmpfs", "/var/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, ""},
		// The options are those of systemd.
		{"cgroup2", cgroupDir, "cgroup2", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "nsdelegate,memory_recursiveprot"},
	})
	if err != nil {
		return err
	}
	for _, dir := range []string{"/dev/pts", "/dev/shm", "/run/root", workDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mountAll([]mount{
		{"devpts", "/dev/pts", "devpts", 0, "ptmxmode=666"}, {"tmpfs", "/dev/shm", "tmpfs", 0, ""},
	}); err != nil {
		return err
	}
	return errors.Join(loopback(), createServiceGroup())
}

func mountAll(mounts []mount) error {
	for _, m := range mounts {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return nil
}

// loopback brings up the loopback device.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// createServiceGroup creates the control group of a service, with the controllers that every
// service manager delegates.
func createServiceGroup() error {
	if err := os.MkdirAll(serviceDir, 0o755); err != nil {
		return err
	}
	for _, dir := range []string{cgroupDir, filepath.Dir(serviceDir)} {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu +memory +pids"), 0); err != nil {
			return err
		}
	}
	return nil
}

// readPlan reads the plan that boot has written.
func readPlan() (p plan, err error) {
	text, err := os.ReadFile(filepath.Join(exchangeDir, planName))
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(text, &p)
}

// reapUntilDone starts the runner, and reaps all processes until the runner has ended.
func reapUntilDone() error {
	runner, err := os.StartProcess("/proc/self/exe", []string{runnerArg0}, &os.ProcAttr{
		Dir: "/", Env: environment, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		switch pid, err := unix.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case pid == runner.Pid && status.ExitStatus() != 0:
			return fmt.Errorf("status %d", status)
		case pid == runner.Pid:
			return nil
		}
	}
}

// environment is the environment of scripts. A missing ability fails a test there, and tests create
// fewer sandboxes.
var environment = []string{
	"HOME=/run/root", "PATH=" + programsDir + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG=C.UTF-8",
	"CRANNOG_STATE=/run/state", "CRANNOG_TEST_HOST=must", "CRANNOG_TEST_CYCLES=3",
}

// runSteps runs the steps of the plan and writes their results.
func runSteps() {
	p, err := readPlan()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	service, err := os.Open(serviceDir)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i, s := range p.Steps {
		o, err := s.run(i, int(service.Fd()))
		fmt.Printf("%s: %d after %s %s\n", s.Name, o.Code, o.Took.Round(time.Millisecond), o.Problem)
		if err == nil {
			err = writeResult(i, o)
		}
		if err != nil {
			fmt.Println(err)
		}
	}
}

func writeResult(i int, o outcome) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(exchangeDir, resultName(i)), text, 0o644)
}

// run runs a step. Its output is in a file, which exists even if the machine does not finish.
func (s step) run(i, group int) (o outcome, err error) {
	out, err := os.Create(filepath.Join(exchangeDir, outputName(i)))
	if err != nil {
		return o, err
	}
	defer out.Close()
	ctx, cancel := context.WithTimeout(context.Background(), s.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/bash", "-euc", s.Script)
	cmd.Dir, cmd.Stdout, cmd.Stderr = workDir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: group, Setsid: true}
	began := time.Now()
	err = cmd.Run()
	o.Took, o.Code = time.Since(began), -1
	switch {
	case ctx.Err() != nil:
		o.Problem = "the time limit ended the step"
	case cmd.ProcessState == nil:
		return o, err
	default:
		o.Code = cmd.ProcessState.ExitCode()
	}
	return o, nil
}
