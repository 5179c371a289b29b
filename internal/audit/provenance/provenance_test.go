package provenance_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/fault"
)

const policy = "sha256:61cc"

// sum returns the SHA-256 of a text in hexadecimal.
func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

func release() provenance.Release {
	return provenance.Release{
		Artifact: sum("the tar"),
		Files:    []provenance.File{{Path: "dist/app", SHA256: sum("app")}, {Path: "export.tar", SHA256: sum("inner")}},
		Run: provenance.Run{
			ID: "i1", StartedAt: time.Unix(1, 0), EndedAt: time.Unix(2, 0),
			Record: provenance.Checkpoint{Size: 7, Root: "r", Note: "crannog/1\n7\nr\n"}, Version: "v9",
		},
		External:   provenance.External{Template: "base", Policy: policy, Level: "standard", Out: "tar", Dir: "/workspace", Since: "start"},
		Internal:   provenance.Internal{Engine: "gvisor", Changes: "sha256:c"},
		TemplateID: "t", Commit: strings.Repeat("a", 40),
	}
}

// applied returns the same release, applied to a directory instead of written to a file.
func applied() provenance.Release {
	r := release()
	r.Artifact, r.External.Out = "", "apply"
	return r
}

func signer(t testing.TB) *provenance.Signer {
	t.Helper()
	s, err := provenance.NewKeys(filepath.Join(t.TempDir(), "keys")).Signer()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sign(t testing.TB, s *provenance.Signer, r provenance.Release) []byte {
	t.Helper()
	st, err := r.Statement()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Sign(st)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestStatementContent(t *testing.T) {
	s := signer(t)
	st, found := provenance.Verify(sign(t, s, release()), provenance.Check{Key: s.Public, Artifact: sum("the tar"), Path: "/tmp/any.tar", Policy: policy})
	if len(found) != 0 {
		t.Fatalf("Verify: got findings %v, want none", found)
	}
	want, err := release().Statement()
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(st)
	wantJSON, _ := json.Marshal(want)
	if !bytes.Equal(got, wantJSON) {
		t.Errorf("statement: got %s, want %s", got, wantJSON)
	}
	// The names that other verifiers require.
	for _, field := range []string{
		`"_type":"https://in-toto.io/Statement/v1"`, `"predicateType":"https://slsa.dev/provenance/v1"`, `"buildDefinition":{"buildType":"https://`,
		`"subject":[{"name":"export.tar","digest":{"sha256":"` + sum("the tar"), `{"name":"/workspace/dist/app","digest":{"sha256":"` + sum("app"),
		`"invocationId":"i1"`, `"builder":{"id":"urn:crannog:server:1","version":{"crannog":"v9"}}`, `"gitCommit":"aaaa`, `"finishedOn":"1970-01-01T00:00:02Z"`,
	} {
		if !bytes.Contains(got, []byte(field)) {
			t.Errorf("the statement %s does not contain %s", got, field)
		}
	}
	if c, ok := st.Predicate.RunDetails.Checkpoint(); !ok || c != release().Run.Record {
		t.Errorf("Checkpoint: got %+v, %v, want %+v", c, ok, release().Run.Record)
	}
}

// The signed bytes equal the example in the specification of DSSE. Bytes cannot move between type
// and payload.
func TestSignedEncoding(t *testing.T) {
	if got := provenance.PAE("http://example.com/HelloWorld", []byte("hello world")); string(got) != "DSSEv1 29 http://example.com/HelloWorld 11 hello world" {
		t.Errorf("PAE: got %q, want the example of the specification", got)
	}
	if bytes.Equal(provenance.PAE("a b", []byte("c")), provenance.PAE("a", []byte("b c"))) {
		t.Error("two pairs of type and payload have the same encoding")
	}
}

// envelope is an envelope whose parts a test can change.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"`
}

// edited returns an envelope after an edit.
func edited(t *testing.T, data []byte, edit func(*envelope)) []byte {
	t.Helper()
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	edit(&e)
	out, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// payload edits the payload of an envelope.
func payload(t *testing.T, e *envelope, edit func(string) string) {
	t.Helper()
	text, err := base64.StdEncoding.DecodeString(e.Payload)
	if err != nil {
		t.Fatal(err)
	}
	after := edit(string(text))
	if after == string(text) {
		t.Fatal("the edit changes nothing")
	}
	e.Payload = base64.StdEncoding.EncodeToString([]byte(after))
}

// P41: a change of a signed statement is detected and named.
func TestVerifyDetectsChanges(t *testing.T) {
	s, other := signer(t), signer(t)
	good := sign(t, s, release())
	valid := provenance.Check{Key: s.Public, Artifact: sum("the tar"), Path: "/tmp/out.tar", Policy: policy}
	cases := []struct {
		name  string
		want  provenance.Flaw
		data  []byte
		check func(*provenance.Check)
	}{
		{"unchanged", "", good, nil},
		{"encoded again", "", edited(t, good, func(*envelope) {}), nil},
		{"file of the export", "", good, func(c *provenance.Check) { c.Artifact, c.As = sum("app"), "/workspace/dist/app" }},
		{"another artifact", provenance.OtherFile, good, func(c *provenance.Check) { c.Artifact = sum("a tar") }},
		{"another file of the export", provenance.OtherFile, good, func(c *provenance.Check) { c.Artifact, c.As = sum("inner"), "/workspace/dist/app" }},
		// A program inside chose the name and the content of this file.
		{"a file that is called like the artifact", provenance.OtherName, good, func(c *provenance.Check) { c.Artifact, c.Path = sum("inner"), "/tmp/export.tar" }},
		{"file that was not exported", provenance.OtherName, good, func(c *provenance.Check) { c.As = "/workspace/other" }},
		{"another policy", provenance.OtherPolicy, good, func(c *provenance.Check) { c.Policy = "sha256:62cc" }},
		{"another key", provenance.OtherKey, good, func(c *provenance.Check) { c.Key = other.Public }},
		{"another signer", provenance.OtherKey, sign(t, other, release()), nil},
		{"another signer with our key ID", provenance.BadSignature, edited(t, sign(t, other, release()), func(e *envelope) { e.Signatures[0].KeyID = s.Public.ID() }), nil},
		{"no key ID", provenance.OtherKey, edited(t, good, func(e *envelope) { e.Signatures[0].KeyID = "" }), nil},
		{"an edited statement", provenance.BadSignature, edited(t, good, func(e *envelope) {
			payload(t, e, func(p string) string { return strings.Replace(p, sum("the tar"), sum("a tar"), 1) })
		}), nil},
		{"an edited policy", provenance.BadSignature, edited(t, good, func(e *envelope) {
			payload(t, e, func(p string) string { return strings.Replace(p, policy, "sha256:62cc", 1) })
		}), nil},
		{"another payload type", provenance.OtherType, edited(t, good, func(e *envelope) { e.PayloadType = "application/json" }), nil},
		{"a cut signature", provenance.BadSignature, edited(t, good, func(e *envelope) {
			raw, _ := base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
			e.Signatures[0].Sig = base64.StdEncoding.EncodeToString(raw[:63])
		}), nil},
		{"a changed signature", provenance.BadSignature, edited(t, good, func(e *envelope) {
			raw, _ := base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
			raw[0] ^= 1
			e.Signatures[0].Sig = base64.StdEncoding.EncodeToString(raw)
		}), nil},
		{"no signature", provenance.BadCount, edited(t, good, func(e *envelope) { e.Signatures = nil }), nil},
		{"the same signature twice", provenance.BadCount, edited(t, good, func(e *envelope) { e.Signatures = append(e.Signatures, e.Signatures[0]) }), nil},
		{"a second signer", provenance.BadCount, edited(t, good, func(e *envelope) { e.Signatures = append(e.Signatures, signature{"x", e.Signatures[0].Sig}) }), nil},
		{"a cut envelope", provenance.BadEnvelope, good[:len(good)-10], nil},
		{"empty", provenance.BadEnvelope, nil, nil},
		{"data after the envelope", provenance.BadEnvelope, append(bytes.Clone(good), "{}"...), nil},
		{"an unknown field", provenance.BadEnvelope, bytes.Replace(good, []byte(`{"payloadType"`), []byte(`{"x":1,"payloadType"`), 1), nil},
		{"a field twice", provenance.BadEnvelope, bytes.Replace(good, []byte(`{"payloadType"`), []byte(`{"payload":"","payloadType"`), 1), nil},
		{"a field twice in another case", provenance.BadEnvelope, bytes.Replace(good, []byte(`{"payloadType"`), []byte(`{"Payload":"","payloadType"`), 1), nil},
		{"a field twice with a folded letter", provenance.BadEnvelope, bytes.Replace(good, []byte(`{"payloadType"`), []byte(`{"\u017fignatures":[],"payloadType"`), 1), nil},
		{"an array without an end", provenance.BadEnvelope, bytes.Repeat([]byte("["), 1000), nil},
		{"stray bits in base64", provenance.BadEnvelope, edited(t, good, func(e *envelope) {
			sig := e.Signatures[0].Sig // 64 bytes leave four unused bits in the last character
			letters := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
			last := strings.IndexByte(letters, sig[len(sig)-3])
			e.Signatures[0].Sig = sig[:len(sig)-3] + string(letters[last|1]) + "=="
		}), nil},
		{"another base64", provenance.BadEnvelope, edited(t, good, func(e *envelope) { e.Payload += "\n" }), nil},
	}
	for _, c := range cases {
		check := valid
		if c.check != nil {
			c.check(&check)
		}
		st, found := provenance.Verify(c.data, check)
		if c.want == "" {
			if len(found) != 0 {
				t.Errorf("%s: got findings %v, want none", c.name, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Flaw != c.want || found[0].Text == "" {
			t.Errorf("%s: got findings %v, want %s", c.name, found, c.want)
		}
		signed := map[provenance.Flaw]bool{provenance.OtherFile: true, provenance.OtherName: true, provenance.OtherPolicy: true}
		if (st != nil) != signed[c.want] {
			t.Errorf("%s: a statement was returned: %t, want %t", c.name, st != nil, signed[c.want])
		}
	}
	check := valid
	check.Artifact, check.Policy = sum("a tar"), "sha256:62cc"
	if _, found := provenance.Verify(good, check); len(found) != 2 {
		t.Errorf("two differences: got findings %v, want 2", found)
	}
}

// P41: a signature of the same key for another purpose is not accepted as provenance.
func TestVerifyRejectsOtherStatements(t *testing.T) {
	s := signer(t)
	for name, edit := range map[string]func(*provenance.Statement){
		"unchanged":          func(*provenance.Statement) {},
		"another type":       func(st *provenance.Statement) { st.Type += "x" },
		"another predicate":  func(st *provenance.Statement) { st.PredicateType += "x" },
		"another build type": func(st *provenance.Statement) { st.Predicate.BuildDefinition.BuildType += "x" },
		"no policy":          func(st *provenance.Statement) { st.Predicate.BuildDefinition.ExternalParameters.Policy = "" },
		"no subject":         func(st *provenance.Statement) { st.Subject = nil },
		"no digest":          func(st *provenance.Statement) { st.Subject[1].Digest = nil },
		"a short digest":     func(st *provenance.Statement) { st.Subject[1].Digest = &provenance.Digest{SHA256: "00"} },
		"a subject twice":    func(st *provenance.Statement) { st.Subject = append(st.Subject, st.Subject[0]) },
	} {
		st, err := release().Statement()
		if err != nil {
			t.Fatal(err)
		}
		edit(&st)
		data, err := s.Sign(st)
		if err != nil {
			t.Fatal(err)
		}
		_, found := provenance.Verify(data, provenance.Check{Key: s.Public, Artifact: sum("the tar"), Policy: policy})
		if name == "unchanged" {
			if len(found) != 0 {
				t.Errorf("Verify: got findings %v, want none", found)
			}
		} else if len(found) != 1 || found[0].Flaw != provenance.BadStatement {
			t.Errorf("%s: got findings %v, want %s", name, found, provenance.BadStatement)
		}
	}
}

// P41: each applied file must match the subject of its own path.
func TestVerifyMatchesFileByPath(t *testing.T) {
	s := signer(t)
	r := applied()
	r.Files = append(r.Files, provenance.File{Path: "app", SHA256: sum("root app")}, provenance.File{Path: "odd\xff%.txt", SHA256: sum("odd")})
	data := sign(t, s, r)
	for _, c := range []struct {
		path, as, content string
		want              provenance.Flaw
	}{
		{"/home/u/p/dist/app", "", "app", ""},
		{"/home/u/p/app", "", "root app", ""},
		{"/home/u/p/odd\xff%.txt", "", "odd", ""},
		{"/another/name", "/workspace/dist/app", "app", ""},
		{"/home/u/p/dist/app", "", "root app", provenance.OtherName},
		{"/home/u/p/dist/app", "", "evil", provenance.OtherFile},
		{"/home/u/p/notdist/app2", "", "app", provenance.OtherName},
		{"/home/u/p/other", "", "evil", provenance.OtherFile},
		{"/home/u/p/app", "/workspace/dist/app", "root app", provenance.OtherFile},
	} {
		_, found := provenance.Verify(data, provenance.Check{Key: s.Public, Artifact: sum(c.content), Path: c.path, As: c.as})
		if c.want == "" && len(found) != 0 || c.want != "" && (len(found) != 1 || found[0].Flaw != c.want) {
			t.Errorf("file %s as %q with content %q: got findings %v, want %q", c.path, c.as, c.content, found, c.want)
		}
	}
}

func TestSubjectNamesAreUnique(t *testing.T) {
	s := signer(t)
	r := applied()
	r.Files = []provenance.File{{Path: "a\xff", SHA256: sum("1")}, {Path: "a%FF", SHA256: sum("2")}, {Path: "a\xfe", SHA256: sum("3")}, {Path: "a\ufffd", SHA256: sum("4")}}
	if _, found := provenance.Verify(sign(t, s, r), provenance.Check{Key: s.Public, Artifact: sum("2"), As: "/workspace/a%25FF"}); len(found) != 0 {
		t.Errorf("Verify of the file with an escaped name: got findings %v, want none", found)
	}
}

func TestStatementRejectsTooFewOrManyFiles(t *testing.T) {
	r := applied()
	r.Files = nil
	if _, err := r.Statement(); fault.CodeOf(err) != "provenance_empty" {
		t.Error(err)
	}
	r = release()
	r.Files = nil // a patch that only removes files
	if _, err := r.Statement(); err != nil {
		t.Error(err)
	}
	for i := range 100_001 {
		r.Files = append(r.Files, provenance.File{Path: fmt.Sprint(i), SHA256: sum("x")})
	}
	if _, err := r.Statement(); fault.CodeOf(err) != "provenance_too_large" {
		t.Error(err)
	}
}

func TestParseKey(t *testing.T) {
	s := signer(t)
	key, err := provenance.ParseKey([]byte(s.Public.PEM()))
	if err != nil || key.ID() != s.Public.ID() || !strings.HasPrefix(key.ID(), "sha256:") {
		t.Fatalf("ParseKey of the public key: got %v, %v, want the same key", key, err)
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":       "",
		"private":     string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"two":         s.Public.PEM() + s.Public.PEM(),
		"no key":      string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")})),
		"an envelope": string(sign(t, s, release())),
	} {
		if _, err := provenance.ParseKey([]byte(text)); fault.CodeOf(err) != "provenance_key_invalid" {
			t.Errorf("ParseKey of %s: got %v, want provenance_key_invalid", name, err)
		}
	}
}

// FuzzVerify checks that Verify accepts only the signed envelope.
func FuzzVerify(f *testing.F) {
	s := signer(f)
	good := sign(f, s, release())
	check := provenance.Check{Key: s.Public, Artifact: sum("the tar"), Path: "/tmp/out.tar", Policy: policy}
	var e envelope
	if err := json.Unmarshal(good, &e); err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{
		good, good[:len(good)/2], []byte(`{}`), []byte(`{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"keyid":"","sig":""}]}`),
		bytes.Repeat([]byte("["), 100), []byte(`{"a":1,"A":2}`), []byte(`{"payload":"` + e.Payload + `"}`),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		st, found := provenance.Verify(data, check)
		if len(found) > 0 {
			return
		}
		var again envelope
		if err := json.Unmarshal(data, &again); err != nil || st == nil || again.Payload != e.Payload || len(again.Signatures) != 1 ||
			again.Signatures[0] != e.Signatures[0] || again.PayloadType != e.PayloadType {
			t.Errorf("Verify accepted the changed envelope %q", data)
		}
	})
}
