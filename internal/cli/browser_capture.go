package cli

import (
	"context"
	"io"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/integration/devtools"
)

// captured is the result of crannog browser --json with a file.
type captured struct {
	Sandbox string `json:"sandbox"`
	URL     string `json:"url"`
	Title   string `json:"title"`
	Status  int    `json:"status,omitempty"`
	File    string `json:"file"`
	Bytes   int64  `json:"bytes"`
	Cut     bool   `json:"cut,omitempty"` // the page is larger than the largest picture
}

// capture writes the page to the file.
func (a browserVerbs) capture(ctx context.Context, sb *crannog.Sandbox, page *devtools.Page, v *visit, answer devtools.Answer) error {
	out := captured{Sandbox: sb.ID(), Status: answer.Status, File: v.file}
	write := func(w io.Writer) (err error) {
		counted := &countingWriter{to: w}
		if v.flags.pdf != "" {
			err = page.PDF(ctx, counted)
		} else {
			out.Cut, err = page.Screenshot(ctx, v.flags.full, counted)
		}
		out.Bytes = counted.n
		return err
	}
	var err error
	if v.file == "-" {
		err = write(a.Stdout)
	} else {
		err = toNewFile(v.file, write)
	}
	if err != nil {
		return fail("write "+v.file, err)
	}
	if out.Cut {
		a.note("the page is larger than the largest picture, which shows its upper left part")
	}
	if answer.Status >= 400 {
		a.note("the server answered with status %d", answer.Status)
	}
	if !a.json {
		return nil
	}
	if out.Title, out.URL, err = page.Title(ctx); err != nil {
		return fail("read the page", err)
	}
	return a.object(out)
}

// countingWriter counts what is written.
type countingWriter struct {
	to io.Writer
	n  int64
}

// Write implements io.Writer.
func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}
