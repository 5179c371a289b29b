package relay

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"testing"
)

// recorder is a connection that records each write.
type recorder struct {
	net.Conn
	all [][]byte
}

func (w *recorder) Write(b []byte) (int, error) {
	w.all = append(w.all, bytes.Clone(b))
	return len(b), nil
}

// sessionFrame returns the header of a yamux frame.
func sessionFrame(kind byte, length int) []byte {
	head := make([]byte, sessionHeader)
	head[typeAt] = kind
	binary.BigEndian.PutUint32(head[lengthAt:], uint32(length))
	return head
}

func TestHeaderIsWrittenWithItsData(t *testing.T) {
	const limit = fullFrame - frameHeader
	for name, c := range map[string]struct {
		written [][]byte
		sizes   []int
	}{
		"data":                           {[][]byte{sessionFrame(typeData, 5), []byte("hello")}, []int{sessionHeader + 5}},
		"data that looks like a header":  {[][]byte{sessionFrame(typeData, sessionHeader), sessionFrame(typeData, 7)}, []int{2 * sessionHeader}},
		"two frames":                     {[][]byte{sessionFrame(typeData, 1), {1}, sessionFrame(typeData, 1), {2}}, []int{sessionHeader + 1, sessionHeader + 1}},
		"window update":                  {[][]byte{sessionFrame(1, 4096)}, []int{sessionHeader}},
		"empty data":                     {[][]byte{sessionFrame(typeData, 0)}, []int{sessionHeader}},
		"full frame":                     {[][]byte{sessionFrame(typeData, limit-sessionHeader), make([]byte, limit-sessionHeader)}, []int{limit}},
		"more than a frame":              {[][]byte{sessionFrame(typeData, 2*limit), make([]byte, 2*limit)}, []int{limit, limit + sessionHeader}},
		"header without its data":        {[][]byte{sessionFrame(typeData, 5)}, nil},
		"header after more than a frame": {[][]byte{sessionFrame(typeData, limit), make([]byte, limit), sessionFrame(1, 1)}, []int{limit, sessionHeader, sessionHeader}},
		"data after a ping answer":       {[][]byte{sessionFrame(2, 9), sessionFrame(typeData, 1), {1}}, []int{sessionHeader, sessionHeader + 1}},
	} {
		t.Run(name, func(t *testing.T) {
			to := &recorder{}
			j := &joiner{Conn: to}
			for _, b := range c.written {
				if n, err := j.Write(b); n != len(b) || err != nil {
					t.Fatalf("wrote %d of %d: %v", n, len(b), err)
				}
			}
			var sizes []int
			for _, b := range to.all {
				sizes = append(sizes, len(b))
			}
			if !slices.Equal(sizes, c.sizes) {
				t.Errorf("got writes of %v, want %v", sizes, c.sizes)
			}
			if all := bytes.Join(c.written, nil); c.sizes != nil && !bytes.Equal(bytes.Join(to.all, nil), all) {
				t.Error("the written data differs")
			}
		})
	}
}
