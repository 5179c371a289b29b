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

// within returns a list of one entry with the given content.
func within(inner []byte) []byte {
	return append(binary.AppendUvarint([]byte{0x0a}, uint64(len(inner))), inner...)
}

// P45: a hostile guest sends a short message that becomes much memory when decoded. Elements are
// counted before they are decoded.
func TestElementsAreCountedBeforeDecoding(t *testing.T) {
	b := Bounds{Items: 100, Within: 1000}
	words, args := bytes.Repeat([]byte{0x5a, 0}, 1001), bytes.Repeat([]byte{0x12, 0}, 1001)
	config := append(binary.AppendUvarint([]byte{0x0a}, uint64(len(args))), args...)
	for name, c := range map[string]struct {
		bounds Bounds
		data   []byte
		into   proto.Message
		fits   bool
	}{
		"files at limit":          {b, entries(100), &filesystempb.ListDirResponse{}, true},
		"too many files":          {b, entries(101), &filesystempb.ListDirResponse{}, false},
		"words at limit":          {b, within(words[2:]), &filesystempb.ListDirResponse{}, true},
		"too many words":          {b, within(words), &filesystempb.ListDirResponse{}, false},
		"words of several":        {b, slices.Concat(within(words[:1002]), within(words[1000:])), &filesystempb.ListDirResponse{}, false},
		"words of one file":       {b, within(words), &filesystempb.StatResponse{}, false},
		"repeated single message": {b, slices.Concat(within(words[:1002]), within(words[1000:])), &filesystempb.StatResponse{}, false},
		"too many programs":       {b, entries(101), &processpb.ListResponse{}, false},
		"too many arguments":      {b, within(config), &processpb.ListResponse{}, false},
		"too many events":         {b, entries(101), &filesystempb.GetWatcherEventsResponse{}, false},
		"no lists":                {Stream, entries(1000), &processpb.StartResponse{}, true},
		"unknown fields":          {b, bytes.Repeat([]byte{0x7a, 0}, 10_000), &filesystempb.ListDirResponse{}, true},
		"zero limits":             {Bounds{}, entries(1), &filesystempb.ListDirResponse{}, false},
		"cut limits only items":   {Bounds{Items: 1, Cut: true}, within(words), &filesystempb.ListDirResponse{}, false},
	} {
		err := codec{c.bounds}.Unmarshal(c.data, c.into)
		if c.fits && err != nil || !c.fits && fault.KindOf(err) != fault.Exhausted {
			t.Errorf("%s: decoding returned %v, want success: %t", name, err, c.fits)
		}
		if len(c.into.ProtoReflect().GetUnknown()) > 0 {
			t.Errorf("%s: unknown fields were stored", name)
		}
	}
}

// With Cut, a list that is longer than the limit is shortened.
func TestCutShortensList(t *testing.T) {
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
			t.Errorf("limit %d: got %v, want %d entries", limit, got.GetEntries(), want)
		}
	}
}

// Counting elements relies on two properties of all answers. No message contains its own type. No
// list has numbers as elements, because one field could hold many of them.
func TestElementsOfAllAnswersCanBeCounted(t *testing.T) {
	var inspect func(d protoreflect.MessageDescriptor, above []protoreflect.FullName)
	inspect = func(d protoreflect.MessageDescriptor, above []protoreflect.FullName) {
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
				inspect(f.Message(), append(slices.Clone(above), d.FullName()))
			}
		}
	}
	for _, file := range []protoreflect.FileDescriptor{filesystempb.File_filesystem_proto, processpb.File_process_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for k := range methods.Len() {
				inspect(methods.Get(k).Output(), nil)
			}
		}
	}
}

// cannedGuest gives the same answer to each request.
type cannedGuest struct {
	status int
	header http.Header
	body   io.Reader
	asked  http.Header // header of the last request
	read   int64       // bytes of the body that were read
}

