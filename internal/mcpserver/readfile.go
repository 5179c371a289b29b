package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/crannog/crannog/internal/fault"
)

type readFileIn struct {
	target
	Path   string `json:"path" jsonschema:"The file, absolute or from /workspace on."`
	Offset int    `json:"offset,omitempty" jsonschema:"First line, from 1. Negative: that many lines before the end."`
	Limit  int    `json:"limit,omitempty" jsonschema:"How many lines."`
}

type readFileOut struct {
	Path      string `json:"path"`
	Bytes     int64  `json:"size_bytes"`
	Kind      string `json:"kind" jsonschema:"text, image or binary."`
	Content   string `json:"content,omitempty"`
	FirstLine int    `json:"first_line,omitempty"`
	LastLine  int    `json:"last_line,omitempty"`
	Truncated bool   `json:"truncated" jsonschema:"There is more after last_line, or lines were cut."`
	Sandbox   string `json:"sandbox"`
}

const (
	// defaultLines is the default limit of lines.
	defaultLines = 2000
	// maxRead bounds how much of a file is read to find lines in it.
	maxRead = 64 << 20
	// maxImage bounds a picture. Models accept no larger ones.
	maxImage = 5 << 20
	// maxTail bounds the lines of a negative offset.
	maxTail = 100_000
)

func (w *view) addReadFile() {
	add(w, tool{
		name: "read_file", title: "Read a file",
		text: "Read a text file, or look at a picture (PNG, JPEG, GIF, WebP). Text is returned unchanged, without line numbers, at most 2000 lines and 30,000 characters at a time.",
		shape: func(p map[string]*jsonschema.Schema) {
			inRange(p["offset"], -maxTail, 1<<40)
			inRange(p["limit"], 1, maxTail)
			defaultsTo(p["limit"], "2000")
		},
	}, w.readFile)
}

func (w *view) readFile(ctx context.Context, c *call, in readFileIn) (readFileOut, error) {
	name, err := fsName(in.Path)
	if err != nil {
		return readFileOut{}, err
	}
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return readFileOut{}, err
	}
	f, err := b.sb.FS().WithContext(ctx).Open(name)
	if err != nil {
		return readFileOut{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return readFileOut{}, err
	}
	if !info.Mode().IsRegular() {
		if link := info.Mode()&fs.ModeSymlink != 0; !link {
			return readFileOut{}, fault.Newf(fault.Invalid, "not_a_file", "%s is not a regular file", absPath(name)).
				WithHint("list_files shows what is in a directory")
		}
	}
	out := readFileOut{Path: absPath(name), Bytes: info.Size(), Sandbox: b.sb.ID()}
	r := bufio.NewReaderSize(f, 64<<10)
	// The type is determined by the content, not by the file's name.
	start, err := r.Peek(8 << 10)
	if err != nil && !errors.Is(err, io.EOF) {
		return out, err
	}
	mime := http.DetectContentType(start)
	switch {
	case isImage(mime):
		out.Kind = "image"
		return out, c.readImage(r, mime, out.Path)
	case bytes.IndexByte(start, 0) >= 0:
		out.Kind = "binary"
		c.printf("%s is binary, %d bytes (%s)\n", out.Path, out.Bytes, mime)
		return out, nil
	}
	out.Kind = "text"
	return out, c.readLines(r, in, &out)
}

func isImage(mime string) bool {
	switch mime {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return true
	}
	return false
}

func (c *call) readImage(r io.Reader, mime, path string) error {
	data, err := io.ReadAll(io.LimitReader(r, maxImage+1))
	if err != nil {
		return err
	}
	if len(data) > maxImage {
		return fault.Newf(fault.Exhausted, "image_too_large", "%s is larger than %d bytes", path, maxImage).
			WithHint("make it smaller with a program inside")
	}
	c.printf("%s: %s, %d bytes\n", path, mime, len(data))
	c.show(image{mime, data})
	return nil
}

// readLines returns the requested lines.
func (c *call) readLines(r *bufio.Reader, in readFileIn, out *readFileOut) error {
	limit := in.Limit
	if limit == 0 {
		limit = defaultLines
	}
	from := max(in.Offset, 1)
	scan := &lineScan{r: r, left: maxRead}
	var lines []string
	if in.Offset < 0 {
		keep := -in.Offset
		for {
			line, err := scan.next()
			if err != nil {
				return err
			}
			if line == "" {
				break
			}
			if lines = append(lines, line); len(lines) > 2*keep {
				lines = append(lines[:0], lines[len(lines)-keep:]...)
			}
		}
		lines = lines[max(0, len(lines)-keep):]
		from = scan.line - len(lines) + 1
		if len(lines) > limit {
			lines, out.Truncated = lines[:limit], true
		}
	} else {
		for size := 0; ; {
			line, err := scan.next()
			if err != nil {
				return err
			}
			if line == "" {
				break
			}
			if scan.line < from {
				continue
			}
			if len(lines) >= limit || size > 4*maxText {
				out.Truncated = true
				break
			}
			lines = append(lines, line)
			size += len(line)
		}
	}
	c.printLines(lines, from, out)
	out.Truncated = out.Truncated || scan.cut
	return nil
}

// printLines writes as many lines as fit into a result.
func (c *call) printLines(lines []string, from int, out *readFileOut) {
	room := maxText
	var b strings.Builder
	n := 0
	for _, line := range lines {
		line = inertInPlace(line)
		size := utf8.RuneCountInString(line)
		if size > room {
			if n == 0 {
				line, _ = cut(line, room)
				b.WriteString(line)
				n++
			}
			out.Truncated = true
			break
		}
		room -= size
		b.WriteString(line)
		n++
	}
	out.Content = b.String()
	c.printf("%s", out.Content)
	if n == 0 {
		c.printf("[no lines at this offset; the file has %d bytes]\n", out.Bytes)
		return
	}
	out.FirstLine, out.LastLine = from, from+n-1
	if out.Truncated {
		if !strings.HasSuffix(out.Content, "\n") {
			c.printf("\n")
		}
		c.printf("[lines %d to %d; continue with offset %d]\n", out.FirstLine, out.LastLine, out.LastLine+1)
	}
}

// lineScan reads lines with their newlines. It cuts a line that is longer than a result can be.
type lineScan struct {
	r    *bufio.Reader
	left int64 // bytes that may still be read
	line int   // number of the last line
	cut  bool
}

// next returns the next line, "" at the end.
func (s *lineScan) next() (string, error) {
	var line []byte
	for {
		part, err := s.r.ReadSlice('\n')
		if s.left -= int64(len(part)); s.left < 0 {
			return "", fault.Newf(fault.Exhausted, "file_too_large", "the requested lines are not in the first %d bytes of the file", maxRead).
				WithHint("use bash, with tail or sed -n")
		}
		if room := 4*maxText - len(line); len(part) <= room {
			line = append(line, part...)
		} else {
			line = append(line, part[:max(0, room)]...)
			s.cut = true
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return "", err
		case len(line) > 0:
			s.line++
		}
		return string(line), nil
	}
}
