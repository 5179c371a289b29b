package guestwire

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/gen/filesystempb"
	"github.com/crannog/crannog/internal/guest/gen/processpb"
)

// entries returns a list of n empty entries, as short as the protocol allows.
func entries(n int) []byte { return bytes.Repeat([]byte{0x0a, 0}, n) }

// within puts an entry's content into a list of one.
func within(inner []byte) []byte {
	return append(binary.AppendUvarint([]byte{0x0a}, uint64(len(inner))), inner...)
}

// P45: a hostile guest makes few bytes become much memory. Elements are counted before they are
// decoded.
func TestUnfolding(t *testing.T) {
	b := Bounds{Items: 100, Within: 1000}
	words, args := bytes.Repeat([]byte{0x5a, 0}, 1001), bytes.Repeat([]byte{0x12, 0}, 1001)
	config := append(binary.AppendUvarint([]byte{0x0a}, uint64(len(args))), args...)
	for name, c := range map[string]struct {
		bounds Bounds
		data   []byte
		into   proto.Message
		fits   bool
	}{
		"as many files":          {b, entries(100), &filesystempb.ListDirResponse{}, true},
		"more files":             {b, entries(101), &filesystempb.ListDirResponse{}, false},
		"as many words":          {b, within(words[2:]), &filesystempb.ListDirResponse{}, true},
		"more words":             {b, within(words), &filesystempb.ListDirResponse{}, false},
		"words of several":       {b, slices.Concat(within(words[:1002]), within(words[1000:])), &filesystempb.ListDirResponse{}, false},
		"words of one file":      {b, within(words), &filesystempb.StatResponse{}, false},
		"words that come again":  {b, slices.Concat(within(words[:1002]), within(words[1000:])), &filesystempb.StatResponse{}, false},
		"more programs":          {b, entries(101), &processpb.ListResponse{}, false},
		"more arguments":         {b, within(config), &processpb.ListResponse{}, false},
		"more events":            {b, entries(101), &filesystempb.GetWatcherEventsResponse{}, false},
		"no list where none is":  {Stream, entries(1000), &processpb.StartResponse{}, true},
		"what is not known":      {b, bytes.Repeat([]byte{0x7a, 0}, 10_000), &filesystempb.ListDirResponse{}, true},
		"zero is nothing":        {Bounds{}, entries(1), &filesystempb.ListDirResponse{}, false},
		"cut, but words are not": {Bounds{Items: 1, Cut: true}, within(words), &filesystempb.ListDirResponse{}, false},
	} {
		err := codec{c.bounds}.Unmarshal(c.data, c.into)
		if c.fits && err != nil || !c.fits && fault.KindOf(err) != fault.Exhausted {
			t.Errorf("%s: %v", name, err)
		}
		if len(c.into.ProtoReflect().GetUnknown()) > 0 {
			t.Errorf("%s: what is not known is kept", name)
		}
	}
}

// A list that is longer than the limit is cut.
func TestCut(t *testing.T) {
	var list filesystempb.ListDirResponse
	for i := range 10 {
		list.Entries = append(list.Entries, &filesystempb.EntryInfo{Name: fmt.Sprint(i)})
	}
	data, err := codec{}.Marshal(&list)
	if err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int]int{0: 0, 3: 3, 10: 10, 11: 10} {
		var got filesystempb.ListDirResponse
		if err := (codec{Bounds{Items: limit, Cut: true}}).Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.GetEntries()) != want || want > 0 && got.GetEntries()[want-1].GetName() != fmt.Sprint(want-1) {
			t.Errorf("%d: %v", limit, got.GetEntries())
		}
	}
}

// The count relies on two properties of all answers: no message contains its own type, and no list
// is of numbers, of which many fit into one field.
func TestAnswersCanBeCounted(t *testing.T) {
	var look func(d protoreflect.MessageDescriptor, above []protoreflect.FullName)
	look = func(d protoreflect.MessageDescriptor, above []protoreflect.FullName) {
		if slices.Contains(above, d.FullName()) {
			t.Errorf("%s is within itself", d.FullName())
			return
		}
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			if f.IsPacked() || f.Kind() == protoreflect.GroupKind {
				t.Errorf("%s cannot be counted", f.FullName())
			}
			if f.Message() != nil {
				look(f.Message(), append(slices.Clone(above), d.FullName()))
			}
		}
	}
	for _, file := range []protoreflect.FileDescriptor{filesystempb.File_filesystem_proto, processpb.File_process_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for k := range methods.Len() {
				look(methods.Get(k).Output(), nil)
			}
		}
	}
}

// guest answers each request with the same.
type guest struct {
	status int
	header http.Header
	body   io.Reader
	asked  http.Header
	read   int64
}

func (g *guest) Do(req *http.Request) (*http.Response, error) {
	g.asked = req.Header.Clone()
	h := http.Header{"Content-Type": req.Header["Content-Type"]}
	maps.Copy(h, g.header)
	return &http.Response{
		StatusCode: g.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h,
		Body: struct {
			io.Reader
			io.Closer
		}{io.TeeReader(g.body, g), io.NopCloser(nil)},
	}, nil
}

func (g *guest) Write(p []byte) (int, error) { g.read += int64(len(p)); return len(p), nil }

