package secrets_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/fault"
)

func TestResolveReadsEachSource(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(canary + "\n")
	vars := map[string]string{"TOKEN": canary, "SHORT": "short"}
	line := "/bin/cat " + path
	f := open(t, t.TempDir(), secrets.Options{Getenv: func(n string) string { return vars[n] }, Exec: []string{line, "/bin/false", "/bin/cat /nonexistent", "cat x"}})
	for _, ref := range []string{"file:" + path, "env:TOKEN", "exec:" + line} {
		if r := f.value(t, local, ref); r.Value.Reveal() != canary || r.Generation == 0 {
			t.Errorf("%s: got %d bytes of generation %d, want the value", ref, len(r.Value.Reveal()), r.Generation)
		}
		// Otherwise a key's owner could read with the server's rights.
		_, err := f.Resolve(t.Context(), alice, ref)
		wantFault(t, err, fault.Denied, "local_only")
	}
	for ref, code := range map[string]string{
		"file:token": "secret_ref_invalid", "file:" + dir: "secret_ref_invalid", "file:" + dir + "/../x": "secret_ref_invalid",
		"file:" + dir + "/none": "secret_file_unreadable", "env:": "secret_ref_invalid", "env:NONE": "secret_env_missing", "env:SHORT": "secret_too_short",
		"exec:/bin/cat": "secret_exec_not_listed", "exec:" + line + " ": "secret_exec_not_listed", "exec:cat x": "secret_exec_not_listed",
		"exec:": "secret_exec_not_listed", "exec:/bin/false": "secret_exec_failed", "exec:/bin/cat /nonexistent": "secret_exec_failed",
		"http:x": "secret_ref_invalid", ":": "secret_ref_invalid", "": "secret_name_invalid", canary + " x": "secret_name_invalid",
	} {
		_, err := f.Resolve(t.Context(), local, ref)
		if err == nil || fault.CodeOf(err) != code {
			t.Errorf("Resolve(%q): got %v, want %s", ref, err, code)
		}
		if err != nil && strings.Contains(err.Error(), canary) {
			t.Errorf("%q: the error shows a value", ref)
		}
	}
	// Threat S6 (docs/reference/threat-model.md): a rotation takes effect at once, and the old
	// value is still redacted.
	before := f.value(t, local, "file:"+path)
	if same := f.value(t, local, "file:"+path); same.Generation != before.Generation {
		t.Error("the generation grows without a rotation")
	}
	write("the second value\r\n")
	after := f.value(t, local, "file:"+path)
	if after.Value.Reveal() != "the second value" || after.Generation <= before.Generation || len(after.Old) != 1 || after.Old[0].Reveal() != canary {
		t.Errorf("after the rotation: generation %d (was %d) and %d old values, want a greater one and 1", after.Generation, before.Generation, len(after.Old))
	}
	write(strings.Repeat("abcdefgh", 5000))
	_, err := f.Resolve(t.Context(), local, "file:"+path)
	wantFault(t, err, fault.Invalid, "secret_too_long")
}

// vaultServer is a Vault server with those parts of two engines that the package uses.
type vaultServer struct {
	mu      sync.Mutex
	version int
	value   string
	seen    []string
	wrapped map[string]string
	status  int
}

