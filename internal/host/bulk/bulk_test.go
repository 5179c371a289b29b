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
func TestF29PiecesAreLarge(t *testing.T) {
	all := bytes.Repeat([]byte("0123456789abcdef"), (2*bulk.Size+16)/16)
	var got []byte
	var sizes []int
	take := func(piece []byte) error {
		got, sizes = append(got, piece...), append(sizes, len(piece))
		return nil
	}
	// onlyReader hides every method but Read, like the body of a request.
	n, err := bulk.Copy(take, struct{ io.Reader }{bytes.NewReader(all)})
	if n != int64(len(all)) || err != nil || !bytes.Equal(got, all) || len(sizes) != 3 {
		t.Errorf("%d bytes in %v: %v", n, sizes, err)
	}
	got, sizes = nil, nil
	if n, err := bulk.Copy(take, iotest.DataErrReader(io.MultiReader(bytes.NewReader(all[:5]), bytes.NewReader(all[5:9])))); n != 9 || err != nil || len(sizes) != 2 {
		t.Errorf("%d bytes in %v: %v", n, sizes, err)
	}
}

func TestErrors(t *testing.T) {
	failed := errors.New("failed")
	if n, err := bulk.Copy(func([]byte) error { return failed }, bytes.NewReader([]byte("abc"))); n != 0 || !errors.Is(err, failed) {
		t.Errorf("%d bytes: %v", n, err)
	}
	count := 0
	if n, err := bulk.Copy(func(b []byte) error { count += len(b); return nil }, io.MultiReader(bytes.NewReader([]byte("abc")), iotest.ErrReader(failed))); n != 3 || count != 3 || !errors.Is(err, failed) {
		t.Errorf("%d bytes: %v", n, err)
	}
}
