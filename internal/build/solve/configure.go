package solve

import (
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/crannog/crannog/internal/build/dockerfile"
)

// configure applies an instruction that changes no files.
func (g *stage) configure(c instructions.Command) error {
	config := &g.image.Config
	switch c := c.(type) {
	case *instructions.EnvCommand:
		for _, e := range c.Env {
			g.setEnv(e.Key, e.Value)
		}
	case *instructions.ArgCommand:
		for _, a := range c.Args {
			if v, ok := g.s.plan.Argument(a); ok {
				g.args[a.Key] = v
			}
		}
	case *instructions.LabelCommand:
		if config.Labels == nil {
			config.Labels = map[string]string{}
		}
		for _, l := range c.Labels {
			config.Labels[l.Key] = l.Value
		}
	case *instructions.MaintainerCommand:
		g.image.Author = c.Maintainer
	case *instructions.UserCommand:
		config.User = c.User
	case *instructions.ShellCommand:
		config.Shell = c.Shell
	case *instructions.CmdCommand:
		config.Cmd = dockerfile.WithShell(c.CmdLine, c.PrependShell, config.Shell)
		g.ownCmd = true
	case *instructions.EntrypointCommand:
		config.Entrypoint = dockerfile.WithShell(c.CmdLine, c.PrependShell, config.Shell)
		if !g.ownCmd {
			config.Cmd = nil // the base image's CMD is meant for its own entrypoint
		}
	case *instructions.ExposeCommand:
		return g.expose(c)
	case *instructions.VolumeCommand:
		if config.Volumes == nil {
			config.Volumes = map[string]struct{}{}
		}
		for _, v := range c.Volumes {
			if v == "" {
				return dockerfile.Refused(c, "a volume has no path")
			}
			config.Volumes[v] = struct{}{}
		}
	case *instructions.StopSignalCommand:
		config.StopSignal = c.Signal
	case *instructions.HealthCheckCommand:
		h := c.Health
		config.Healthcheck = &v1.HealthConfig{Test: h.Test, Interval: h.Interval, Timeout: h.Timeout, StartPeriod: h.StartPeriod, Retries: h.Retries}
	case *instructions.OnbuildCommand:
		config.OnBuild = append(config.OnBuild, c.Expression)
	default:
		return dockerfile.Refused(c, "this instruction is not supported")
	}
	return nil
}

// setEnv sets a variable of the image.
func (g *stage) setEnv(name, value string) {
	env := &g.image.Config.Env
	for i, e := range *env {
		if strings.HasPrefix(e, name+"=") {
			(*env)[i] = name + "=" + value
			return
		}
	}
	*env = append(slices.Clone(*env), name+"="+value)
}

// maxPort is the largest port number of EXPOSE.
const maxPort = 65535

// expose adds the ports of EXPOSE to the image.
func (g *stage) expose(c *instructions.ExposeCommand) error {
	if g.image.Config.ExposedPorts == nil {
		g.image.Config.ExposedPorts = map[string]struct{}{}
	}
	for _, port := range c.Ports {
		numbers, protocol, ok := strings.Cut(port, "/")
		if !ok {
			protocol = "tcp"
		}
		first, last, ranged := strings.Cut(numbers, "-")
		if !ranged {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err != nil || err2 != nil || from == 0 || to < from || to > maxPort || !slices.Contains([]string{"tcp", "udp", "sctp"}, strings.ToLower(protocol)) {
			return dockerfile.Refused(c, "%.50q is not a port", port)
		}
		for n := from; n <= to; n++ {
			g.image.Config.ExposedPorts[strconv.FormatUint(n, 10)+"/"+strings.ToLower(protocol)] = struct{}{}
		}
	}
	return nil
}
