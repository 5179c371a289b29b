package crannog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/provenance"
)

// multipartBody returns the content type and the body of a response with the given parts.
func multipartBody(t *testing.T, kinds []string, texts []string, length string) (string, []byte) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i, text := range texts {
		h := textproto.MIMEHeader{"Content-Type": {kinds[i]}}
		if i == 1 {
			h.Set("Content-Length", length)
		}
		p, err := w.CreatePart(h)
		if err != nil {
			t.Fatal(err)
		}
		p.Write([]byte(text))
	}
	w.Close()
	return "multipart/mixed; boundary=" + w.Boundary(), b.Bytes()
}

// P41: ExportOf returns an export together with its envelope, or an error. An earlier server, which
// signs nothing, is an error.
func TestSignedExportFailsWhenIncomplete(t *testing.T) {
	both := []string{provenance.EnvelopeType, "application/x-tar"}
	for name, c := range map[string]struct {
		kinds, texts []string
		length       string
		truncate     int // bytes missing at the end
		kind         string
		ok           bool
	}{
		"complete":           {both, []string{"envelope", "the file"}, "8", 0, "", true},
		"a truncated end":    {both, []string{"envelope", "the file"}, "8", 5, "", false},
		"a truncated file":   {both, []string{"envelope", "the file"}, "8", 75, "", false},
		"another length":     {both, []string{"envelope", "the file"}, "9", 0, "", false},
		"no length":          {both, []string{"envelope", "the file"}, "", 0, "", false},
		"a third part":       {append(both[:2:2], "x/y"), []string{"envelope", "the file", "x"}, "8", 0, "", false},
		"no file":            {both, []string{"envelope"}, "", 0, "", false},
		"the file first":     {[]string{both[1], both[0]}, []string{"the file", "envelope"}, "8", 0, "", false},
		"an earlier version": {both, []string{"envelope", "the file"}, "8", 0, "application/x-tar", false},
	} {
		kind, body := multipartBody(t, c.kinds, c.texts, c.length)
		body = body[:len(body)-c.truncate]
		if c.kind != "" {
			kind = c.kind
		}
		client, requests := newRecordingServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			w.Write(body)
		})
		var file, envelope bytes.Buffer
		err := client.ExportOf(t.Context(), "i1", ExportOptions{Format: "tar", Provenance: &envelope}, &file)
		if (err == nil) != c.ok {
			t.Errorf("%s: ExportOf: error %v", name, err)
		}
		if c.ok && (file.String() != "the file" || envelope.String() != "envelope") {
			t.Errorf("%s: got file %q, envelope %q", name, file.String(), envelope.String())
		}
		if q := (*requests)[0].URL.Query(); q.Get("provenance") != "true" {
			t.Errorf("%s: got query %v, want provenance=true", name, q)
		}
	}
}

// newEnvelope returns a signed envelope about a file, with a tree head of a new audit log, and the
// keys of both signers.
func newEnvelope(t *testing.T, text string, edit func(*provenance.Release)) (envelope []byte, key, recordKey string) {
	t.Helper()
	dir := t.TempDir()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "record"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Append(t.Context(), audit.Draft{Kind: audit.Exported, Sandbox: "i1"}); err != nil {
		t.Fatal(err)
	}
	point, err := l.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if recordKey, err = audit.ReadKey(filepath.Join(dir, "record")); err != nil || recordKey != l.Key() {
		t.Fatalf("ReadKey: got %q, error %v", recordKey, err)
	}
	r := provenance.Release{
		Artifact: sha(text), External: provenance.External{Policy: "sha256:p", Out: "tar", Dir: "/workspace"},
		Run: provenance.Run{ID: "i1", Record: provenance.Checkpoint(point)},
	}
	if edit != nil {
		edit(&r)
	}
	st, err := r.Statement()
	if err != nil {
		t.Fatal(err)
	}
	s, err := provenance.NewKeys(filepath.Join(dir, "provenance")).Signer()
	if err != nil {
		t.Fatal(err)
	}
	if envelope, err = s.Sign(st); err != nil {
		t.Fatal(err)
	}
	return envelope, s.Public.PEM(), recordKey
}

