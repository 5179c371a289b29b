package relay

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"testing"
)

// writes is a connection that records each write.
type writes struct {
	net.Conn
	all [][]byte
}

func (w *writes) Write(b []byte) (int, error) {
	w.all = append(w.all, bytes.Clone(b))
	return len(b), nil
}

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
		"data":                       {[][]byte{sessionFrame(typeData, 5), []byte("hello")}, []int{sessionHeader + 5}},
		"data that looks so":         {[][]byte{sessionFrame(typeData, sessionHeader), sessionFrame(typeData, 7)}, []int{2 * sessionHeader}},
		"two of them":                {[][]byte{sessionFrame(typeData, 1), {1}, sessionFrame(typeData, 1), {2}}, []int{sessionHeader + 1, sessionHeader + 1}},
		"a window":                   {[][]byte{sessionFrame(1, 4096)}, []int{sessionHeader}},
		"an end":                     {[][]byte{sessionFrame(typeData, 0)}, []int{sessionHeader}},
		"as much as a frame":         {[][]byte{sessionFrame(typeData, limit-sessionHeader), make([]byte, limit-sessionHeader)}, []int{limit}},
		"more than a frame":          {[][]byte{sessionFrame(typeData, 2*limit), make([]byte, 2*limit)}, []int{limit, limit + sessionHeader}},
		"a header without its data":  {[][]byte{sessionFrame(typeData, 5)}, nil},
		"after more than a frame":    {[][]byte{sessionFrame(typeData, limit), make([]byte, limit), sessionFrame(1, 1)}, []int{limit, sessionHeader, sessionHeader}},
		"data after a ping's answer": {[][]byte{sessionFrame(2, 9), sessionFrame(typeData, 1), {1}}, []int{sessionHeader, sessionHeader + 1}},
	} {
		t.Run(name, func(t *testing.T) {
			to := &writes{}
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
				t.Errorf("was written in pieces of %v, not %v", sizes, c.sizes)
			}
			if all := bytes.Join(c.written, nil); c.sizes != nil && !bytes.Equal(bytes.Join(to.all, nil), all) {
				t.Error("not what was written")
			}
		})
	}
}
