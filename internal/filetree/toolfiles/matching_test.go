package toolfiles

import "testing"

func TestMatching(t *testing.T) {
	match := Matching(append(Credentials(), Suspects()...))
	for name, want := range map[string]bool{
		"home/.cargo/credentials.toml": true, ".cargo/credentials": true, "x.cargo/credentials": false, "credentials": false,
		"a/.SSH/known_hosts": true, ".ssh": true, "a.ssh/x": false, "a/b.kdbx": true, "kdbx": false, ".env.local": true, ".envrc": false,
		"ID_RSA": true, "a/.aws/sso/cache/x.json": true,
	} {
		if got := match(name); got != want {
			t.Errorf("%s: match: got %v", name, got)
		}
	}
	for _, e := range Credentials() {
		kind, text := e.Form()
		switch kind {
		case Dir:
			text += "/x"
		case Suffix:
			text = "x" + text
		case Prefix:
			text += "x"
		}
		if !match("some/where/" + text) {
			t.Errorf("%s is not matched", e.Name)
		}
	}
}
