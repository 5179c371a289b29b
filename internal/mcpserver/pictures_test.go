package mcpserver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog"
)

func newTestSandbox(p *pictures) *agentSandbox {
	d := &Tenant{pictures: p, sandboxes: map[string]*agentSandbox{}, created: map[string]func(){}}
	return &agentSandbox{tenant: d, jobs: map[int]*job{}}
}

func resultEvent(t testing.TB, size int) crannog.Event {
	t.Helper()
	raw, err := json.Marshal(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("p"), size)))
	if err != nil {
		t.Fatal(err)
	}
	return crannog.Event{Type: "result", Result: map[string]json.RawMessage{"png": raw, "text": json.RawMessage(`"<Figure>"`)}}
}

// inMemory counts the bytes that are really stored, and not the counters.
func (p *pictures) inMemory() (n int) {
	for _, k := range p.kept {
		n += len(k.data) + pictureCost
	}
	return n
}

// Code that shows pictures in the background, which no call fetches, does not fill the server's
// memory: neither in one sandbox nor in many.
func TestPicturesAreBounded(t *testing.T) {
	const size = 100 << 10
	p := newPictures()
	p.share, p.total = 20*(size+pictureCost), 50*(size+pictureCost)
	show := func(b *agentSandbox) *job {
		j, err := b.begin("code")
		if err != nil {
			t.Fatal(err)
		}
		for range maxImages + 2 {
			b.keepResult(j, io.Discard, resultEvent(t, size))
		}
		j.finished(0, nil)
		return j
	}
	modest := newTestSandbox(p)
	mine := show(modest)
	greedy := newTestSandbox(p)
	for range 10 {
		b := &agentSandbox{tenant: greedy.tenant, jobs: map[int]*job{}}
		for range 10 {
			show(b)
			if n := p.inMemory(); n > p.total || n != p.cost {
				t.Fatalf("%d bytes are kept, counted as %d", n, p.cost)
			}
			if b.pictureUse.cost > p.share {
				t.Fatalf("%d bytes of a sandbox", b.pictureUse.cost)
			}
		}
	}
	for _, j := range []*job{mine, show(modest)} {
		if images, lost := p.take(j); len(images) != maxImages || lost != 2 {
			t.Errorf("another tenant has lost pictures: %d are left, %d lost", len(images), lost)
		}
	}
	if modest.tenant.pictureUse.cost != 0 || p.cost != p.inMemory() {
		t.Errorf("taken pictures are still counted: %+v", modest.tenant.pictureUse)
	}
}

// A picture is shown once and then dropped, and the number of dropped pictures is reported.
func TestPicturesAreShownOnce(t *testing.T) {
	p := newPictures()
	b := newTestSandbox(p)
	j, err := b.begin("code")
	if err != nil {
		t.Fatal(err)
	}
	for size := range maxImages + 3 {
		b.keepResult(j, io.Discard, resultEvent(t, size+1))
	}
	var c call
	c.showPictures(b, j)
	if len(c.more) != maxImages || !strings.Contains(c.text.String(), "[pictures omitted: 3]") {
		t.Errorf("%d are shown: %s", len(c.more), c.text.String())
	}
	for i, content := range c.more {
		if picture := content.(*mcp.ImageContent); len(picture.Data) != i+1 || picture.MIMEType != "image/png" {
			t.Errorf("at %d there are %d bytes, %s", i, len(picture.Data), picture.MIMEType)
		}
	}
	b.keepResult(j, io.Discard, resultEvent(t, 77))
	c = call{}
	c.showPictures(b, j)
	if len(c.more) != 1 || c.text.Len() > 0 || len(p.kept) != 0 {
		t.Errorf("%d are shown again, %d kept: %s", len(c.more), len(p.kept), c.text.String())
	}
}

// A sandbox that was forgotten has no pictures, and gets no new ones, although its code may still
// run.
func TestPicturesOfForgottenSandboxes(t *testing.T) {
	p := newPictures()
	for name, forget := range map[string]func(b *agentSandbox, j *job){
		"one job":     func(b *agentSandbox, j *job) { b.drop(j) },
		"its sandbox": func(b *agentSandbox, _ *job) { b.tenant.sandboxes["x"] = b; b.tenant.forget("x") },
		"its tenant":  func(b *agentSandbox, _ *job) { b.tenant.sandboxes["x"] = b; _ = b.tenant.Close(t.Context()) },
		"many more":   func(b *agentSandbox, j *job) { j.finished(0, nil); addJobs(t, b, 4*maxJobs+1) },
	} {
		b := newTestSandbox(p)
		j, err := b.begin("code")
		if err != nil {
			t.Fatal(err)
		}
		b.keepResult(j, io.Discard, resultEvent(t, 10))
		if len(p.kept) != 1 {
			t.Fatalf("%s: %d before", name, len(p.kept))
		}
		forget(b, j)
		b.keepResult(j, io.Discard, resultEvent(t, 10))
		if len(p.kept) != 0 || p.cost != 0 || b.pictureUse.cost != 0 || b.tenant.pictureUse.cost != 0 {
			t.Errorf("%s: %d are kept, counted as %d", name, len(p.kept), p.cost)
		}
	}
}

func addJobs(t *testing.T, b *agentSandbox, n int) {
	t.Helper()
	for range n {
		j, err := b.begin("code")
		if err != nil {
			t.Fatal(err)
		}
		j.finished(0, nil)
	}
}

// All output in memory counts. A value of many MiB is not stored.
func TestOutputIsBounded(t *testing.T) {
	b := newTestSandbox(newPictures())
	value, err := json.Marshal(strings.Repeat("x", 4<<20))
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		j, err := b.begin("code")
		if err != nil {
			t.Fatal(err)
		}
		b.keepResult(j, io.MultiWriter(j.combined, j.out), crannog.Event{Result: map[string]json.RawMessage{"text": value}})
		if total, _ := j.combined.size(); total != 4<<20+1 {
			t.Fatalf("%d bytes were printed", total)
		}
		j.finished(0, nil)
	}
	b.trim()
	kept, room := 0, 0
	for _, j := range b.jobs {
		for _, buffer := range []*outputBuffer{j.combined, j.out, j.err} {
			kept += len(buffer.head) + len(buffer.tail)
			room += cap(buffer.head) + cap(buffer.tail)
		}
	}
	if kept > maxKept || room > 2*maxKept {
		t.Errorf("of %d jobs %d bytes are kept, which take %d", len(b.jobs), kept, room)
	}
	for _, size := range []int{1, 9, 10, 11, 25, 1000} {
		small := newOutputBuffer(10)
		writeText(small, "0123456789abcdefghij")
		writeText(small, fmt.Sprintf("%*d", size, 7))
		data, next, _ := small.read(int64(20+size-5), 100)
		if want := ("fghij" + fmt.Sprintf("%*d", size, 7))[size:]; string(data) != want || next != int64(20+size) {
			t.Errorf("%d: %q, want %q; %d", size, data, want, next)
		}
	}
}
