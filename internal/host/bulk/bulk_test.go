package bulk_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/crannog/crannog/internal/host/bulk"
)

// F29: bulk data is copied in large pieces, and each piece is passed on as soon as it arrives.
func TestF29CopyUsesLargeWrites(t *testing.T) {
	all := bytes.Repeat([]byte("0123456789abcdef"), (2*bulk.Size+16)/16)
	var got []byte
	var sizes []int
	take := func(piece []byte) error {
		got, sizes = append(got, piece...), append(sizes, len(piece))
		return nil
	}
	// The anonymous struct hides every method but Read, like the body of a request.
	n, err := bulk.Copy(take, struct{ io.Reader }{bytes.NewReader(all)})
	if n != int64(len(all)) || err != nil || !bytes.Equal(got, all) || len(sizes) != 3 {
		t.Errorf("copied %d bytes in writes of %v bytes, error %v; want all %d bytes in 3 writes", n, sizes, err, len(all))
	}
	got, sizes = nil, nil
	if n, err := bulk.Copy(take, iotest.DataErrReader(io.MultiReader(bytes.NewReader(all[:5]), bytes.NewReader(all[5:9])))); n != 9 || err != nil || len(sizes) != 2 {
		t.Errorf("copied %d bytes in writes of %v bytes, error %v; want 9 bytes in 2 writes", n, sizes, err)
	}
}

func TestCopyReturnsErrors(t *testing.T) {
	failed := errors.New("failed")
	if n, err := bulk.Copy(func([]byte) error { return failed }, bytes.NewReader([]byte("abc"))); n != 0 || !errors.Is(err, failed) {
		t.Errorf("a failing write: copied %d bytes, error %v; want 0 and the write's error", n, err)
	}
	count := 0
	if n, err := bulk.Copy(func(b []byte) error { count += len(b); return nil }, io.MultiReader(bytes.NewReader([]byte("abc")), iotest.ErrReader(failed))); n != 3 || count != 3 || !errors.Is(err, failed) {
		t.Errorf("a failing read: copied %d bytes, error %v; want 3 and the read's error", n, err)
	}
}
