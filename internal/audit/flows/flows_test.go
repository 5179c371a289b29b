package flows

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func write(t *testing.T, f *os.File, effect egress.Effect, seq uint64) {
	t.Helper()
	line, err := json.Marshal(egress.Record{Seq: seq, Decision: egress.Decision{Effect: effect}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
}

func TestReadFiltersAndKeepsOrder(t *testing.T) {
	d := New(filepath.Join(t.TempDir(), "net"))
	f, err := d.Create("box1")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i, e := range []egress.Effect{egress.Allow, egress.Deny, egress.Allow, egress.Deny} {
		write(t, f, e, uint64(i+1))
	}
	for _, c := range []struct {
		filter Filter
		want   []uint64
	}{{Filter{}, []uint64{1, 2, 3, 4}}, {Filter{Denied: true}, []uint64{2, 4}}, {Filter{After: 3}, []uint64{4}}} {
		var got []uint64
		err := d.Read(t.Context(), "box1", c.filter, false, func(r egress.Record) error { got = append(got, r.Seq); return nil })
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("Read with filter %+v: got %v, %v, want %v", c.filter, got, err, c.want)
		}
	}
	if list, err := d.List(); err != nil || !slices.Equal(list, []string{"box1"}) {
		t.Errorf("List: got %v, %v, want box1", list, err)
	}
}

func TestFollowEndsWhenFileIsRemoved(t *testing.T) {
	d := New(t.TempDir())
	f, err := d.Create("box1")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, done := make(chan uint64), make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	go func() {
		done <- d.Read(ctx, "box1", Filter{}, true, func(r egress.Record) error { got <- r.Seq; return nil })
	}()
	write(t, f, egress.Allow, 1)
	if seq := <-got; seq != 1 {
		t.Fatalf("first followed flow: got number %d, want 1", seq)
	}
	if _, err := f.WriteString(`{"seq":2,`); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("\"kind\":\"http\"}\n"); err != nil {
		t.Fatal(err)
	}
	if seq := <-got; seq != 2 {
		t.Fatalf("second followed flow: got number %d, want 2", seq)
	}
	if err := d.Remove("box1"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("following a removed file: %v", err)
	}
}

func TestFollowEndsWithContext(t *testing.T) {
	d := New(t.TempDir())
	f, err := d.Create("box1")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = d.Read(ctx, "box1", Filter{}, true, func(egress.Record) error { return nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Read after cancel: got %v, want Canceled", err)
	}
}

func TestCreateRejectsInvalidID(t *testing.T) {
	d := New(t.TempDir())
	for _, id := range []string{"", "..", "a/b", "A", "box\x00"} {
		if _, err := d.Create(id); fault.KindOf(err) != fault.Invalid {
			t.Errorf("Create with the ID %q: got %v, want Invalid", id, err)
		}
	}
}

func TestReadFromPosition(t *testing.T) {
	d := New(filepath.Join(t.TempDir(), "net"))
	if d.Size("box1") != 0 {
		t.Error("Size of a missing file is not 0")
	}
	f, err := d.Create("box1")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read := func(filter Filter, want ...uint64) {
		t.Helper()
		var got []uint64
		err := d.Read(t.Context(), "box1", filter, false, func(r egress.Record) error { got = append(got, r.Seq); return nil })
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("Read with filter %+v: got %v, %v, want %v", filter, got, err, want)
		}
	}
	read(Filter{Newest: true})
	write(t, f, egress.Deny, 1)
	read(Filter{Newest: true}, 1)
	begin := d.Size("box1")
	read(Filter{From: begin})
	for seq := range uint64(200) {
		write(t, f, egress.Deny, seq+2)
	}
	read(Filter{From: begin, After: 200}, 201)
	read(Filter{Newest: true}, 201)
	// A partial line for which the disk had no space is completed later.
	if _, err := f.WriteString(`{"seq":`); err != nil {
		t.Fatal(err)
	}
	read(Filter{Newest: true}, 201)
	insideLine := d.Size("box1")
	if _, err := f.WriteString("202}\n"); err != nil {
		t.Fatal(err)
	}
	write(t, f, egress.Deny, 203)
	read(Filter{From: insideLine}, 203)
	read(Filter{Newest: true}, 203)
}

func TestLongFileIsReadFromTheRequestedPosition(t *testing.T) {
	d := New(filepath.Join(t.TempDir(), "net"))
	f, err := d.Create("box1")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const limit = 4000
	var all bytes.Buffer
	for seq := range uint64(limit) {
		// Some lines are long, so that the bisection lands within them.
		path := strings.Repeat("a", int(seq%7)*50)
		if seq%1000 == 0 {
			path = strings.Repeat("a", 150_000)
		}
		if err := json.NewEncoder(&all).Encode(egress.Record{Seq: 2 * (seq + 1), Path: path}); err != nil {
			t.Fatal(err)
		}
	}
	all.WriteString(`{"seq":`) // incomplete, because the disk had no space
	if _, err := f.Write(all.Bytes()); err != nil {
		t.Fatal(err)
	}
	for _, after := range []uint64{0, 1, 2, 3, 999, 2000, 2001, 2002, 2003, 4001, 2*limit - 2, 2*limit - 1, 2 * limit, 3 * limit} {
		n, first := uint64(0), uint64(0)
		err := d.Read(t.Context(), "box1", Filter{After: after}, false, func(r egress.Record) error {
			if n++; n == 1 {
				first = r.Seq
			}
			return nil
		})
		if want := limit - min(after/2, limit); err != nil || n != want || n > 0 && first != after/2*2+2 {
			t.Errorf("flows after %d: got %d from %d on, %v, want %d", after, n, first, err, want)
		}
	}
	if at, err := offsetBefore(f, 2*limit, 0); err != nil || int64(all.Len())-at > 2*near {
		t.Errorf("offsetBefore the last flow ends %d bytes before the end of the file, %v", int64(all.Len())-at, err)
	}
}
