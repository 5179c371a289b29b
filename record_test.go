package crannog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/sandbox"
)

// newAuditServer starts an API server with an audit log, and returns a client of the server.
func newAuditServer(t *testing.T) (*Client, *audit.Log) {
	t.Helper()
	l, err := audit.Open(audit.Options{Dir: filepath.Join(t.TempDir(), "record"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(v1.New(v1.Deps{
		Audit: l, Log: slog.New(slog.DiscardHandler),
		Auth: func(*http.Request) (sandbox.Principal, error) { return sandbox.Principal{Local: true}, nil },
	}))
	c, err := New(URL(server.URL), Key("k"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		server.Close()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, l
}

// appendEntries appends entries with the numbers from from to to-1 as their data, of two
// alternating kinds.
func appendEntries(t *testing.T, l *audit.Log, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		kind := audit.Exec
		if i%2 == 1 {
			kind = audit.SandboxPaused
		}
		if err := l.Append(t.Context(), audit.Draft{Kind: kind, Sandbox: "box", Data: i}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRecordReadsPagesAndFollows(t *testing.T) {
	c, l := newAuditServer(t)
	var batch []audit.Draft
	for i := range 1200 {
		batch = append(batch, audit.Draft{Kind: audit.Exec, Data: i})
	}
	if err := l.Append(t.Context(), batch...); err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for e, err := range c.Record(t.Context(), RecordOptions{}) {
		if err != nil || e.Seq != n {
			t.Fatalf("Record: entry %d has number %d, error %v", n, e.Seq, err)
		}
		n++
	}
	if n != 1200 {
		t.Errorf("Record: got %d entries, want 1200", n)
	}
	appendEntries(t, l, 0, 4)
	var got []int64
	for e, err := range c.Record(t.Context(), RecordOptions{Kinds: []string{"sandbox"}, From: 2, Since: time.Now().Add(-time.Hour)}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Seq)
	}
	if !slices.Equal(got, []int64{1201, 1203}) {
		t.Errorf("Record of one group: got entries %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got = nil
	var end error
	for e, err := range c.Record(ctx, RecordOptions{Newest: 2, Follow: true}) {
		if end = err; err != nil {
			break
		}
		if got = append(got, e.Seq); len(got) == 2 {
			appendEntries(t, l, 4, 6)
		}
		if len(got) == 4 {
			cancel()
		}
	}
	if !slices.Equal(got, []int64{1202, 1203, 1204, 1205}) || !errors.Is(end, context.Canceled) {
		t.Errorf("Record with Follow: got entries %v, error %v", got, end)
	}
}

func TestAuditLogVerifiesWithoutServer(t *testing.T) {
	c, l := newAuditServer(t)
	appendEntries(t, l, 0, 20)
	older, err := c.Checkpoint(t.Context())
	if err != nil || older.Size != 20 {
		t.Fatalf("Checkpoint: got %+v, error %v", older, err)
	}
	appendEntries(t, l, 20, 30)
	if v, err := c.VerifyRecord(t.Context(), older.Note); err != nil || !v.OK || v.Entries != 30 {
		t.Errorf("VerifyRecord: got %+v, error %v", v, err)
	}
	key, err := c.RecordKey(t.Context())
	if err != nil || key != l.Key() {
		t.Fatalf("RecordKey: got %s, error %v", key, err)
	}
	var file bytes.Buffer
	if err := c.ExportRecord(t.Context(), RecordOptions{From: 3}, &file); err != nil {
		t.Fatal(err)
	}
	if v, err := VerifyRecordFile(bytes.NewReader(file.Bytes()), key, older.Note); err != nil || !v.OK || v.Entries != 27 || v.First != 3 {
		t.Errorf("VerifyRecordFile: got %+v, error %v", v, err)
	}
	forged := bytes.Replace(file.Bytes(), []byte(`"data":7`), []byte(`"data":8`), 1)
	if v, err := VerifyRecordFile(bytes.NewReader(forged), key); err != nil || v.OK || v.Seq != 7 || v.Fault != "changed" {
		t.Errorf("VerifyRecordFile: got %+v, error %v", v, err)
	}
	p, err := c.Proof(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := CheckProof(p); err != nil || e.Seq != 7 || string(e.Data) != "7" {
		t.Errorf("CheckProof: got %+v, error %v", e, err)
	}
	p.Entry = strings.Replace(p.Entry, `"data":7`, `"data":8`, 1)
	if _, err := CheckProof(p); !errors.Is(err, ErrInvalid) || Code(err) != "proof_invalid" {
		t.Errorf("a forged proof: %v", err)
	}
	if _, err := c.Proof(t.Context(), 99); !errors.Is(err, ErrNotFound) {
		t.Errorf("the proof of a missing entry: %v", err)
	}
}

// Anyone who receives a proof can verify it, without a server.
func ExampleCheckProof() {
	var p api.Proof // from Client.Proof, stored as JSON
	if err := json.Unmarshal([]byte(`{"entry":"","seq":0,"hashes":null,"checkpoint":{"size":0,"root":"","note":""},"key":""}`), &p); err != nil {
		panic(err)
	}
	_, err := CheckProof(p)
	fmt.Println(err)
	// Output: the proof has no valid key
}
