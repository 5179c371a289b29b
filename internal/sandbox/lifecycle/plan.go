package lifecycle

import (
	"context"
	"maps"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/access"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// Bounds of what a caller may attach. Metadata is for labels; the environment
// has to fit into what the kernel passes to a new process (2 MiB with argv,
// 128 KiB for one string).
const (
	maxMetadata      = 64
	maxMetadataKey   = 256
	maxMetadataBytes = 64 << 10
	maxEnv           = 1024
	maxEnvString     = 100 << 10
	maxEnvBytes      = 1 << 20
	maxLocalTimeout  = 366 * 24 * time.Hour
)

// pattern is a form with a greatest number of characters. They are counted
// apart: a bound inside an expression is compiled at every start, also of the
// processes that carry a box, and takes longer than all other such work.
type pattern struct {
	form *regexp.Regexp
	most int
}

func (p pattern) MatchString(s string) bool {
	return utf8.RuneCountInString(s) <= p.most && p.form.MatchString(s)
}

var (
	namePattern    = pattern{regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`), 63}
	requestPattern = pattern{regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`), 64}
	envPattern     = pattern{regexp.MustCompile(`^[^=\x00-\x1f\x7f]+$`), 256}
	hostPattern    = pattern{regexp.MustCompile(`^[a-zA-Z0-9$\[][a-zA-Z0-9._:${}\[\]-]*$`), 255}
)

// plan checks a request and decides all that a sandbox is made of. It changes
// nothing.
func (s *Service) plan(ctx context.Context, who sandbox.Principal, req sandbox.CreateRequest) (sandbox.Row, sandbox.Template, *policy.Policy, error) {
	for _, check := range []func() error{
		who.Check,
		func() error { return checkLocal(who, req) },
		func() error { return checkReferences(who, req.Access, sandbox.Access{}) },
		func() error { return checkName(req.Name) },
		func() error { return checkRequestID(req.RequestID) },
		func() error { return checkMetadata(req.Metadata) },
		func() error { return checkEnv(req.Env) },
		func() error { return checkMask(req.MaskRequestHost) },
	} {
		if err := check(); err != nil {
			return sandbox.Row{}, sandbox.Template{}, nil, err
		}
	}
	ttl, err := s.lifetime(who, req)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	workspace, err := rootfs.ResolveWorkspace(req.Workspace)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	ref, err := sandbox.ParseReference(req.Template)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	template, err := s.startingPoint(ctx, who, ref)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	if workspace, err = template.Origin.WorkspaceFor(req.Limits, workspace); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	mounts, err := rootfs.ResolveMounts(s.settings, req.Mounts)
	if err == nil && len(mounts) > 0 && template.Origin != nil {
		err = fault.New(fault.Invalid, "snapshot_mounts", "a snapshot keeps the mounts that it was taken with").WithHint("leave the mounts out")
	}
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	programs, err := rootfs.ResolvePrograms(req.Programs)
	if err == nil {
		err = rootfs.AddPrograms(&template, programs)
	}
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	compiled, err := s.access.Compile(req.Access)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	chosen, err := s.engines.chooseEngine(req.Engine, compiled, template.Origin)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	info := chosen.Info()
	if err := template.Image.Check(info.Images); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	if err := s.checkOnEnd(req.OnEnd, info.Name); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	limits, err := s.limits(req.Limits, info)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	template.Origin.Inherit(&limits, req.Limits)
	tools, err := rootfs.ResolveTools(s.settings, req.Tools, compiled, template.Origin)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	if err := rootfs.AddTools(&template, tools); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	var base sandbox.Base
	if o := template.Origin; o != nil {
		base = base.WithMountsOf(o.Base)
		base.Copy = ""
	} else {
		match := compiled.Files().Matcher()
		if err := rootfs.AddMounts(&base, mounts, template.Image, match); err != nil {
			return sandbox.Row{}, sandbox.Template{}, nil, err
		}
		rootfs.AddRepository(&base, workspace, template.Image, match)
	}
	req.Access = access.NameValues(req.Access.Settled())
	r := sandbox.Row{ControlToken: ids.NewToken(), Process: s.self, Run: 1, CreateTimeout: ttl, Base: base, Sandbox: sandbox.Sandbox{
		ID: newID(), Name: req.Name, TemplateID: template.ID, Template: ref.String(), State: sandbox.Creating, OnEnd: req.OnEnd,
		Owner: who.KeyID, Ephemeral: req.Ephemeral, StartedAt: time.Now().UTC().Round(0),
		Metadata: maps.Clone(req.Metadata), Env: maps.Clone(req.Env), Limits: limits,
		AccessToken: ids.NewToken(), MaskRequestHost: req.MaskRequestHost, Workspace: workspace,
		Engine: info.Name, Boundary: info.Boundary, Enforced: info.Enforces,
		Access: req.Access, PolicyLevel: compiled.Level(), PolicyDigest: compiled.Digest(),
	}}
	if o := template.Origin; o != nil {
		r.Template, r.Origin, r.At = o.Template, o.ID, o.ID
	}
	if req.PrivatePorts {
		r.TrafficToken = ids.NewToken()
	}
	if ttl > 0 {
		r.EndAt = r.StartedAt.Add(ttl)
	}
	return r, template, compiled, nil
}

