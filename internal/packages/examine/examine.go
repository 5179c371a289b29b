// Package examine owns the server's look into the files of the package cache: it inspects and scans
// them when the egress gateway asks, and keeps the results by the digest of the file. The gateway
// does not write results, because a sandbox that takes it over could then have files count as clean
// for all other sandboxes, also later.
package examine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/content"
)

// Request names a file, and what to find out about it.
type Request struct {
	Artifact packages.Artifact `json:"artifact"`
	// Path is the escaped path on the registry.
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	// Content and Scan are set if the answer must have them.
	Content bool `json:"content,omitempty"`
	Scan    bool `json:"scan,omitempty"`
}

// Answer is what was found.
type Answer struct {
	// Inspected is set if Findings are those of an inspection. It is not if the cache does not have
	// the file: then who asks inspects it.
	Inspected bool              `json:"inspected,omitempty"`
	Findings  []content.Finding `json:"findings,omitempty"`
	// Scanner is the version of the scanner and of its database.
	Scanner string `json:"scanner,omitempty"`
	// Found is the signature that the scanner found. Empty is none.
	Found string `json:"found,omitempty"`
}

// Files has the contents of the cache, and results about them. store.Store is one.
type Files interface {
	Content(ctx context.Context, sha256 string) (*os.File, int64, error)
	Result(sha256 string) ([]byte, error)
	PutResult(sha256 string, text []byte) error
}

// Scanner scans files. clamd.Scanner is one.
type Scanner interface {
	// Ready returns the version of the scanner and of its database.
	Ready(ctx context.Context) (string, error)
	// Scan returns the name of the signature that was found, or the empty text.
	Scan(ctx context.Context, content io.Reader) (string, error)
}

// maxInspections limits how many files are inspected at the same time.
const maxInspections = 2

// Examiner answers requests. It is safe for concurrent use.
type Examiner struct {
	files       Files
	scanner     Scanner
	now         func() time.Time
	inspections chan struct{} // has an element for each file that is being inspected
	results
}

// New returns an examiner.
func New(files Files, scanner Scanner, now func() time.Time) *Examiner {
	return &Examiner{files: files, scanner: scanner, now: now, inspections: make(chan struct{}, maxInspections), results: results{files: files}}
}

// Examine answers a request. file is the one that the gateway has. It may change while it is read,
// because the gateway may have been taken over: what is kept is only about bytes that have the
// digest.
func (e *Examiner) Examine(ctx context.Context, r Request, file io.ReaderAt) (Answer, error) {
	var out Answer
	kept := e.load(r.SHA256)
	if r.Scan {
		if err := e.scan(ctx, r, file, kept, &out); err != nil {
			return Answer{}, err
		}
	}
	if r.Content {
		if err := e.inspect(ctx, r, kept, &out); err != nil {
			return Answer{}, err
		}
	}
	return out, nil
}

func (e *Examiner) scan(ctx context.Context, r Request, file io.ReaderAt, kept *result, out *Answer) error {
	version, err := e.scanner.Ready(ctx)
	if err != nil {
		return err
	}
	if s := kept.Scan; s != nil && s.Scanner == version && within(s.At, e.now(), scanLife) {
		out.Scanner, out.Found = s.Scanner, s.Found
		return nil
	}
	sum := sha256.New()
	found, err := e.scanner.Scan(ctx, io.TeeReader(io.NewSectionReader(file, 0, r.Size), sum))
	if err != nil {
		return err
	}
	out.Scanner, out.Found = version, found
	if hex.EncodeToString(sum.Sum(nil)) != r.SHA256 {
		return fault.New(fault.Invalid, "package_digest", "the file to scan does not have the digest that the request names")
	}
	e.keep(r.SHA256, func(k *result) { k.Scan = &scanned{version, found, e.now().UTC()} })
	return nil
}

func (e *Examiner) inspect(ctx context.Context, r Request, kept *result, out *Answer) error {
	form, ok := content.FormOf(r.Artifact, r.Path)
	if !ok {
		return nil
	}
	if findings, ok := kept.find(form); ok {
		out.Inspected, out.Findings = true, findings
		return nil
	}
	select {
	case e.inspections <- struct{}{}:
		defer func() { <-e.inspections }()
	case <-ctx.Done():
		return ctx.Err()
	}
	f, size, err := e.files.Content(ctx, r.SHA256)
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	findings, err := inspectFile(ctx, form, f, size)
	if err != nil {
		return err
	}
	out.Inspected, out.Findings = true, findings
	e.keep(r.SHA256, func(k *result) { k.add(form, findings) })
	return nil
}

// inspectFile is content.Inspect for a process that must not end with it. The archive comes from
// outside, and a panic of a library that reads it would end all sandboxes of the server.
func inspectFile(ctx context.Context, form content.Form, f io.ReaderAt, size int64) (found []content.Finding, err error) {
	defer func() {
		if p := recover(); p != nil {
			found, err = nil, errors.New(fmt.Sprint("the inspection failed: ", p))
		}
	}()
	return content.Inspect(ctx, form, f, size)
}
