package docker

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/crannog/crannog/internal/engine"
)

// checkNameRuntime is the name of the finding about the runtime.
const checkNameRuntime = "Docker runtime"

// Arguments of runsc that change what a sandbox is.
const (
	flagSeccomp = "--oci-seccomp" // apply a container's seccomp profile
	flagKVM     = "--platform=kvm"
)

// hasOwnKernel reports whether a daemon's runtime with a name is gVisor's runsc, with which each
// sandbox has its own kernel. The name is all that is
// known before the daemon answers, and checkRuntime compares it with the daemon's configuration.
func hasOwnKernel(name string) bool {
	return name == "runsc" || strings.HasPrefix(name, "runsc-") || strings.HasPrefix(name, "io.containerd.runsc.")
}

// userspaceKernel reports whether sandboxes have their own kernel.
func (e *Engine) userspaceKernel() bool { return hasOwnKernel(e.o.Runtime) }

// describeOwnKernel changes the description of the engine to that of containers with runsc.
func (e *Engine) describeOwnKernel(info *engine.Info) {
	info.Boundary = engine.UserspaceKernel
	// The daemon's limit counts the threads of gVisor's kernel on the host, and ends the sandbox.
	info.Enforces = slices.DeleteFunc(info.Enforces, func(l engine.Limit) bool { return l == engine.LimitPIDs })
	info.Notes = append(info.Notes,
		"with runsc, the number of processes is not limited as such: a sandbox whose kernel needs too many threads of the host ends as a whole",
		"with runsc, a sandbox that exceeds the memory limit ends as a whole",
		"with runsc, a seccomp profile applies only if the daemon starts it with "+flagSeccomp+"; gVisor's own filter always applies")
}

// profileFor returns the seccomp profile of a container with a runtime. For clone3 the usual profile
// returns "not implemented", because a filter cannot read its flags, and C libraries then use clone.
// gVisor knows only one error for a profile, with which C libraries start no thread. With runsc the
// call is allowed: the namespaces that it can make exist only in the sandbox's own kernel.
func profileFor(runtime string) string {
	if !hasOwnKernel(runtime) {
		return seccompProfile
	}
	var profile map[string]any
	if err := json.Unmarshal([]byte(seccompProfile), &profile); err != nil {
		return seccompProfile // the profile is part of the program, and TestProfileOfRunsc reads it
	}
	rules, _ := profile["syscalls"].([]any)
	for _, r := range rules {
		rule, _ := r.(map[string]any)
		if names, _ := rule["names"].([]any); len(names) == 1 && names[0] == "clone3" {
			rule["action"] = "SCMP_ACT_ALLOW"
			delete(rule, "errnoRet")
		}
	}
	text, err := json.Marshal(profile)
	if err != nil {
		return seccompProfile
	}
	return string(text)
}

// kernelThreads returns the limit of host threads for a sandbox that may have so many processes. An
// idle kernel has about 24 threads, and each process needs up to three more.
func kernelThreads(processes int64) int64 { return 4*processes + 256 }

// checkRuntime checks that the daemon has the runtime, that it is what its name says, and what it
// leaves out.
func (e *Engine) checkRuntime(info system.Info, name string) []engine.Finding {
	runtime, known := info.Runtimes[name]
	if !known && !strings.HasPrefix(name, "io.containerd.") { // shims are found by their name
		return []engine.Finding{engine.Fail(checkNameRuntime, "the daemon has no runtime "+name, "add it to the daemon's configuration, or change the setting docker_runtime")}
	}
	program := filepath.Base(runtime.Path)
	if runtime.Type != "" {
		program = runtime.Type
	}
	gvisor := strings.Contains(program, "runsc")
	switch {
	case gvisor && e.o.Runtime == "":
		return []engine.Finding{engine.Fail(checkNameRuntime, "the daemon's default runtime "+name+" is gVisor's runsc, which needs other settings", "name it in the setting docker_runtime, or make another runtime the default")}
	case gvisor && !hasOwnKernel(name):
		return []engine.Finding{engine.Fail(checkNameRuntime, "the daemon's runtime "+name+" is gVisor's runsc under another name", "name it runsc, or runsc- with a suffix, in the daemon's configuration")}
	case known && hasOwnKernel(name) && !gvisor:
		// The boundary that sandboxes are said to have follows from the name.
		return []engine.Finding{engine.Fail(checkNameRuntime, "the daemon's runtime "+name+" is the program "+program+" and not gVisor's runsc", "correct the path in the daemon's configuration")}
	case !gvisor || !known:
		return []engine.Finding{engine.OK(checkNameRuntime, name)}
	}
	list := []engine.Finding{engine.OK(checkNameRuntime, name+", with a kernel of its own for each sandbox")}
	if !slices.ContainsFunc(runtime.Args, func(arg string) bool { return arg == flagSeccomp || arg == flagSeccomp+"=true" }) {
		list = append(list, engine.Warn("seccomp of runsc", "the runtime ignores the sandbox's seccomp profile, so programs can make every call that gVisor's kernel has",
			`add "`+flagSeccomp+`" to the runtimeArgs of `+name+" in the daemon's configuration"))
	}
	list = append(list, engine.Warn("processes with runsc", "the daemon's limit counts threads of gVisor's kernel: a sandbox with too many ends as a whole, and --pids is refused",
		"use the runtime runc or crun, or the engine gvisor, for a limit of processes"))
	if slices.Contains(runtime.Args, flagKVM) {
		list = append(list, engine.Warn("platform of runsc", "the runtime uses KVM, which fails in most virtual machines", `use "--platform=systrap"`))
	}
	return list
}

// refuseRuntime returns a fault if no sandbox can have the runtime. A runtime that was accepted once
// is not checked again by this process.
func (e *Engine) refuseRuntime(ctx context.Context) error {
	e.mu.Lock()
	accepted := e.runtimeAccepted
	e.mu.Unlock()
	if accepted {
		return nil
	}
	answer, err := e.client.Info(ctx, client.InfoOptions{})
	if err != nil {
		return err
	}
	if err := engine.Refusal(e.checkRuntime(answer.Info, e.runtime(answer.Info))); err != nil {
		return err
	}
	e.mu.Lock()
	e.runtimeAccepted = true
	e.mu.Unlock()
	return nil
}

// runtime returns the name of the runtime that sandboxes have.
func (e *Engine) runtime(info system.Info) string {
	if e.o.Runtime != "" {
		return e.o.Runtime
	}
	return info.DefaultRuntime
}
