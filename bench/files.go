package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/crannog/crannog"
)

// fileSize is the size of the transferred file.
const fileSize = 64 << 20

// fileFigures measures the transfer of a file in and out, compared with an HTTP server that does
// the same with a file on the host.
func fileFigures(ctx context.Context, b *bench) (err error) {
	local, served, end, err := b.twoSandboxes(ctx, "files")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	plain := httptest.NewServer(plainFiles(filepath.Join(b.dir, "plain")))
	defer plain.Close()

	data := make([]byte, fileSize)
	// The values do not matter, but must not be compressible.
	if _, err := rand.NewChaCha8([32]byte{1}).Read(data); err != nil {
		return err
	}
	s, err := race(ctx, b.fewer(4),
		transferBoth("plain HTTP server and file", data, plainMover{plain}),
		transferBoth(nameLocal, data, sandboxMover{local.FS().WithContext(ctx)}),
		transferBoth(nameServe, data, sandboxMover{served.FS().WithContext(ctx)}))
	if err != nil {
		return err
	}
	for _, direction := range []string{"upload", "download"} {
		part := newScores()
		for _, name := range []string{"plain HTTP server and file", nameLocal, nameServe} {
			for _, v := range s.by[name+" "+direction] {
				part.add(name, v)
			}
		}
		sec := table("files", direction+" of one file of 64 MiB (more is better; p95 is the fast end)", "MB/s", part)
		sec.against("plain HTTP server and file")
		b.report.add(sec)
	}
	return nil
}

// mover copies a file to a destination and back.
type mover interface {
	upload(ctx context.Context, r io.Reader) error
	download(ctx context.Context) (io.ReadCloser, error)
}

// transferBoth returns a contender that measures both directions and checks that the file comes
// back unchanged.
func transferBoth(name string, data []byte, m mover) contender {
	want := sha256.Sum256(data)
	return contender{name, func(ctx context.Context, s *scores) error {
		began := time.Now()
		if err := m.upload(ctx, bytes.NewReader(data)); err != nil {
			return fmt.Errorf("upload: %w", err)
		}
		s.add(name+" upload", rate(fileSize, time.Since(began)))
		began = time.Now()
		r, err := m.download(ctx)
		if err != nil {
			return fmt.Errorf("download: %w", err)
		}
		got := bytes.NewBuffer(make([]byte, 0, fileSize))
		_, err = io.Copy(got, r)
		took := time.Since(began)
		if err := errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("download: %w", err)
		}
		if sha256.Sum256(got.Bytes()) != want {
			return errors.New("the downloaded file differs from the uploaded one")
		}
		s.add(name+" download", rate(fileSize, took))
		return nil
	}}
}

// sandboxMover copies a file to a sandbox.
type sandboxMover struct{ fs *crannog.FS }

func (b sandboxMover) upload(_ context.Context, r io.Reader) error {
	return b.fs.Upload("home/user/big", r, 0o644)
}

func (b sandboxMover) download(context.Context) (io.ReadCloser, error) {
	return b.fs.Open("home/user/big")
}

// plainMover copies a file to a server of plainFiles.
type plainMover struct{ *httptest.Server }

func (p plainMover) upload(ctx context.Context, r io.Reader) error {
	body, err := p.do(ctx, http.MethodPost, r)
	if err != nil {
		return err
	}
	return body.Close()
}

func (p plainMover) download(ctx context.Context) (io.ReadCloser, error) {
	return p.do(ctx, http.MethodGet, nil)
}

func (p plainMover) do(ctx context.Context, method string, body io.Reader) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.URL, body)
	if err != nil {
		return nil, err
	}
	resp, err := p.Client().Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(errors.New(resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}

// plainFiles returns a handler that stores posted files and serves them.
func plainFiles(path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.ServeFile(w, r, path)
			return
		}
		f, err := os.Create(path)
		if err == nil {
			_, err = io.Copy(f, r.Body)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}
