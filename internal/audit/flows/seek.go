package flows

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
)

// lines reads a file from about where the filter's range begins, so that reading the end of a long
// file does not read all of it.
func (f Filter) lines(file *os.File) (*tail, error) {
	from := f.From
	var err error
	switch {
	case f.Newest:
		from, err = newest(file)
	case f.After > 0:
		from, err = offsetBefore(file, f.After, from)
	}
	if err != nil {
		return nil, err
	}
	t := &tail{in: bufio.NewReaderSize(file, 64<<10)}
	if from == 0 {
		return t, nil
	}
	// The byte before this offset ends a line, or a partial line for which the disk had no space.
	if _, err := file.Seek(from-1, io.SeekStart); err != nil {
		return nil, err
	}
	if _, err := t.next(); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return t, nil
}

// near is the distance between the bounds at which the bisection ends.
const near = 64 << 10

// offsetBefore returns an offset before which no flow has a number above seq. It uses bisection,
// because numbers only increase.
func offsetBefore(file *os.File, seq uint64, from int64) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	for end := info.Size(); end-from > near; {
		middle := from + (end-from)/2
		in := io.NewSectionReader(file, middle, info.Size()-middle)
		lines := &tail{in: bufio.NewReaderSize(in, 4<<10)}
		cut, err := lines.next()
		length := int64(len(cut))
		var line []byte
		if err == nil {
			line, err = lines.next()
		}
		if errors.Is(err, io.EOF) {
			end = middle // no complete line begins after it
			continue
		}
		var r struct{ Seq uint64 }
		if err == nil {
			err = json.Unmarshal(line, &r)
		}
		if err != nil {
			return 0, err
		}
		if r.Seq > seq {
			end = middle
			continue
		}
		from = middle + length
	}
	return from, nil
}

// newest returns the offset of the last complete line.
func newest(file *os.File) (int64, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	for part := int64(4 << 10); ; part *= 4 {
		start := max(0, info.Size()-part)
		data := make([]byte, info.Size()-start)
		if _, err := file.ReadAt(data, start); err != nil {
			return 0, err
		}
		end := max(0, bytes.LastIndexByte(data, '\n'))
		if before := bytes.LastIndexByte(data[:end], '\n'); before >= 0 {
			return start + int64(before) + 1, nil
		}
		if start == 0 {
			return 0, nil
		}
		if part > 2*maxLine {
			return 0, errors.New("a line is too long")
		}
	}
}
