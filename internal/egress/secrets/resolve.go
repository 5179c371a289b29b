package secrets

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/fault"
)

const (
	// commandTimeout limits the run time of an exec: command.
	commandTimeout = 10 * time.Second
	// maxSources limits how many references are stored.
	maxSources = 4096
	// maxOldSource is how many earlier values of a source remain redacted.
	maxOldSource = 4
)

// Resolve returns the value of a reference: the name of a secret of the caller or, for local
// callers, file:/path, env:NAME, vault:mount/path#key or exec:command. Values are read each time,
// so that a rotation takes effect with the next call. Errors never contain a value.
func (v *Vault) Resolve(ctx context.Context, caller Caller, ref string) (Resolved, error) {
	if err := caller.check(); err != nil {
		return Resolved{}, err
	}
	scheme, rest, ok := strings.Cut(ref, ":")
	if !ok {
		if err := CheckName(ref); err != nil {
			return Resolved{}, err
		}
		return v.stored(ctx, caller.Owner, ref)
	}
	read, known := map[string]func(context.Context, string) ([]byte, error){
		"file": v.fromFile, "env": v.fromEnv, "vault": v.fromHashiCorp, "exec": v.fromCommand,
	}[scheme]
	if !known {
		return Resolved{}, fault.New(fault.Invalid, "secret_ref_invalid", "a secret comes from a name, file:, env:, vault: or exec:").
			WithHint("crannog secret ls lists names")
	}
	if !caller.Local {
		// Otherwise a key's owner could read with the server's rights: its files, its environment,
		// and everything that its Vault token can read.
		return Resolved{}, localOnly("name a secret by " + scheme + ":")
	}
	value, err := read(ctx, rest)
	if err != nil {
		return Resolved{}, err
	}
	defer clear(value)
	// Tools and editors end their output with a line break.
	value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
	if err := redact.Check(value); err != nil {
		return Resolved{}, err
	}
	return v.remember(ref, value), nil
}

// source is the last known value of a reference.
type source struct {
	value      config.Secret
	generation int64
	old        []config.Secret
}

// remember returns the generation of a value: a new one if the value has changed.
func (v *Vault) remember(ref string, value []byte) Resolved {
	v.mu.Lock()
	defer v.mu.Unlock()
	s, ok := v.sources[ref]
	switch {
	case !ok:
		if len(v.sources) >= maxSources {
			// A forgotten generation only means that a new approval is required.
			clear(v.sources)
		}
		v.next++
		s = &source{value: config.Secret(value), generation: v.next}
		v.sources[ref] = s
	case subtle.ConstantTimeCompare([]byte(s.value.Reveal()), value) != 1:
		v.next++
		s.old = append(s.old, s.value)
		if len(s.old) > maxOldSource {
			s.old = slices.Delete(s.old, 0, 1)
		}
		s.value, s.generation = config.Secret(value), v.next
	}
	return Resolved{Value: s.value, Generation: s.generation, Old: slices.Clone(s.old)}
}

func (v *Vault) fromFile(_ context.Context, path string) ([]byte, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return nil, fault.New(fault.Invalid, "secret_ref_invalid", "file: needs an absolute path").WithHint("for example file:/run/secrets/token")
	}
	// O_NONBLOCK, because a named pipe would otherwise block the caller.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, unreadable(err, path)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fault.Newf(fault.Invalid, "secret_ref_invalid", "%s is not a regular file", path)
	}
	value, err := io.ReadAll(io.LimitReader(f, redact.MaxValue+3))
	if err != nil {
		return nil, unreadable(err, path)
	}
	return value, nil
}

func unreadable(err error, path string) error {
	kind := fault.Unavailable
	if errors.Is(err, os.ErrNotExist) {
		kind = fault.NotFound
	}
	return fault.Wrap(err, kind, "secret_file_unreadable", "the secret's file "+path+" cannot be read").
		WithHint("the server's user must be able to read it")
}

func (v *Vault) fromEnv(_ context.Context, name string) ([]byte, error) {
	if v.Getenv == nil || name == "" || strings.ContainsAny(name, "=\x00") {
		return nil, fault.New(fault.Invalid, "secret_ref_invalid", "env: needs the name of a variable of the server's environment")
	}
	value := v.Getenv(name)
	if value == "" {
		return nil, fault.Newf(fault.NotFound, "secret_env_missing", "the server's environment has no variable %s", name).
			WithHint("set it where the server is started")
	}
	return []byte(value), nil
}

// fromCommand runs a command of the operator's list. It uses no shell. It does not include the
// command's standard error in errors, because that may contain the value.
func (v *Vault) fromCommand(ctx context.Context, line string) ([]byte, error) {
	argv := strings.Fields(line)
	if len(argv) == 0 || !filepath.IsAbs(argv[0]) || !slices.Contains(v.Exec, line) {
		return nil, fault.New(fault.Denied, "secret_exec_not_listed", "exec: runs only the command lines that the operator has listed").
			WithHint("add the line, with the program's absolute path, to secrets_exec in the server's settings")
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var out limited
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout = &out
	// A child process that holds the output open must not block the caller.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		out.forget()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fault.Newf(fault.Unavailable, "secret_exec_failed", "the command %s of a secret ended with %s", argv[0], exit.ProcessState)
		}
		return nil, fault.Wrap(err, fault.Unavailable, "secret_exec_failed", "the command "+argv[0]+" of a secret failed")
	}
	return out.data, nil
}

// limited stores the beginning of the output, a little more than a value may have, so that a value
// that is too long is rejected and not truncated.
type limited struct{ data []byte }

func (l *limited) Write(p []byte) (int, error) {
	if room := redact.MaxValue + 3 - len(l.data); room > 0 {
		l.data = append(l.data, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

func (l *limited) forget() { clear(l.data) }

func localOnly(what string) error {
	return fault.New(fault.Denied, "local_only", "only a caller on the server's own machine may "+what).
		WithHint("set it in the vault: crannog secret set NAME")
}
