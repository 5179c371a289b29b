package causeway_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// serveCanary returns the canary in several encodings to every client, like a server that got it
// elsewhere.
func serveCanary(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/raw":
		_, _ = io.WriteString(w, "key "+canary+"\n")
	case "/base64":
		_, _ = io.WriteString(w, base64.StdEncoding.EncodeToString([]byte("xy"+canary+"z"))+"\n")
	case "/hex":
		_, _ = io.WriteString(w, hex.EncodeToString([]byte(canary))+"\n")
	case "/big":
		b := bytes.Repeat([]byte("\n"), 600<<10)
		for _, border := range []int{4 << 10, 32 << 10, 256 << 10, 512 << 10} {
			copy(b[border-len(canary)/2:], canary)
		}
		_, _ = w.Write(b)
	}
}

// containsCanary reports whether a text has the canary, or its second half, in an encoding of
// serveCanary.
func containsCanary(data string) bool {
	b64 := base64.StdEncoding.EncodeToString([]byte("xy" + canary + "z"))
	return slices.ContainsFunc([]string{canary[len(canary)/2:], hex.EncodeToString([]byte(canary)), b64[4 : len(b64)-4]}, func(f string) bool { return strings.Contains(data, f) })
}

// P44: a secret that a program has obtained does not leave its sandbox: not by output, files,
// names, diffs, exports, or retained changes. Control: a sandbox whose policy does not bind the
// secret.
func TestS11SecretDoesNotLeaveSandbox(t *testing.T) {
	need(t)
	t.Parallel()
	a := ownEnvironment(t) // other tests search their state directory for the canary
	a.web(t, 443, serveCanary, "tells.s11.test")
	a.web(t, 443, nil, "api.s11.test")
	a.storeSecret(t, "S11", canary)
	for _, bound := range []bool{true, false} {
		document := strings.Replace(boundPolicy("S11", "api.s11.test"), "hosts: [", `hosts: [{host: tells.s11.test, rules: [{paths: ["/**"], do: allow}]}, `, 1)
		if !bound {
			document, _, _ = strings.Cut(document, "secrets:")
		}
		host := t.TempDir()
		b := a.newSandbox(t, document, crannog.Workspace(host))
		b.must("cd /workspace && for f in raw base64 hex big; do curl -sS -m 300 -o $f https://tells.s11.test/$f; done; cat raw hex > both")
		if got := b.python(canaryParts + "print(leaks(open('/workspace/raw', 'rb').read()), leaks(open('/workspace/big', 'rb').read()))"); got[0] != "True True" {
			t.Fatalf("control: the canary did not get into the sandbox: %q", got)
		}
		exits := map[string]string{}
		var err error
		exits["output"], _ = b.sh("cd /workspace && cat raw base64 hex")
		for _, name := range []string{"raw", "base64", "hex", "big"} {
			data, err := b.FS().WithContext(t.Context()).ReadFile("workspace/" + name)
			if err != nil {
				t.Fatal(err)
			}
			exits["file "+name] = string(data)
		}
		set, err := b.Changes(t.Context(), crannog.ChangesOptions{Text: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, ch := range set.Changes {
			exits["diff of "+ch.Path] = ch.Text
			if ch.Path == "raw" && slices.Contains(ch.Flags, "masked") != bound {
				t.Errorf("secret bound %v: flags %q", bound, ch.Flags)
			}
		}
		for _, format := range []string{"tar", "patch"} {
			var out bytes.Buffer
			redacted := 0
			if err := b.Export(t.Context(), crannog.ExportOptions{Format: format, Masked: &redacted}, &out); err != nil {
				t.Fatal(err)
			}
			if exits[format] = out.String(); redacted != map[bool]int{true: 5}[bound] {
				t.Errorf("secret bound %v: got %d files with redacted secrets", bound, redacted)
			}
		}
		for exit, data := range exits {
			if containsCanary(data) == bound || len(data) == 0 {
				t.Errorf("secret bound %v: %s contains the canary: got %v, in %d bytes", bound, exit, containsCanary(data), len(data))
			}
		}
		if !bound {
			continue
		}
		b.requireNoTraces()
		if _, err := b.KeepChanges(t.Context()); err != nil {
			t.Fatal(err)
		}
		id := b.ID()
		b.end()
		if held := hosttest.Holding(t, filepath.Join(a.state, "changes"), canary); len(held) > 0 {
			t.Errorf("the canary is retained in %q", held)
		}
		done, err := a.client.ApplyOf(t.Context(), id, api.Apply{})
		if err != nil || len(done.Applied) != 5 {
			t.Fatalf("apply the retained changes: got %+v, %v, want 5 files", done, err)
		}
		for _, ch := range done.Applied {
			data, err := os.ReadFile(filepath.Join(host, ch.Path))
			if err != nil || containsCanary(string(data)) || !slices.Contains(ch.Flags, "masked") || int64(len(data)) != ch.Size {
				t.Errorf("the applied change %+v: got %d bytes, %v, want them redacted", ch, len(data), err)
			}
		}
	}
}

// requireNoTraces checks that file names and recordings do not contain the canary.
func (b *testSandbox) requireNoTraces() {
	b.t.Helper()
	ctx := b.t.Context()
	var combined strings.Builder
	b.must("cd /tmp && mkdir names && touch names/$(cut -d' ' -f2 /workspace/raw) names/other")
	entries, err := b.FS().WithContext(ctx).ReadDir("tmp/names")
	if err != nil || len(entries) != 2 {
		b.t.Fatalf("list the named files: got %v, %v, want 2", entries, err)
	}
	for _, e := range entries {
		combined.WriteString(e.Name() + "\n")
	}
	all, err := b.Recordings(ctx)
	if err != nil || len(all) == 0 {
		b.t.Fatalf("list the recordings: got %v, %v, want at least 1", all, err)
	}
	for _, rec := range all {
		r, err := b.Recording(ctx, rec.ID)
		if err != nil {
			b.t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			b.t.Fatal(err)
		}
		r.Close()
		combined.Write(data)
	}
	if containsCanary(combined.String()) || !strings.Contains(combined.String(), "redacted:S11") {
		b.t.Errorf("names and recordings: %.2000s", combined.String())
	}
}