func (g *cannedGuest) Do(req *http.Request) (*http.Response, error) {
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

func (g *cannedGuest) Write(p []byte) (int, error) { g.read += int64(len(p)); return len(p), nil }

// list lists a directory of a guest.
func list(t *testing.T, g *cannedGuest, b Bounds) (*filesystempb.ListDirResponse, error) {
	t.Helper()
	res, err := Filesystem(g, "http://guest", b).ListDir(t.Context(), connect.NewRequest(&filesystempb.ListDirRequest{}))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

func TestMessageBytesAreLimited(t *testing.T) {
	long := within(append([]byte{0x0a, 0x80, 0x08}, make([]byte, 1024)...))
	for limit, fits := range map[int]bool{len(long): true, len(long) - 1: false, 0: false} {
		_, err := list(t, &cannedGuest{status: http.StatusOK, body: bytes.NewReader(long)}, Bounds{Bytes: limit, Items: 1})
		if fits && err != nil || !fits && connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("limit of %d bytes: got %v", limit, err)
		}
	}
}

// A compressed answer is rejected, because it may be a decompression bomb.
func TestCompressedAnswersAreRejected(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	if _, err := z.Write(entries(10)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	g := &cannedGuest{status: http.StatusOK, header: http.Header{"Content-Encoding": {"gzip"}}, body: &bomb}
	if got, err := list(t, g, Listing); err == nil {
		t.Errorf("the compressed answer was accepted: %v", got)
	}
	if a := g.asked.Get("Accept-Encoding"); a != "identity" {
		t.Errorf("Accept-Encoding: got %q, want identity", a)
	}
	piece := append(binary.BigEndian.AppendUint32([]byte{1}, uint32(bomb.Len())), bomb.Bytes()...)
	g = &cannedGuest{status: http.StatusOK, header: http.Header{"Connect-Content-Encoding": {"gzip"}}, body: bytes.NewReader(piece)}
	if err := start(t, g); err == nil {
		t.Error("the compressed stream was accepted")
	}
	if a := g.asked.Get("Connect-Accept-Encoding"); a != "" {
		t.Errorf("Connect-Accept-Encoding: got %q, want none", a)
	}
}

// start reads a stream to its end.
func start(t *testing.T, g *cannedGuest) error {
	t.Helper()
	s, err := Process(g, "http://guest", Stream).Start(t.Context(), connect.NewRequest(&processpb.StartRequest{}))
	if err != nil {
		return err
	}
	for s.Receive() {
	}
	return errors.Join(s.Err(), s.Close())
}

// errorJSON returns an error in JSON with many details.
func errorJSON(details int) string {
	return `{"code":"not_found","message":"no such thing","details":[` + strings.Repeat("{},", details) + `{}]}`
}

// The JSON of an error has a list without a limit of its own. An error that is too long is not
// decoded completely.
func TestLongErrorIsNotDecoded(t *testing.T) {
	asJSON := http.Header{"Content-Type": {"application/json"}}
	g := &cannedGuest{status: http.StatusNotFound, header: asJSON, body: strings.NewReader(errorJSON(10))}
	if _, err := list(t, g, Listing); connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("short error: got %v", err)
	}
	g = &cannedGuest{status: http.StatusConflict, header: asJSON, body: strings.NewReader(errorJSON(1 << 20))}
	_, err := list(t, g, Listing)
	if c, ok := errors.AsType[*connect.Error](err); !ok || len(c.Details()) > 0 || g.read > 2*maxErrorBytes {
		t.Errorf("long error: %d bytes were read: %v", g.read, err)
	}
}

// The end of a stream contains the JSON of an error. An end that is too long is rejected.
func TestLongEndOfStreamIsRejected(t *testing.T) {
	end := func(details int) []byte {
		text := `{"error":` + errorJSON(details) + `}`
		return append(binary.BigEndian.AppendUint32([]byte{2}, uint32(len(text))), text...)
	}
	// The first event has an unknown field, and the second is empty.
	events := []byte{0, 0, 0, 0, 4, 0x78, 1, 0x78, 1, 0, 0, 0, 0, 0}
	for name, read := range map[string]func(io.Reader) io.Reader{
		"at once":      func(r io.Reader) io.Reader { return r },
		"byte by byte": func(r io.Reader) io.Reader { return oneByteReader{r} },
	} {
		g := &cannedGuest{status: http.StatusOK, body: read(bytes.NewReader(slices.Concat(events, end(10))))}
		if err := start(t, g); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s: got %v, want NotFound", name, err)
		}
		g = &cannedGuest{status: http.StatusOK, body: read(bytes.NewReader(slices.Concat(events, end(maxErrorBytes))))}
		if err := start(t, g); fault.KindOf(err) != fault.Exhausted {
			t.Errorf("%s, end that is too long: got %v, want Exhausted", name, err)
		}
	}
}

// oneByteReader reads one byte at a time.
type oneByteReader struct{ from io.Reader }

func (d oneByteReader) Read(p []byte) (int, error) { return d.from.Read(p[:min(len(p), 1)]) }

// FuzzUnmarshal checks that an accepted message is within the limits, and equals the message that
// the protobuf library decodes.
func FuzzUnmarshal(f *testing.F) {
	f.Add(entries(3))
	f.Add(within(bytes.Repeat([]byte{0x5a, 0}, 9)))
	f.Add([]byte{0x0a, 0x80, 0x7a, 0, 0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want filesystempb.ListDirResponse
		err := codec{Bounds{Items: 4, Within: 8}}.Unmarshal(data, &got)
		libraryErr := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &want)
		if fault.KindOf(err) == fault.Exhausted {
			return
		}
		if (err == nil) != (libraryErr == nil) || err == nil && !proto.Equal(&got, &want) {
			t.Errorf("got %v, the library returns %v", err, libraryErr)
		}
		words := 0
		for _, e := range got.GetEntries() {
			words += len(e.GetMetadata())
		}
		if err == nil && (len(got.GetEntries()) > 4 || words > 8) {
			t.Errorf("accepted %d entries with %d words", len(got.GetEntries()), words)
		}
	})
}
