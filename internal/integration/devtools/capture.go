package devtools

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
)

const (
	// maxSide bounds the sides of a picture of a full page in pixels. A page chooses its own height.
	maxSide = 16384
	// maxPDF bounds a PDF.
	maxPDF = 64 << 20
	// pdfChunk is how much of a PDF one message has.
	pdfChunk = 1 << 20
)

var (
	pngStart = []byte("\x89PNG\r\n\x1a\n")
	pdfStart = []byte("%PDF-")
)

// errFormat means that the browser sent something else than what was asked for. The caller writes it
// to a file with a name that promises the format.
var errFormat = errors.New("the browser did not send the format that was asked for")

// Screenshot writes a PNG of the page's window, or of the full page. It reports whether the page was
// larger than the largest picture.
func (p *Page) Screenshot(ctx context.Context, full bool, w io.Writer) (cut bool, err error) {
	options := map[string]any{"format": "png"}
	if full {
		var size struct {
			CSSContentSize struct{ Width, Height float64 }
		}
		if err := p.call(ctx, "Page.getLayoutMetrics", nil, &size); err != nil {
			return false, err
		}
		width, height := size.CSSContentSize.Width, size.CSSContentSize.Height
		cut = width > maxSide || height > maxSide
		options["captureBeyondViewport"] = true
		options["clip"] = map[string]any{"x": 0, "y": 0, "scale": 1, "width": clamp(width), "height": clamp(height)}
	}
	var got struct{ Data []byte } // JSON's form of bytes is base64
	if err := p.call(ctx, "Page.captureScreenshot", options, &got); err != nil {
		return false, err
	}
	if !bytes.HasPrefix(got.Data, pngStart) {
		return false, errFormat
	}
	_, err = w.Write(got.Data)
	return cut, err
}

func clamp(side float64) float64 { return min(max(side, 1), maxSide) }

// PDF writes the page as a PDF.
func (p *Page) PDF(ctx context.Context, w io.Writer) (err error) {
	var made struct{ Stream string }
	if err := p.call(ctx, "Page.printToPDF", map[string]any{"printBackground": true, "transferMode": "ReturnAsStream"}, &made); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, p.call(ctx, "IO.close", map[string]any{"handle": made.Stream}, nil))
	}()
	total := 0
	for first := true; ; first = false {
		var chunk struct {
			Data          string
			Base64Encoded bool
			EOF           bool
		}
		if err := p.call(ctx, "IO.read", map[string]any{"handle": made.Stream, "size": pdfChunk}, &chunk); err != nil {
			return err
		}
		data := []byte(chunk.Data)
		if chunk.Base64Encoded {
			if data, err = base64.StdEncoding.DecodeString(chunk.Data); err != nil {
				return err
			}
		}
		if first && !bytes.HasPrefix(data, pdfStart) {
			return errFormat
		}
		if total += len(data); total > maxPDF {
			return fmt.Errorf("the PDF has more than %d bytes", maxPDF)
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		if chunk.EOF {
			return nil
		}
		if len(data) == 0 {
			return errFormat // otherwise it could go on forever
		}
	}
}
