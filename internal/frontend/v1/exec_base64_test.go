package v1

import (
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
)

// F10: text in a request that is not UTF-8 gives an error that names it, and is never replaced.
func TestF10WrongTextsAreNamed(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ path, body, want string }{
		{execPath, `{"cmd":["x","a` + "\xff" + `"]}`, "cmd[1] is not UTF-8"},
		{execPath, `{"cmd":["x","\ud800"]}`, "cmd[1] is not UTF-8"},
		{execPath, `{"cmd":["x"],"env":{"A":"` + "\xff" + `"}}`, "env.A is not UTF-8"},
		{"/v1/sandboxes", `{"env":{"A":"` + "\xff" + `"}}`, "env.A is not UTF-8"},
	} {
		code, p := r.call("POST", c.path, c.body, nil)
		if code != http.StatusBadRequest || p.Code != CodeNotUTF8 || !strings.Contains(p.Detail, c.want) {
			t.Errorf("%q: %d %+v", c.body, code, p)
		}
	}
	code, p := r.call("POST", execPath, `{"cmd":["eA=="],"encoding":"base64","cwd":"no base64"}`, nil)
	if code != http.StatusBadRequest || p.Code != "bad_base64" {
		t.Errorf("working directory that is no base64: got %d %+v", code, p)
	}
}

func TestF10TextsInBase64(t *testing.T) {
	b := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	e := api.Exec{Cmd: []string{b("a"), b("\xff")}, Env: map[string]string{"A": b("\xfe")}, Stdin: b("\x80"), Cwd: b("/\xff"), Encoding: "base64"}
	if err := decodeTexts(&e); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(e.Cmd, []string{"a", "\xff"}) || !maps.Equal(e.Env, map[string]string{"A": "\xfe"}) || e.Stdin != "\x80" || e.Cwd != "/\xff" {
		t.Errorf("decoded command: got %+v", e)
	}
	e = api.Exec{Cmd: []string{"eA=="}}
	if err := decodeTexts(&e); err != nil || e.Cmd[0] != "eA==" {
		t.Errorf("command without an encoding: got %v %q", err, e.Cmd)
	}
}
