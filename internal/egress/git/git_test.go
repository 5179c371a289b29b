package git_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/git"
	"github.com/crannog/crannog/internal/fault"
)

var (
	zero  = strings.Repeat("0", 40)
	one   = strings.Repeat("1", 40)
	two   = strings.Repeat("2", 40)
	caps  = "\x00 report-status side-band-64k agent=git/2"
	flush = "0000"
)

func pkt(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

func command(ref, before, after string) git.Command {
	return git.Command{Ref: ref, Old: before, New: after}
}

func TestParseReadsCommands(t *testing.T) {
	body := pkt("shallow "+two) + pkt(one+" "+two+" refs/heads/a"+caps) + pkt(zero+" "+one+" refs/heads/b\n") + pkt(one+" "+zero+" refs/tags/c") + flush + "PACK\x00\x01"
	r, err := git.Parse(strings.NewReader(body), "")
	if err != nil {
		t.Fatal(err)
	}
	want := []git.Command{command("refs/heads/a", one, two), command("refs/heads/b", zero, one), command("refs/tags/c", one, zero)}
	if !slices.Equal(r.Commands, want) || !slices.Equal(r.Shallow, []string{two}) || !slices.Contains(r.Capabilities, "side-band-64k") {
		t.Errorf("Parse returned %+v, want the commands %+v", r, want)
	}
	for i, c := range r.Commands {
		if c.MayForce() != (i == 0) || c.Creates() != (i == 1) || c.Deletes() != (i == 2) {
			t.Errorf("command %d: %+v creates, deletes or may force unexpectedly", i, c)
		}
	}
	if again, err := io.ReadAll(r.Body); string(again) != body || err != nil {
		t.Errorf("the replayed body is %q, %v, want the complete body", again, err)
	}
}

func TestParseReadsSHA256IDsAndOptions(t *testing.T) {
	oldID, newID := strings.Repeat("a", 64), strings.Repeat("b", 64)
	body := pkt(oldID+" "+newID+" refs/heads/a\x00report-status push-options object-format=sha256") + flush + pkt("ci.skip") + pkt("merge\n") + flush + "PACK"
	r, err := git.Parse(strings.NewReader(body), "identity")
	if err != nil || len(r.Commands) != 1 || !slices.Equal(r.Options, []string{"ci.skip", "merge"}) {
		t.Fatalf("Parse returned %+v, %v, want one command and two options", r, err)
	}
}

func TestParseAcceptsEmptyProbe(t *testing.T) {
	r, err := git.Parse(strings.NewReader(flush), "")
	if err != nil || !r.Probe() {
		t.Fatalf("Parse returned %+v, %v, want a probe", r, err)
	}
	if b, _ := io.ReadAll(r.Body); string(b) != flush {
		t.Errorf("the replayed body is %q, want a flush", b)
	}
	hidden := flush + pkt(zero+" "+one+" refs/heads/main"+caps) + flush
	if r, err := git.Parse(strings.NewReader(hidden), ""); err == nil {
		t.Errorf("Parse accepted commands after a probe: %+v", r)
	}
}

func TestParseDecompresses(t *testing.T) {
	body := pkt(zero+" "+one+" refs/heads/a"+caps) + flush + "PACK"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(body))
	_ = z.Close()
	r, err := git.Parse(bytes.NewReader(packed.Bytes()), " X-GZIP ")
	if err != nil || !r.Decoded || len(r.Commands) != 1 {
		t.Fatalf("Parse returned %+v, %v, want one command, decompressed", r, err)
	}
	if b, _ := io.ReadAll(r.Body); string(b) != body {
		t.Errorf("the replayed body is %q, want the decompressed body", b)
	}
	// A truncated body must not look complete to the code that forwards it.
	r, err = git.Parse(bytes.NewReader(packed.Bytes()[:packed.Len()-4]), "gzip")
	if err == nil {
		_, err = io.ReadAll(r.Body)
	}
	if err == nil {
		t.Error("a truncated body was read without an error")
	}
	for _, encoding := range []string{"gzip", "br", "deflate", "gzip, gzip", "zstd"} {
		if r, err := git.Parse(strings.NewReader(body), encoding); err == nil {
			t.Errorf("Parse accepted plain text as %s: %+v", encoding, r)
		}
	}
}

