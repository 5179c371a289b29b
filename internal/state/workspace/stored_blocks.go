package workspace

import (
	"encoding/binary"
	"io"
)

// storedBlocks writes a stream for package flate in uncompressed blocks (RFC 1951, 3.2.4).
type storedBlocks struct{ w io.Writer }

// maxStored is the maximum length of one block.
const maxStored = 1<<16 - 1

func (s *storedBlocks) Write(data []byte) (written int, err error) {
	for len(data) > 0 {
		piece := data[:min(len(data), maxStored)]
		if err := s.head(0, len(piece)); err != nil {
			return written, err
		}
		n, err := s.w.Write(piece)
		written += n
		if err != nil {
			return written, err
		}
		data = data[len(piece):]
	}
	return written, nil
}

// Close writes an empty last block. It does not close the underlying writer.
func (s *storedBlocks) Close() error { return s.head(1, 0) }

// head writes the header of a block: whether it is the last one, and its length twice, the second
// time inverted.
func (s *storedBlocks) head(last byte, length int) error {
	head := [5]byte{last}
	binary.LittleEndian.PutUint16(head[1:], uint16(length))
	binary.LittleEndian.PutUint16(head[3:], ^uint16(length))
	_, err := s.w.Write(head[:])
	return err
}
