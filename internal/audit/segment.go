package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/host/durable"
)

const segmentSuffix = ".jsonl"

// segmentName returns the name of a segment, which is the number of its first entry. A segment is a
// file of consecutive lines of the log.
func segmentName(first int64) string { return fmt.Sprintf("%016d%s", first, segmentSuffix) }

// listSegments returns the number of the first entry of each segment, in order.
func listSegments(dir string) ([]int64, error) {
	names, err := os.ReadDir(dir) // sorted, and names have one length
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, e := range names {
		text, ok := strings.CutSuffix(e.Name(), segmentSuffix)
		if !ok {
			continue
		}
		first, err := strconv.ParseInt(text, 10, 64)
		if err != nil || segmentName(first) != e.Name() {
			return nil, damageError("%s is not the name of a file of the audit log", e.Name())
		}
		out = append(out, first)
	}
	return out, nil
}

// segmentOf returns the segment that has an entry, from a sorted list.
func segmentOf(segments []int64, seq int64) (int64, bool) {
	for _, v := range slices.Backward(segments) {
		if v <= seq {
			return v, true
		}
	}
	return 0, false
}

// lines reads complete lines of a file from an offset.
type lines struct {
	file io.ReaderAt
	in   *bufio.Reader
	at   int64  // offset of the next line
	left []byte // incomplete line at the end
}

// maxOffset is beyond the end of any file.
const maxOffset = 1 << 62

func newLines(r io.ReaderAt, at int64) *lines {
	return &lines{file: r, in: bufio.NewReaderSize(io.NewSectionReader(r, at, maxOffset), 64<<10), at: at}
}

// seek continues at another offset. It keeps the buffer if the next line begins there.
func (l *lines) seek(at int64) {
	if at != l.at {
		l.in.Reset(io.NewSectionReader(l.file, at, maxOffset))
		l.at = at
	}
}

// next returns a line without its line break, valid until the next call. It returns io.EOF if there
// is no further complete line. An incomplete last line is then in left.
func (l *lines) next() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	if err == nil {
		l.at += int64(len(line))
		return line[:len(line)-1], nil
	}
	joined := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) && len(joined) <= maxLine {
		line, err = l.in.ReadSlice('\n')
		joined = append(joined, line...)
	}
	switch {
	case err == nil:
		l.at += int64(len(joined))
		return joined[:len(joined)-1], nil
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, damageError("a line is longer than %d bytes", maxLine)
	case errors.Is(err, io.EOF):
		l.left = joined
	}
	return nil, err
}

// lastLine finds the last complete line of a file, and where it ends. Without one, end is 0.
func lastLine(f *os.File) (line []byte, end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	for window := int64(64 << 10); ; window *= 4 {
		from := max(0, info.Size()-window)
		tail := make([]byte, info.Size()-from)
		if _, err := f.ReadAt(tail, from); err != nil {
			return nil, 0, err
		}
		last := bytes.LastIndexByte(tail, '\n')
		if last >= 0 {
			begin := bytes.LastIndexByte(tail[:last], '\n')
			if begin >= 0 || from == 0 {
				return tail[begin+1 : last], from + int64(last) + 1, nil
			}
		} else if from == 0 {
			return nil, 0, nil
		}
		if window > 4*maxLine {
			return nil, 0, damageError("%s ends in a line that is too long", filepath.Base(f.Name()))
		}
	}
}

// replaceFile replaces a file atomically and durably. The caller holds the lock of the log.
func replaceFile(path string, data []byte) error {
	return durable.Replace(path, data, durable.Options{Sync: true})
}
