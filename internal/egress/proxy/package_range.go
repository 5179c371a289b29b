package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/packages/pullthrough"
)

// byteRange is a part of a body.
type byteRange struct{ from, length int64 }

// parseRange reads the header Range for a body of a size. It returns false for ok if the whole body
// is the answer: without the header, in other units and for several parts, which servers may
// ignore. It returns no part if the body has none of the bytes.
func parseRange(header string, size int64) (part *byteRange, ok bool) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	if !ok || strings.Contains(spec, ",") {
		return nil, false
	}
	first, last, ok := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok {
		return nil, false
	}
	end := size - 1
	if first == "" { // the last bytes
		n, ok := position(last)
		if !ok {
			return nil, false
		}
		if n = min(n, size); n == 0 {
			return nil, true
		}
		return &byteRange{size - n, n}, true
	}
	from, ok := position(first)
	if !ok {
		return nil, false
	}
	if last != "" {
		to, ok := position(last)
		if !ok || to < from {
			return nil, false
		}
		end = min(end, to)
	}
	if from >= size {
		return nil, true
	}
	return &byteRange{from, end - from + 1}, true
}

// position reads digits, without a sign.
func position(text string) (int64, bool) {
	n, err := strconv.ParseUint(text, 10, 63)
	return int64(n), err == nil
}

// partly changes an answer to the part that the client requests. Clients continue an interrupted
// layer, and fetch parts of a large one at the same time.
func (x *exchange) partly(a *pullthrough.Answer) error {
	if !a.Ranges || x.action.method != http.MethodGet {
		return nil
	}
	h := x.w.Header()
	tag := strconv.Quote(a.Digest)
	h.Set("Accept-Ranges", "bytes")
	h.Set("Etag", tag)
	// A client that has a part of something else wants the whole.
	if known := x.r.Header.Get("If-Range"); known != "" && known != tag {
		return nil
	}
	part, ok := parseRange(x.r.Header.Get("Range"), a.Size)
	if !ok {
		return nil
	}
	if part == nil {
		h.Set("Content-Range", "bytes */"+strconv.FormatInt(a.Size, 10))
		a.Status, part = http.StatusRequestedRangeNotSatisfiable, &byteRange{}
	} else {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.from, part.from+part.length-1, a.Size))
		a.Status = http.StatusPartialContent
	}
	if _, err := a.Body.(io.Seeker).Seek(part.from, io.SeekStart); err != nil {
		return err
	}
	a.Size = part.length
	a.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(a.Body, part.length), a.Body}
	return nil
}
