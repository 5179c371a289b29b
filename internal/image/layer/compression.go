package layer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// zstdWindow bounds the memory that a layer can make its decoder use.
const zstdWindow = 128 << 20

// Uncompress returns the content of a layer that is compressed with gzip or zstd, or not
// compressed. The first bytes decide, not the manifest.
func Uncompress(r io.Reader) (io.ReadCloser, error) {
	head := bufio.NewReaderSize(r, 64<<10)
	magic, err := head.Peek(4)
	if err != nil && len(magic) == 0 && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(head)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return z, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(head, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(head), nil
}