// A push that a server could interpret differently is rejected.
func TestParseRejectsAmbiguousPushes(t *testing.T) {
	good := zero + " " + one + " refs/heads/a"
	for name, body := range map[string]string{
		"empty":            "",
		"no flush":         pkt(good + caps),
		"cut line":         pkt(good + caps)[:30],
		"cut length":       pkt(good+caps) + "00",
		"delimiter":        pkt(good+caps) + "0001" + pkt(zero+" "+one+" refs/heads/main") + flush,
		"response end":     pkt(good+caps) + "0002" + flush,
		"length 3":         pkt(good+caps) + "0003" + flush,
		"empty line":       pkt(good+caps) + "0004" + flush,
		"signed length":    "+0a0" + good + flush,
		"length too long":  "fff1" + strings.Repeat("a", 0xfff1-4) + flush,
		"NUL twice":        pkt(good+caps) + pkt(zero+" "+one+" refs/heads/b\x00push-options") + flush,
		"NUL in shallow":   pkt("shallow "+one+"\x00") + pkt(good+caps) + flush,
		"bad shallow":      pkt("shallow x") + pkt(good+caps) + flush,
		"one ref twice":    pkt(good+caps) + pkt(one+" "+two+" refs/heads/a") + flush,
		"certificate":      pkt("push-cert"+caps) + pkt("certificate version 0.1") + pkt("push-cert-end") + flush,
		"no IDs":           pkt("x y refs/heads/a"+caps) + flush,
		"short ID":         pkt("0 1 refs/heads/a"+caps) + flush,
		"mixed IDs":        pkt(zero+" "+strings.Repeat("1", 64)+" refs/heads/a"+caps) + flush,
		"upper-case ID":    pkt(zero+" "+strings.Repeat("A", 40)+" refs/heads/a"+caps) + flush,
		"changes nothing":  pkt(zero+" "+zero+" refs/heads/a"+caps) + flush,
		"no ref":           pkt(zero+" "+one+caps) + flush,
		"HEAD":             pkt(zero+" "+one+" HEAD"+caps) + flush,
		"short ref":        pkt(zero+" "+one+" refs/a"+caps) + flush,
		"dots":             pkt(zero+" "+one+" refs/heads/agent/../main"+caps) + flush,
		"dot segment":      pkt(zero+" "+one+" refs/heads/./main"+caps) + flush,
		"double slash":     pkt(zero+" "+one+" refs/heads//main"+caps) + flush,
		"trailing slash":   pkt(zero+" "+one+" refs/heads/main/"+caps) + flush,
		"space":            pkt(zero+" "+one+" refs/heads/a b"+caps) + flush,
		"line end":         pkt(zero+" "+one+" refs/heads/a\nb"+caps) + flush,
		"two line ends":    pkt(zero+" "+one+" refs/heads/a\n\n") + flush,
		"escape":           pkt(zero+" "+one+" refs/heads/\x1b[31m"+caps) + flush,
		"bidi":             pkt(zero+" "+one+" refs/heads/\u202emain"+caps) + flush,
		"invalid UTF-8":    pkt(zero+" "+one+" refs/heads/\xff"+caps) + flush,
		"lock":             pkt(zero+" "+one+" refs/heads/a.lock"+caps) + flush,
		"glob":             pkt(zero+" "+one+" refs/heads/*"+caps) + flush,
		"at brace":         pkt(zero+" "+one+" refs/heads/a@{1}"+caps) + flush,
		"long ref":         pkt(zero+" "+one+" refs/heads/"+strings.Repeat("a", 1024)+caps) + flush,
		"option":           pkt(good+"\x00push-options") + flush + pkt("a\x1bb") + flush,
		"options cut":      pkt(good+"\x00push-options") + flush,
		"two object lists": pkt(good+caps) + pkt(good+caps) + flush,
	} {
		r, err := git.Parse(strings.NewReader(body), "")
		if err == nil {
			t.Errorf("%s: Parse accepted %+v", name, r)
			continue
		}
		if r == nil || len(r.Commands) != 0 || r.Body != nil || fault.KindOf(err) == fault.Internal {
			t.Errorf("%s: Parse returned %+v, %v, want no commands and a typed error", name, r, err)
		}
		if refusal := r.Refusal(nil, fault.PublicText(err)); len(refusal) == 0 {
			t.Errorf("%s: Refusal is empty", name)
		}
	}
	if _, err := git.Parse(strings.NewReader(pkt(good+caps)+flush), ""); err != nil {
		t.Errorf("control: Parse of a valid push: %v", err)
	}
}

func TestParseLimitsCommands(t *testing.T) {
	var many strings.Builder
	for i := range 1001 {
		many.WriteString(pkt(fmt.Sprintf("%s %s refs/heads/a%d", zero, one, i)))
	}
	if _, err := git.Parse(strings.NewReader(many.String()+flush), ""); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("Parse of 1001 commands: got %v, want Exhausted", err)
	}
	// A sandbox that sends an endless list must not fill the gateway's memory.
	endless := &repeat{text: pkt("shallow " + one)}
	if _, err := git.Parse(endless, ""); fault.KindOf(err) != fault.Exhausted || endless.n > 2<<20 {
		t.Errorf("Parse of an endless list read %d bytes: got %v, want Exhausted", endless.n, err)
	}
	broken := errors.New("the sandbox disconnected")
	if _, err := git.Parse(io.MultiReader(strings.NewReader("00"), failing{broken}), ""); !errors.Is(err, broken) {
		t.Errorf("Parse of a broken body: got %v, want the reader's error", err)
	}
}