// lifetime is how long the sandbox may live; zero is without end.
func (s *Service) lifetime(who sandbox.Principal, req sandbox.CreateRequest) (time.Duration, error) {
	switch {
	case req.Forever && req.Timeout != 0:
		return 0, fault.New(fault.Invalid, "timeout_invalid", "a sandbox has a timeout or lives forever, not both")
	case req.Forever:
		return 0, nil
	case req.Timeout == 0:
		return s.settings.DefaultTimeout, nil
	case req.Timeout < 0:
		return 0, fault.New(fault.Invalid, "timeout_invalid", "Timeout must be greater than 0")
	}
	return req.Timeout, s.checkTimeout(who, req.Timeout)
}

func (s *Service) checkTimeout(who sandbox.Principal, d time.Duration) error {
	most := s.settings.MaxTimeout
	if who.Local {
		most = maxLocalTimeout
	}
	if d > most {
		return fault.Newf(fault.Invalid, "timeout_invalid", "Timeout cannot be greater than %d seconds", int64(most/time.Second))
	}
	return nil
}

// checkLocal keeps what reaches into the host, or holds it for good, from
// callers that come over the network.
func checkLocal(who sandbox.Principal, req sandbox.CreateRequest) error {
	if who.OnHost() {
		return nil
	}
	for _, f := range []struct {
		asked bool
		what  string
	}{
		{req.Workspace != "", "a workspace"}, {namesHost(req), "mounts of the host by their paths"}, {len(req.Programs) > 0, "programs of the host"},
		{len(req.Tools) > 0, "programs of the host's version managers"},
		{req.Forever && !who.Local, "a sandbox without end"}, {req.Ephemeral, "an ephemeral sandbox"},
	} {
		if f.asked {
			return fault.Newf(fault.Denied, "local_only", "only a local caller may ask for %s", f.what)
		}
	}
	return nil
}

func checkName(name string) error {
	if name == "" {
		return nil
	}
	if !namePattern.MatchString(name) || idPattern.MatchString(name) {
		return fault.New(fault.Invalid, "name_invalid",
			"a name is 1 to 63 characters of a-z, A-Z, 0-9, _, . and -, begins with a letter or digit and does not look like an ID")
	}
	return nil
}

func checkRequestID(id string) error {
	if id == "" || requestPattern.MatchString(id) {
		return nil
	}
	return fault.New(fault.Invalid, "request_id_invalid", "a request ID is 1 to 64 characters of a-z, A-Z, 0-9, _, . and -")
}

func checkMetadata(m map[string]string) error {
	total := 0
	for k, v := range m {
		total += len(k) + len(v)
		if k == "" || len(k) > maxMetadataKey || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fault.Newf(fault.Invalid, "metadata_invalid",
				"metadata keys are 1 to %d bytes, and keys and values are UTF-8", maxMetadataKey)
		}
	}
	if len(m) > maxMetadata || total > maxMetadataBytes {
		return fault.Newf(fault.Invalid, "metadata_too_large",
			"metadata has at most %d keys and %d bytes", maxMetadata, maxMetadataBytes)
	}
	return nil
}

func checkEnv(env map[string]string) error {
	total := 0
	for k, v := range env {
		total += len(k) + len(v) + 2
		if !envPattern.MatchString(k) || strings.ContainsRune(v, 0) || !utf8.ValidString(k) || len(v) > maxEnvString {
			return fault.Newf(fault.Invalid, "env_invalid",
				"environment names are 1 to 256 characters without = and control characters, and values at most %d bytes without NUL",
				maxEnvString)
		}
	}
	if len(env) > maxEnv || total > maxEnvBytes {
		return fault.Newf(fault.Invalid, "env_too_large",
			"the environment has at most %d names and %d bytes", maxEnv, maxEnvBytes)
	}
	return nil
}

// checkMask keeps line ends and the like out of a header that we will write.
func checkMask(host string) error {
	if host != "" && !hostPattern.MatchString(host) {
		return fault.New(fault.Invalid, "mask_request_host_invalid",
			"maskRequestHost is a host name in ASCII of at most 255 characters, with an optional port")
	}
	return nil
}
