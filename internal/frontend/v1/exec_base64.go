package v1

import (
	"encoding/base64"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
)

// CodeNotUTF8 is the code of a request with text that is not UTF-8.
const CodeNotUTF8 = "not_utf8"

// decodeTexts decodes the texts of a command.
func decodeTexts(e *api.Exec) error {
	if e.Encoding == "" {
		return nil
	}
	var failed error
	plain := func(where, text string) string {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil && failed == nil {
			failed = fault.Newf(fault.Invalid, "bad_base64", "%s is not base64", where)
		}
		return string(b)
	}
	cmd := make([]string, len(e.Cmd))
	for i, text := range e.Cmd {
		cmd[i] = plain("cmd", text)
	}
	env := make(map[string]string, len(e.Env))
	for name, text := range e.Env {
		env[name] = plain("env."+name, text)
	}
	e.Cmd, e.Env, e.Stdin, e.Cwd, e.Encoding = cmd, env, plain("stdin", e.Stdin), plain("cwd", e.Cwd), ""
	return failed
}