type repeat struct {
	text string
	n    int
}

func (r *repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.text[r.n%len(r.text)]
		r.n++
	}
	return len(p), nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestClassifyGitRequests(t *testing.T) {
	const packet = "application/x-git-receive-pack-request"
	for _, c := range []struct {
		method, path, query, kind string
		want                      git.Operation
		repository                string
	}{
		{"POST", "/acme/pay.git/git-receive-pack", "", packet, git.Push, "acme/pay"},
		{"POST", "/acme/pay/git-receive-pack", "", "", git.Push, "acme/pay"},
		{"POST", "/acme/pay.git/git-receive%2Dpack", "", "", git.Push, "acme/pay"},
		{"POST", "/acme/pay.git/GIT-receive-pack/", "", "", git.Push, "acme/pay"},
		{"POST", "/anything", "", " Application/X-Git-Receive-Pack-Request; a=b", git.Push, "anything"},
		{"GET", "/acme/pay.git/info/refs", "service=git-receive-pack", "", git.PushRefs, "acme/pay"},
		{"GET", "/acme/pay.git/info/refs", "service=git%2dreceive-pack", "", git.PushRefs, "acme/pay"},
		{"GET", "/acme/pay.git/info/refs", "service=git-upload-pack&service=git-receive-pack", "", git.PushRefs, "acme/pay"},
		{"GET", "/acme/pay.git/info/refs", "service=git-upload-pack", "", git.FetchRefs, "acme/pay"},
		{"GET", "/acme/pay.git/info/refs", "", "", git.FetchRefs, "acme/pay"},
		{"POST", "/acme/pay.git/git-upload-pack", "", "", git.Fetch, "acme/pay"},
		{"GET", "/acme/pay", "", "", git.None, ""},
		{"GET", "/acme/git-receive-pack.txt", "", "", git.None, ""},
	} {
		if got, repository := git.Classify(c.method, c.path, c.query, c.kind); got != c.want || repository != c.repository {
			t.Errorf("Classify(%s %s?%s) = %q %q, want %q %q", c.method, c.path, c.query, got, repository, c.want, c.repository)
		}
	}
}

func TestRefusalFormats(t *testing.T) {
	for capabilities, want := range map[string]string{
		"report-status":               pkt("unpack ok\n") + pkt("ng refs/heads/a no [31m no\n") + flush,
		"":                            pkt("ERR note\n"),
		"side-band-64k":               pkt("\x02note\n") + pkt("\x03note\n") + flush,
		"report-status side-band-64k": pkt("\x02note\n") + pkt("\x01"+pkt("unpack ok\n")+pkt("ng refs/heads/a no [31m no\n")+flush) + flush,
	} {
		r := &git.Request{Commands: []git.Command{command("refs/heads/a", zero, one)}, Capabilities: strings.Fields(capabilities)}
		if got := string(r.Refusal([]string{"no\n\x1b[31m\u202e\tno"}, "note\x07")); got != want {
			t.Errorf("Refusal with the capabilities %q = %q, want %q", capabilities, got, want)
		}
	}
}

// An accepted body is replayed completely, and every command in it is valid in git's own grammar.
func FuzzParse(f *testing.F) {
	f.Add([]byte(flush), false)
	f.Add([]byte(pkt(one+" "+two+" refs/heads/a"+caps)+pkt(zero+" "+one+" refs/tags/b\n")+flush+"PACK"), false)
	f.Add([]byte(pkt("shallow "+one)+pkt(zero+" "+one+" refs/heads/a\x00push-options")+flush+pkt("x")+flush), true)
	f.Add([]byte("0001"), false)
	f.Fuzz(func(t *testing.T, body []byte, packed bool) {
		sent, encoding := body, ""
		if packed {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(body)
			_ = z.Close()
			sent, encoding = b.Bytes(), "gzip"
		}
		r, err := git.Parse(bytes.NewReader(sent), encoding)
		if err != nil {
			_ = r.Refusal(nil, err.Error())
			return
		}
		again, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(again, body) {
			t.Fatalf("%q is replayed as %q, %v", body, again, err)
		}
		end := 0
		for _, c := range r.Commands {
			i := bytes.Index(body[end:], []byte(c.Old+" "+c.New+" "+c.Ref))
			if i < 0 || strings.ContainsAny(c.Ref, "\x00\n ") || !strings.HasPrefix(c.Ref, "refs/") || strings.Contains(c.Ref, "..") {
				t.Fatalf("Parse returned the command %+v, which is not in %q or not valid", c, body)
			}
			end += i + 1
		}
		if effect, _ := (pushRules{}).decideRequest(r); effect != egress.Deny && !r.Probe() {
			t.Fatalf("without rules, %+v is not denied", r.Commands)
		}
	})
}
