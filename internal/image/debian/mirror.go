package debian

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/xi2/xz"
	"golang.org/x/sync/errgroup"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/apt"
)

// mirror is a copy of Debian's archive. Its files are used only after their digests were compared.
type mirror struct {
	client *http.Client
	base   string
}

// get writes the content of a file of the mirror, at most limit bytes.
func (m *mirror) get(ctx context.Context, name string, limit int64, w io.Writer) error {
	url := strings.TrimSuffix(m.base, "/") + "/" + name
	failed := func(err error) error {
		return fault.Wrap(err, fault.Unavailable, CodeMirror, fmt.Sprintf("%s cannot be fetched: %v", url, err)).
			WithHint("check the network, or name another mirror with --mirror")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return failed(err)
	}
	response, err := m.client.Do(req)
	if err != nil {
		return failed(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return failed(errors.New(response.Status))
	}
	n, err := io.Copy(w, io.LimitReader(response.Body, limit+1))
	if err != nil {
		return failed(err)
	}
	if n > limit {
		return fault.Newf(fault.Denied, CodeIntegrity, "%s has more than %d bytes", url, limit)
	}
	return nil
}

// getVerified fetches a file whose size and digest are known. It repeats an interrupted transfer.
func (m *mirror) getVerified(ctx context.Context, name string, want apt.File, to func() (io.WriteCloser, error)) error {
	const tries = 3
	var err error
	for range tries {
		if err = m.once(ctx, name, want, to); err == nil || ctx.Err() != nil || fault.CodeOf(err) == CodeIntegrity {
			break
		}
	}
	return err
}

// once makes one attempt of getVerified.
func (m *mirror) once(ctx context.Context, name string, want apt.File, to func() (io.WriteCloser, error)) error {
	w, err := to()
	if err != nil {
		return err
	}
	sum := sha256.New()
	count := &counter{}
	err = m.get(ctx, name, want.Size, io.MultiWriter(w, sum, count))
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	if count.n != want.Size || !bytes.Equal(sum.Sum(nil), want.SHA256[:]) {
		return fault.Newf(fault.Denied, CodeIntegrity, "%s of the mirror is not the file that the archive has signed", name)
	}
	return nil
}

// counter counts written bytes.
type counter struct{ n int64 }

func (c *counter) Write(data []byte) (int, error) {
	c.n += int64(len(data))
	return len(data), nil
}

// buffer is a bytes.Buffer with a Close method.
type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }

// Limits of the list of packages, in bytes: compressed and uncompressed.
const (
	maxIndex = 256 << 20
	maxList  = 1 << 30
)

// packages reads the list of packages of a release.
func (m *mirror) packages(ctx context.Context, r *apt.Release, arch string) (*index, error) {
	name := "main/binary-" + arch + "/Packages.xz"
	want, ok := r.Files[name]
	if !ok || want.Size > maxIndex {
		return nil, fault.Newf(fault.NotFound, CodeMirror, "the suite %s has no packages for %s", r.Suite, arch)
	}
	var b buffer
	if err := m.getVerified(ctx, "dists/"+r.Suite+"/"+name, want, func() (io.WriteCloser, error) { b.Reset(); return &b, nil }); err != nil {
		return nil, err
	}
	plain, err := xz.NewReader(&b, 0)
	if err != nil {
		return nil, fmt.Errorf("list of packages: %w", err)
	}
	return parseIndex(bufio.NewReader(io.LimitReader(plain, maxList)))
}

// parallel is the number of files that are fetched at once.
const parallel = 4

// fetch fetches the packages into a directory.
func (m *mirror) fetch(ctx context.Context, dir string, list []*pkg, report func(string)) error {
	var total int64
	for _, p := range list {
		total += p.file.Size
	}
	report(fmt.Sprintf("fetch %d packages, %d MB", len(list), total/1e6))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, p := range list {
		g.Go(func() error {
			to := filepath.Join(dir, p.deb())
			return m.getVerified(ctx, p.path, p.file, func() (io.WriteCloser, error) {
				// An attempt that failed may have left a part.
				if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return nil, err
				}
				return os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			})
		})
	}
	return g.Wait()
}
