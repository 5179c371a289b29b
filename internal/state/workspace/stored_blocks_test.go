package workspace

import (
	"bytes"
	"compress/flate"
	"io"
	"testing"
)

func TestStoredBlocksAreReadByFlate(t *testing.T) {
	var out bytes.Buffer
	w := &storedBlocks{w: &out}
	var want []byte
	for _, n := range []int{0, 1, 100, maxStored, maxStored + 1, 3 * maxStored} {
		data := bytes.Repeat([]byte{byte(n), 7, 0, 255}, n/4+1)[:n]
		if wrote, err := w.Write(data); err != nil || wrote != n {
			t.Fatal(wrote, err)
		}
		want = append(want, data...)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(flate.NewReader(&out)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("ReadAll: got %d bytes, error %v, want %d equal bytes", len(got), err, len(want))
	}
}