// P41: the verifier chooses the trusted keys, of the statement and of its audit log. A signature of
// another key is a finding, and a key that cannot be parsed is an error.
func TestVerifyArtifact(t *testing.T) {
	envelope, key, recordKey := newEnvelope(t, "the tar", nil)
	other, otherKey, otherRecord := newEnvelope(t, "the tar", nil)
	lies, liesKey, liesRecord := newEnvelope(t, "the tar", func(r *provenance.Release) { r.Run.Record.Size = 100 })
	unsigned, unsignedKey, unsignedRecord := newEnvelope(t, "the tar", func(r *provenance.Release) { r.Run.Record.Note = "crannog/1\n1\nx\n" })
	for name, c := range map[string]struct {
		check ArtifactCheck
		file  string
		want  string
	}{
		"valid":                    {ArtifactCheck{Envelope: envelope, Key: key, RecordKey: recordKey, Policy: "sha256:p"}, "the tar", ""},
		"without the record's key": {ArtifactCheck{Envelope: envelope, Key: key}, "the tar", ""},
		"another file":             {ArtifactCheck{Envelope: envelope, Key: key, RecordKey: recordKey}, "the tax", "artifact"},
		"another policy":           {ArtifactCheck{Envelope: envelope, Key: key, Policy: "sha256:q"}, "the tar", "policy"},
		"another key":              {ArtifactCheck{Envelope: envelope, Key: otherKey}, "the tar", "key"},
		"another envelope":         {ArtifactCheck{Envelope: other, Key: key}, "the tar", "key"},
		"another record":           {ArtifactCheck{Envelope: envelope, Key: key, RecordKey: otherRecord}, "the tar", "record"},
		"another size":             {ArtifactCheck{Envelope: lies, Key: liesKey, RecordKey: liesRecord}, "the tar", "record"},
		"no signed checkpoint":     {ArtifactCheck{Envelope: unsigned, Key: unsignedKey, RecordKey: unsignedRecord}, "the tar", "record"},
	} {
		c.check.File = strings.NewReader(c.file)
		v, err := VerifyArtifact(c.check)
		if err != nil {
			t.Fatalf("%s: VerifyArtifact: error %v", name, err)
		}
		switch {
		case c.want == "" && (!v.OK || v.Subject != "export.tar" || !json.Valid(v.Statement) || v.SHA256 != sha("the tar")):
			t.Errorf("%s: VerifyArtifact: got %+v", name, v)
		case c.want != "" && (v.OK || len(v.Findings) != 1 || v.Findings[0].Fault != c.want || v.Findings[0].Text == "" || v.Subject != ""):
			t.Errorf("%s: VerifyArtifact: got %+v", name, v)
		}
	}
	for name, check := range map[string]ArtifactCheck{
		"no key":             {Envelope: envelope, File: strings.NewReader("the tar")},
		"no key of a record": {Envelope: envelope, Key: key, RecordKey: "x", File: strings.NewReader("the tar")},
		"no file":            {Envelope: envelope, Key: key, File: failingReader{}},
	} {
		if v, err := VerifyArtifact(check); err == nil {
			t.Errorf("%s: VerifyArtifact: got %+v", name, v)
		}
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// The key is the same at every request, including the first one.
func TestProvenanceKey(t *testing.T) {
	c := newStack(t)
	key, err := c.ProvenanceKey(t.Context())
	if err != nil || !strings.HasPrefix(key.ID, "sha256:") {
		t.Fatalf("ProvenanceKey: got %+v, error %v", key, err)
	}
	if again, err := c.ProvenanceKey(t.Context()); err != nil || again != key {
		t.Errorf("ProvenanceKey: got %+v, error %v", again, err)
	}
	if _, err := provenance.ParseKey([]byte(key.Key)); err != nil {
		t.Error(err)
	}
}

func sha(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}
