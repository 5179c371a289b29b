package crannog

import (
	"encoding/base64"
	"unicode/utf8"

	"github.com/crannog/crannog/api"
)

// encodeTexts encodes the texts of a command in base64 if one of them is not UTF-8. JSON would
// replace its bytes, so another command than the intended one would run.
func encodeTexts(e api.Exec) api.Exec {
	valid := utf8.ValidString(e.Stdin) && utf8.ValidString(e.Cwd)
	for _, text := range e.Cmd {
		valid = valid && utf8.ValidString(text)
	}
	for _, text := range e.Env {
		valid = valid && utf8.ValidString(text)
	}
	if valid || e.Encoding != "" {
		return e
	}
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	cmd, env := make([]string, len(e.Cmd)), make(map[string]string, len(e.Env))
	for i, text := range e.Cmd {
		cmd[i] = encode(text)
	}
	for name, text := range e.Env {
		env[name] = encode(text)
	}
	e.Cmd, e.Env, e.Stdin, e.Cwd, e.Encoding = cmd, env, encode(e.Stdin), encode(e.Cwd), "base64"
	return e
}
