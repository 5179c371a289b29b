package lifecycle

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/pattern"
	"github.com/crannog/crannog/internal/sandbox"
)

// Limits of what a caller may attach. Metadata is for labels; the environment has to fit into what
// the kernel passes to a new process (2 MiB with argv, 128 KiB for one string).
const (
	maxMetadata      = 64
	maxMetadataKey   = 256
	maxMetadataBytes = 64 << 10
	maxEnv           = 1024
	maxEnvString     = 100 << 10
	maxEnvBytes      = 1 << 20
	maxLocalTimeout  = 366 * 24 * time.Hour
)

// limited is a regular expression with a maximum length. The length is counted separately: with a
// repetition limit inside, the compiled expression has a copy of its characters for each repetition.
type limited struct {
	expression pattern.Pattern
	limit      int
}

func (p limited) MatchString(s string) bool {
	return utf8.RuneCountInString(s) <= p.limit && p.expression.MatchString(s)
}

var (
	namePattern    = limited{pattern.New(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`), 63}
	requestPattern = limited{pattern.New(`^[a-zA-Z0-9_.-]+$`), 64}
	envPattern     = limited{pattern.New(`^[^=\x00-\x1f\x7f]+$`), 256}
	hostPattern    = limited{pattern.New(`^[a-zA-Z0-9$\[][a-zA-Z0-9._:${}\[\]-]*$`), 255}
)

// checkLocal refuses requests of callers over the network that use the host's files or occupy its
// resources without an end.
func checkLocal(caller sandbox.Principal, req sandbox.CreateRequest) error {
	if caller.OnHost() {
		return nil
	}
	for _, f := range []struct {
		asked bool
		what  string
	}{
		{req.Workspace != "", "a workspace"}, {namesHost(req), "mounts of the host by their paths"}, {len(req.Programs) > 0, "programs of the host"},
		{len(req.Tools) > 0, "programs of the host's version managers"},
		{req.Forever && !caller.Local, "a sandbox without end"}, {req.Ephemeral, "an ephemeral sandbox"},
	} {
		if f.asked {
			return fault.Newf(fault.Denied, "local_only", "only a local caller may request %s", f.what)
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

// checkMaskRequestHost rejects line ends and other characters that must not appear in an HTTP
// header.
func checkMaskRequestHost(host string) error {
	if host != "" && !hostPattern.MatchString(host) {
		return fault.New(fault.Invalid, "mask_request_host_invalid",
			"maskRequestHost is a host name in ASCII of at most 255 characters, with an optional port")
	}
	return nil
}
