package catalog

import (
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/sandbox"
)

// idLength is the length of an ID. No name may look like one.
const idLength = 20

// parse checks the name of a template.
func parse(text string) (sandbox.Reference, error) {
	ref, err := sandbox.ParseReference(text)
	if err != nil {
		return ref, err
	}
	if strings.HasPrefix(ref.Tag, numbered) {
		return ref, fault.Newf(fault.Invalid, "template_tag_invalid", "the tag %q is reserved for a version number", ref.Tag).WithHint("choose another tag")
	}
	return ref, checkForm(ref.Path())
}

// checkForm checks that no ID can be confused with a name.
func checkForm(path string) error {
	if len(path) == idLength && !strings.ContainsAny(path, "/_-") {
		return fault.Newf(fault.Invalid, "template_name_invalid", "%q has the form of an ID", path).WithHint("choose a name of another length")
	}
	return nil
}

// checkHostName checks that a template with an owner may have a name that a template of the host
// may have too. Those without an owner replace the host's for all callers. If a key could do that,
// the sandboxes of other keys would start from its image.
func checkHostName(path, owner string) error {
	if !isHostName(path) || path == template.CodeInterpreter && owner == "" {
		return nil
	}
	return nameTaken(path)
}

// isHostName reports whether a template of the host has this name.
func isHostName(path string) bool {
	return slices.ContainsFunc(template.Known(), func(known [2]string) bool { return path == known[1] })
}

// nameTaken returns the error for a name that another template has.
func nameTaken(path string) error {
	return fault.Newf(fault.Exists, "template_name_taken", "another template is named %q", path).WithHint("choose another name")
}

// Limits of the settings of a version: variables, bytes of a text, and words of a command.
const (
	maxEnv     = 256
	maxText    = 64 << 10
	maxCommand = 256
)

// check returns an error for settings that no sandbox could have.
func (s Settings) check() error {
	if s.Access != nil {
		if err := s.Access.CheckTemplate(); err != nil {
			return err
		}
	}
	if s.Dir != "" && !strings.HasPrefix(s.Dir, "/") {
		return invalid("the working directory %.100q is not an absolute path", s.Dir)
	}
	if len(s.Env) > maxEnv {
		return invalid("it sets %d variables, above the limit of %d", len(s.Env), maxEnv)
	}
	for name, value := range s.Env {
		if name == "" || strings.ContainsAny(name, "=\x00\n") || strings.Contains(value, "\x00") || len(name)+len(value) > maxText {
			return invalid("the variable %.100q cannot be set", name)
		}
	}
	if strings.ContainsAny(s.User, "\x00\n ") || strings.Contains(s.Dir, "\x00") {
		return invalid("its user or its working directory contains an invalid character")
	}
	st := s.Start
	if st == nil {
		return nil
	}
	for _, command := range [][]string{st.Command, st.Ready} {
		if len(command) > maxCommand || len(strings.Join(command, "")) > maxText || strings.Contains(strings.Join(command, ""), "\x00") {
			return invalid("a command is too long, or contains a NUL")
		}
	}
	switch {
	case len(st.Command) == 0 || st.Command[0] == "":
		return invalid("a ready command needs a start command")
	case len(st.Ready) > 0 && st.Ready[0] == "":
		return invalid("the ready command names no program")
	case st.Timeout < 0 || st.Timeout > sandbox.MaxReadyTimeout:
		return invalid("its ready timeout is %s, and the limit is %s", st.Timeout, sandbox.MaxReadyTimeout)
	}
	return nil
}

// invalid returns the error for invalid settings.
func invalid(format string, args ...any) error {
	return fault.Newf(fault.Invalid, "template_invalid", "the template cannot be created: "+format, args...)
}

// namesHost reports whether the policy binds files or variables of the host. A caller who starts a
// sandbox of the template is not asked about them, so an attacker with a key could have them sent
// to a host of the attacker's choice.
func (s Settings) namesHost() bool {
	if s.Access == nil {
		return false
	}
	for _, d := range s.Access.Documents {
		for _, b := range d.Secrets.Bind {
			if b.From != "" {
				return true
			}
		}
	}
	return false
}