func list(t *testing.T, g *guest, b Bounds) (*filesystempb.ListDirResponse, error) {
	t.Helper()
	res, err := Filesystem(g, "http://guest", b).ListDir(t.Context(), connect.NewRequest(&filesystempb.ListDirRequest{}))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

func TestBytes(t *testing.T) {
	long := within(append([]byte{0x0a, 0x80, 0x08}, make([]byte, 1024)...))
	for limit, fits := range map[int]bool{len(long): true, len(long) - 1: false, 0: false} {
		_, err := list(t, &guest{status: http.StatusOK, body: bytes.NewReader(long)}, Bounds{Bytes: limit, Items: 1})
		if fits && err != nil || !fits && connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("%d: %v", limit, err)
		}
	}
}

// A compression bomb that arrives in answer to an uncompressed request is not decompressed.
func TestNothingIsUnpacked(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(entries(10)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	g := &guest{status: http.StatusOK, header: http.Header{"Content-Encoding": {"gzip"}}, body: &bomb}
	if got, err := list(t, g, Listing); err == nil {
		t.Errorf("unpacked: %v", got)
	}
	if a := g.asked.Get("Accept-Encoding"); a != "identity" {
		t.Errorf("asked for %q", a)
	}
	piece := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(bomb.Len())), bomb.Bytes()...)
	g = &guest{status: http.StatusOK, header: http.Header{"Connect-Content-Encoding": {"gzip"}}, body: bytes.NewReader(piece)}
	if err := start(t, g); err == nil {
		t.Error("a stream was unpacked")
	}
	if a := g.asked.Get("Connect-Accept-Encoding"); a != "" {
		t.Errorf("a stream was asked for in %q", a)
	}
}

// start reads a stream to its end.
func start(t *testing.T, g *guest) error {
	t.Helper()
	s, err := Process(g, "http://guest", Stream).Start(t.Context(), connect.NewRequest(&processpb.StartRequest{}))
	if err != nil {
		return err
	}
	for s.Receive() {
	}
	return errors.Join(s.Err(), s.Close())
}

func refusal(details int) string {
	return `{"code":"not_found","message":"no such thing","details":[` + strings.Repeat("{},", details) + `{}]}`
}

// A refusal is JSON with a list that has no limit of its own.
func TestLongRefusal(t *testing.T) {
	asJSON := http.Header{"Content-Type": {"application/json"}}
	g := &guest{status: http.StatusNotFound, header: asJSON, body: strings.NewReader(refusal(10))}
	if _, err := list(t, g, Listing); connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("%v", err)
	}
	g = &guest{status: http.StatusConflict, header: asJSON, body: strings.NewReader(refusal(1 << 20))}
	_, err := list(t, g, Listing)
	if c, ok := errors.AsType[*connect.Error](err); !ok || len(c.Details()) > 0 || g.read > 2*maxRefusal {
		t.Errorf("%d bytes were read: %v", g.read, err)
	}
}

// The end of a stream contains a refusal.
func TestLongEndOfStream(t *testing.T) {
	end := func(details int) []byte {
		text := `{"error":` + refusal(details) + `}`
		return append(binary.BigEndian.AppendUint32([]byte{2}, uint32(len(text))), text...)
	}
	// Two events, one unknown and the other empty.
	events := []byte{0, 0, 0, 0, 4, 0x78, 1, 0x78, 1, 0, 0, 0, 0, 0}
	for name, read := range map[string]func(io.Reader) io.Reader{
		"at once":      func(r io.Reader) io.Reader { return r },
		"byte by byte": func(r io.Reader) io.Reader { return drops{r} },
	} {
		g := &guest{status: http.StatusOK, body: read(bytes.NewReader(slices.Concat(events, end(10))))}
		if err := start(t, g); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
		g = &guest{status: http.StatusOK, body: read(bytes.NewReader(slices.Concat(events, end(maxRefusal))))}
		if err := start(t, g); fault.KindOf(err) != fault.Exhausted {
			t.Errorf("%s, long: %v", name, err)
		}
	}
}

// drops reads one byte at a time.
type drops struct{ from io.Reader }

func (d drops) Read(p []byte) (int, error) { return d.from.Read(p[:min(len(p), 1)]) }

// An accepted message is within the limits, and decodes like with the library.
func FuzzUnmarshal(f *testing.F) {
	f.Add(entries(3))
	f.Add(within(bytes.Repeat([]byte{0x5a, 0}, 9)))
	f.Add([]byte{0x0a, 0x80, 0x7a, 0, 0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want filesystempb.ListDirResponse
		err := codec{Bounds{Items: 4, Within: 8}}.Unmarshal(data, &got)
		plain := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &want)
		if fault.KindOf(err) == fault.Exhausted {
			return
		}
		if (err == nil) != (plain == nil) || err == nil && !proto.Equal(&got, &want) {
			t.Errorf("%v, and the library %v", err, plain)
		}
		words := 0
		for _, e := range got.GetEntries() {
			words += len(e.GetMetadata())
		}
		if err == nil && (len(got.GetEntries()) > 4 || words > 8) {
			t.Errorf("%d entries, %d words", len(got.GetEntries()), words)
		}
	})
}
