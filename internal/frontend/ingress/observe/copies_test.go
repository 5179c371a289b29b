package observe

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/filetree/copytree"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

func copiedTree(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := copytree.NewWriter(&b)
	for _, err := range []error{
		w.Entry(copytree.Entry{Kind: copytree.Dir, Name: "d"}),
		w.Entry(copytree.Entry{Kind: copytree.Dir, Name: "sub"}),
		w.Entry(copytree.Entry{Kind: copytree.File, Name: "a", Size: 5000}), w.Data(4097, []byte("text")), w.End(),
		w.End(),
		w.Entry(copytree.Entry{Kind: copytree.Link, Name: "l", Target: "x"}),
		w.Entry(copytree.Entry{Kind: copytree.File, Name: "big", Size: 1 << 40}), w.Data(1<<39, []byte("y")), w.End(),
		w.End(), w.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// TestF9CopiesAreRecorded checks that each file of a copy has an entry with its hash, in both
// directions. A large hole is hashed as its offset and length.
func TestF9CopiesAreRecorded(t *testing.T) {
	tp, r := newTap(t, nil)
	stream := copiedTree(t)
	plain := make([]byte, 5000)
	copy(plain[4097:], "text")
	sum := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	var holes []byte
	put := func(n ...uint64) {
		for _, n := range n {
			holes = binary.BigEndian.AppendUint64(holes, n)
		}
	}
	put(0, 1<<39)
	holes = append(holes, 'y')
	put(1<<39+1, 1<<39-1)
	for _, direction := range []struct{ method, do string }{{http.MethodGet, actionDownload}, {http.MethodPost, actionUpload}} {
		before := len(r.Entries(audit.Action))
		req := httptest.NewRequest(direction.method, "/copy?path=/home/t", bytes.NewReader(stream))
		req.Header.Set(tokenHeader, "right")
		w := httptest.NewRecorder()
		v, ok := tp.Admit(w, req, Call{Sandbox: "box", Port: guestboot.Port, Token: "right"})
		if !ok || v == nil {
			t.Fatalf("%s was not observed: %d", direction.method, w.Code)
		}
		res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}
		if direction.method == http.MethodGet {
			res.Body = io.NopCloser(bytes.NewReader(stream))
		} else if got, err := io.ReadAll(req.Body); err != nil || !bytes.Equal(got, stream) {
			t.Errorf("the body changed: %v", err)
		}
		if err := v.Answer(res); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(res.Body); err != nil || direction.method == http.MethodGet && !bytes.Equal(got, stream) {
			t.Errorf("the answer changed: %v", err)
		}
		v.Done()
		var got []Moved
		for _, e := range r.Entries(audit.Action)[before:] {
			var m Moved
			if err := json.Unmarshal(e.Data, &m); err != nil {
				t.Fatal(err)
			}
			got = append(got, m)
		}
		want := []Moved{
			{Do: direction.do, Outcome: "ok", Path: "/home/t/sub/a", Bytes: 5000, Sum: sum(plain)},
			{Do: direction.do, Outcome: "ok", Path: "/home/t/big", Bytes: 1 << 40, Sum: sum(holes), Sparse: true},
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %+v, want %+v", direction.method, got, want)
		}
	}
	// Without the token nothing is uploaded, and nothing is observed.
	req := httptest.NewRequest(http.MethodGet, "/copy?path=/", nil)
	req.Header.Set(tokenHeader, "wrong")
	if _, ok := tp.Admit(httptest.NewRecorder(), req, Call{Sandbox: "box", Port: guestboot.Port, Token: "right"}); !ok || req.Header.Get(tokenHeader) != "" {
		t.Error("a wrong token was passed to the guest")
	}
}

// TestCopyFailsWithoutAuditEntry checks that a download fails if the audit log rejects the entry.
func TestCopyFailsWithoutAuditEntry(t *testing.T) {
	tp, r := newTap(t, nil)
	req := httptest.NewRequest(http.MethodGet, "/copy?path=/home/t", nil)
	req.Header.Set(tokenHeader, "right")
	v, _ := tp.Admit(httptest.NewRecorder(), req, Call{Sandbox: "box", Port: guestboot.Port, Token: "right"})
	r.Fail(func(audit.Draft) bool { return true })
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: req, Body: io.NopCloser(bytes.NewReader(copiedTree(t)))}
	if err := v.Answer(res); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the download succeeded without an audit entry")
	}
	_ = res.Body.Close()
}
