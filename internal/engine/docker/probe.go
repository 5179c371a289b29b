package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// codeUnreachable is the code of the fault when the daemon does not answer.
const codeUnreachable = "docker_unreachable"

// probeTime bounds the probe, because a remote daemon may never answer.
const probeTime = 5 * time.Second

// Probe implements engine.Engine.
func (e *Engine) Probe(ctx context.Context) []engine.Finding {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	response, err := e.client.Info(ctx, client.InfoOptions{})
	if err != nil {
		f := engine.Fail("Docker daemon", fault.PublicText(e.unreachable(err)), fault.HintOf(e.unreachable(err)))
		f.Code = codeUnreachable
		return []engine.Finding{f}
	}
	info := response.Info
	e.mu.Lock()
	e.version = info.ServerVersion
	e.mu.Unlock()
	list := []engine.Finding{engine.OK("Docker daemon", fmt.Sprintf("version %s at %s", info.ServerVersion, e.client.DaemonHost()))}
	if err := e.refusePodman(ctx); fault.CodeOf(err) == codePodman {
		f := engine.Fail("Docker Engine", fault.PublicText(err), fault.HintOf(err))
		f.Code = codePodman
		list = append(list, f)
	}
	if info.OSType != "linux" {
		list = append(list, engine.Fail("Docker containers", "the daemon runs containers of "+info.OSType, "use a daemon for Linux containers"))
	}
	list = append(list, e.checkRuntime(info, e.runtime(info))...)
	if slices.ContainsFunc(info.SecurityOptions, func(o string) bool { return strings.Contains(o, "name=seccomp") }) {
		list = append(list, engine.OK("Docker seccomp", "the daemon applies profiles"))
	} else {
		list = append(list, engine.Fail("Docker seccomp", "the daemon applies no seccomp profile", "use a kernel and a daemon with seccomp"))
	}
	for _, l := range []struct {
		name string
		ok   bool
	}{{"memory", info.MemoryLimit}, {"processor time", info.CPUCfsQuota}, {"processes", info.PidsLimit}} {
		if !l.ok {
			list = append(list, engine.Fail("Docker limits", "the daemon cannot limit "+l.name, "enable the control group on the daemon's host"))
		}
	}
	if slices.ContainsFunc(info.SecurityOptions, func(o string) bool { return strings.Contains(o, "name=userns") || strings.Contains(o, "name=rootless") }) {
		list = append(list, engine.OK("Docker user namespaces", "users of a sandbox are not users of the host"))
	} else {
		list = append(list, engine.Warn("Docker user namespaces", "user "+fmt.Sprint(engine.UserID)+" of a sandbox is the same user of the host, without rights there and without access to its files",
			`set "userns-remap": "default" in the daemon's configuration`))
	}
	return list
}

// unreachable returns the fault for a daemon that does not answer.
func (e *Engine) unreachable(err error) error {
	hint := "start the daemon, or set docker_host or DOCKER_HOST to the address of a running daemon"
	if strings.Contains(err.Error(), "permission denied") {
		hint = "give this user access to the daemon's socket, which makes the user root on the daemon's host"
	}
	return fault.Wrap(err, fault.Unavailable, codeUnreachable, "the Docker daemon at "+e.client.DaemonHost()+" does not answer").WithHint(hint)
}

// explain converts an error of an operation into a fault that a user can act on.
func (e *Engine) explain(operation string, err error) error {
	if err == nil {
		return nil
	}
	if _, known := errors.AsType[*fault.Error](err); known {
		return err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(err, fault.Timeout, "create_timeout", operation+": it took too long")
	case errors.Is(err, context.Canceled):
		return fault.Wrap(err, fault.Canceled, "canceled", operation+": the caller canceled the request")
	case client.IsErrConnectionFailed(err), cerrdefs.IsUnavailable(err):
		return e.unreachable(err)
	}
	return fault.Wrap(err, fault.Unavailable, "engine_failed", fmt.Sprintf("%s: %v", operation, err))
}
