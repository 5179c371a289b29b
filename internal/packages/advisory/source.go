package advisory

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// Limits of an import.
const (
	// MaxImport is the maximum size of a file with advisories.
	MaxImport = 1 << 30
	// maxAdvisory limits one advisory, and maxUnpacked all of them.
	maxAdvisory = 16 << 20
	maxUnpacked = 16 << 30
)

var (
	zipStart   = []byte("PK")
	zipCentral = []byte("PK\x01\x02")
)

func tooLarge(format string, args ...any) error {
	return fault.Newf(fault.Invalid, "advisories_too_large", format, args...)
}

// read calls add for each advisory of a file: a zip of JSON files, as OSV publishes them, or one
// JSON file.
func read(ctx context.Context, content io.ReaderAt, size int64, add func(*parsedAdvisory) error) error {
	if size > MaxImport {
		return tooLarge("the file is larger than %d bytes", MaxImport)
	}
	start := make([]byte, len(zipStart))
	if _, err := content.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if bytes.Equal(start, zipStart) {
		return readZip(ctx, content, size, add)
	}
	return readOne(io.NewSectionReader(content, 0, size), add)
}

func readZip(ctx context.Context, content io.ReaderAt, size int64, add func(*parsedAdvisory) error) error {
	if err := countEntries(io.NewSectionReader(content, 0, size)); err != nil {
		return err
	}
	z, err := zip.NewReader(content, size)
	if err != nil {
		return invalid("the zip cannot be read: %v", err)
	}
	left := int64(maxUnpacked)
	for _, entry := range z.File {
		if err := ctx.Err(); err != nil {
			return err
		}
		if entry.FileInfo().IsDir() || !strings.HasSuffix(entry.Name, ".json") {
			continue
		}
		r, err := entry.Open()
		if err != nil {
			return invalid("%.200q in the zip cannot be read: %v", entry.Name, err)
		}
		counted := &io.LimitedReader{R: r, N: min(left, maxAdvisory+1)}
		before := counted.N
		err = readOne(counted, add)
		r.Close()
		if left -= before - counted.N; left <= 0 {
			return tooLarge("the zip has more than %d bytes when it is unpacked", int64(maxUnpacked))
		}
		if err != nil {
			if f, ok := errors.AsType[*fault.Error](err); ok && f.Code == "advisory_invalid" {
				return invalid("%.200q in the zip: %s", entry.Name, f.Text)
			}
			return err
		}
	}
	return nil
}

// countEntries rejects a zip with too many entries before its directory is read, which takes
// several times as much memory as the entries have bytes. Each entry has a signature there.
func countEntries(r io.Reader) error {
	buffer := make([]byte, 64<<10)
	kept, found := 0, 0
	for {
		n, err := r.Read(buffer[kept:])
		window := buffer[:kept+n]
		found += bytes.Count(window, zipCentral)
		if found > maxRecords {
			return tooLarge("the zip has more than %d files", maxRecords)
		}
		// A signature may begin at the end of this piece.
		kept = copy(buffer, window[max(0, len(window)-len(zipCentral)+1):])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readOne reads one advisory.
func readOne(r io.Reader, add func(*parsedAdvisory) error) error {
	text, err := io.ReadAll(io.LimitReader(r, maxAdvisory+1))
	if err != nil {
		return invalid("it cannot be read: %v", err)
	}
	if len(text) > maxAdvisory {
		return tooLarge("an advisory is larger than %d bytes", maxAdvisory)
	}
	parsed, err := parse(text)
	if err != nil {
		return err
	}
	if err := add(parsed); err != nil {
		return fmt.Errorf("add %s: %w", parsed.id, err)
	}
	return nil
}