func (h *vaultServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, r.Method+" "+r.URL.Path)
	var body map[string]string
	_ = json.NewDecoder(r.Body).Decode(&body)
	answer := func(data any) { _ = json.NewEncoder(w).Encode(map[string]any{"data": data}) }
	switch {
	case h.status != 0:
		w.Header().Set("Location", "https://elsewhere.example/")
		w.WriteHeader(h.status)
		_, _ = w.Write([]byte("you sent " + r.Header.Get("X-Vault-Token") + " for " + canary))
	case r.Header.Get("X-Vault-Token") != "the-token":
		w.WriteHeader(http.StatusForbidden)
	case r.URL.Path == "/v1/kv/data/agents/github":
		answer(map[string]any{"data": map[string]any{"token": h.value, "number": 7}})
	case r.URL.Path == "/v1/transit/encrypt/crannog":
		text := "vault:v" + string(rune('0'+h.version)) + ":" + base64.StdEncoding.EncodeToString([]byte{byte(len(h.wrapped))})
		h.wrapped[text] = body["plaintext"]
		answer(map[string]string{"ciphertext": text})
	case r.URL.Path == "/v1/transit/decrypt/crannog" && h.wrapped[body["ciphertext"]] != "":
		answer(map[string]string{"plaintext": h.wrapped[body["ciphertext"]]})
	case r.URL.Path == "/v1/transit/keys/crannog/rotate":
		h.version++
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func startVaultServer(t *testing.T) (*vaultServer, *httptest.Server, map[string]string) {
	t.Helper()
	h := &vaultServer{version: 1, value: canary, wrapped: map[string]string{}}
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // One test rejects the certificate, which the server would log.
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return h, srv, map[string]string{"VAULT_ADDR": srv.URL, "VAULT_TOKEN": "the-token"}
}

func TestResolveReadsHashiCorpVault(t *testing.T) {
	h, srv, vars := startVaultServer(t)
	env := func(n string) string { return vars[n] }
	f := open(t, t.TempDir(), secrets.Options{Getenv: env, Transport: srv.Client().Transport})
	const ref = "vault:kv/agents/github#token"
	if f.value(t, local, ref).Value.Reveal() != canary {
		t.Fatal("the value of the Vault reference is wrong")
	}
	_, err := f.Resolve(t.Context(), alice, ref)
	wantFault(t, err, fault.Denied, "local_only")
	for bad, code := range map[string]string{
		"vault:kv": "secret_ref_invalid", "vault:kv/a": "secret_ref_invalid", "vault:kv/a#": "secret_ref_invalid", "vault:kv/../sys#x": "secret_ref_invalid",
		"vault:kv/a?x#y": "secret_ref_invalid", "vault:kv//a#y": "secret_ref_invalid", "vault:kv/a%2f#y": "secret_ref_invalid",
		"vault:kv/agents/none#token": "secret_not_found", "vault:kv/agents/github#none": "secret_not_found", "vault:kv/agents/github#number": "secret_not_found",
	} {
		if _, err := f.Resolve(t.Context(), local, bad); fault.CodeOf(err) != code {
			t.Errorf("Resolve(%s): got %v, want %s", bad, err, code)
		}
	}
	// A server's error message may repeat the request's token.
	for status, code := range map[int]string{403: "vault_denied", 500: "vault_failed", 302: "vault_failed", 307: "vault_failed"} {
		h.status = status
		before := len(h.seen)
		_, err := f.Resolve(t.Context(), local, ref)
		if fault.CodeOf(err) != code || strings.Contains(err.Error(), "the-token") || strings.Contains(err.Error(), canary) {
			t.Errorf("status %d: got %v, want %s without the token and the value", status, err, code)
		}
		if len(h.seen) != before+1 {
			t.Errorf("status %d: the server got %d requests, want 1: a redirect was followed with the token", status, len(h.seen)-before)
		}
	}
	h.status = 0
	// The certificate is checked: without the test's CA the token is not sent.
	before := len(h.seen)
	strict := open(t, t.TempDir(), secrets.Options{Getenv: env})
	_, err = strict.Resolve(t.Context(), local, ref)
	wantFault(t, err, fault.Unavailable, "vault_unreachable")
	if len(h.seen) != before {
		t.Error("a server with an untrusted certificate got a request")
	}
	for _, address := range []string{"", "http://vault.example.com", "http://10.0.0.1:8200", "ftp://127.0.0.1", "https://user:pass@127.0.0.1", "https://"} {
		vars["VAULT_ADDR"] = address
		_, err := strict.Resolve(t.Context(), local, ref)
		wantFault(t, err, fault.Invalid, "vault_address_invalid")
	}
}

func TestTransitWrapsKeys(t *testing.T) {
	h, srv, vars := startVaultServer(t)
	remote, err := secrets.NewRemote(func(n string) string { return vars[n] }, srv.Client().Transport)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := secrets.NewTransit(remote, "transit", "crannog")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := open(t, dir, secrets.Options{Keys: keys})
	f.set(t, local, "A", canary)
	f.set(t, local, "B", canary+"2")
	if f.value(t, local, "A").Value.Reveal() != canary || f.value(t, local, "B").Value.Reveal() != canary+"2" {
		t.Fatal("a value whose key Vault wrapped is wrong")
	}
	for _, plain := range h.wrapped {
		if b, err := base64.StdEncoding.DecodeString(plain); err != nil || len(b) != 32 || strings.Contains(string(b), "canary") {
			t.Error("Vault got something other than a data key of 32 bytes")
		}
	}
	if moved, err := f.RotateKey(t.Context(), local); err != nil || moved != 2 {
		t.Errorf("RotateKey: moved %d secrets (%v), want 2", moved, err)
	}
	for c := range h.wrapped { // the operator retires the first version
		if strings.HasPrefix(c, "vault:v1:") {
			delete(h.wrapped, c)
		}
	}
	f.value(t, local, "A")
	if _, err := os.Stat(f.key); err == nil {
		t.Error("a key file was made beside Vault")
	}
	// A server that does not use Vault reports the missing key.
	plain := open(t, dir, secrets.Options{})
	_, err = plain.Resolve(t.Context(), local, "A")
	wantFault(t, err, fault.NotFound, "secrets_key_missing")
	for _, bad := range [][2]string{{"", "k"}, {"transit", ""}, {"transit", "a/b"}, {"..", "k"}, {"transit", "k?x"}} {
		if _, err := secrets.NewTransit(remote, bad[0], bad[1]); fault.CodeOf(err) != "transit_invalid" {
			t.Errorf("NewTransit(%q, %q): got %v, want transit_invalid", bad[0], bad[1], err)
		}
	}
}

// References come from policy documents and requests, so from attackers too.
func FuzzResolve(f *testing.F) {
	for _, ref := range []string{"A", "file:/etc/hostname", "env:X", "vault:a/b#c", "exec:/bin/true", "vault:a/../b#c", "file:/../x", "::", "A\x00"} {
		f.Add(ref)
	}
	fix := open(f, f.TempDir(), secrets.Options{Getenv: func(string) string { return "" }})
	f.Fuzz(func(t *testing.T, ref string) {
		if strings.HasPrefix(ref, "file:") {
			return // it would read this machine's files
		}
		r, err := fix.Resolve(t.Context(), alice, ref)
		if err == nil || r.Value != "" {
			t.Errorf("Resolve(%q) for a caller that is not local: got %v with a value, want an error", ref, err)
		}
		if _, err := fix.Resolve(t.Context(), local, ref); err == nil || fault.KindOf(err) == fault.Internal {
			t.Errorf("Resolve(%q): got %v, want an error that is not internal", ref, err)
		}
	})
}
