package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/wasm/runner"
	"github.com/crannog/crannog/internal/host/durable"
)

// DefaultCacheBytes is the default maximum size of all compiled modules.
const DefaultCacheBytes = 1 << 30

const (
	// maxCompiling is the number of modules that are compiled at the same time.
	maxCompiling = 2
	// maxRequests is the number of requests of one sandbox that are answered at the same time.
	maxRequests = 8
)

// store stores compiled modules in the state directory, under a hash of the module and of the
// runner. Only this process writes there, and a process without rights compiles the modules
// (compile.go). A sandbox receives an open file and no path.
type store struct {
	dir    string
	runner string
	limit  int64
	log    *slog.Logger
	slots  chan struct{}

	mu   sync.Mutex
	busy map[string]chan struct{} // closed when the module has been compiled
}

// newStore returns a store. A limit of zero is DefaultCacheBytes.
func newStore(dir, runner string, limit int64, log *slog.Logger) *store {
	if limit == 0 {
		limit = DefaultCacheBytes
	}
	return &store{dir: dir, runner: runner, limit: limit, log: log, slots: make(chan struct{}, maxCompiling), busy: map[string]chan struct{}{}}
}

// serve answers the requests of one guest until the guest has ended. Each request consists of a
// module and a socket for the answer. If the socket is closed without an answer, the runner
// compiles the module itself.
func (s *store) serve(ctx context.Context, conn *net.UnixConn) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the waiting requests of the guest, which has ended
	slots := make(chan struct{}, maxRequests)
	for {
		files, err := receive(conn)
		if err != nil {
			return
		}
		if len(files) != 2 {
			closeAll(files)
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			closeAll(files)
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			defer closeAll(files)
			if err := s.answer(ctx, files[0], files[1]); err != nil {
				s.log.Debug("cannot compile a module in advance", "err", err)
			}
		})
	}
}

// receive reads one message with its descriptors.
func receive(conn *net.UnixConn) (files []*os.File, err error) {
	rights := make([]byte, unix.CmsgSpace(2*4))
	n, controls, _, _, err := conn.ReadMsgUnix(make([]byte, 1), rights)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:controls])
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// closeAll closes files.
func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written
	}
}

// answer sends the compiled module to a socket.
func (s *store) answer(ctx context.Context, module, socket *os.File) error {
	data, err := content(module)
	if err != nil {
		return err
	}
	compiled, err := s.get(ctx, data)
	if err != nil {
		return err
	}
	defer compiled.Close()
	return unix.Sendmsg(int(socket.Fd()), []byte{0}, unix.UnixRights(int(compiled.Fd())), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}

// content reads a module of a sandbox. It may have any content, and may change while it is read.
func content(module *os.File) ([]byte, error) {
	info, err := module.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > runner.MaxModule {
		return nil, fmt.Errorf("a module is a file of at most %d bytes", runner.MaxModule)
	}
	// It reads at its own offset, because the offset of the descriptor belongs to the sandbox.
	data := make([]byte, info.Size())
	n, err := io.ReadFull(io.NewSectionReader(module, 0, info.Size()), data)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // the sandbox shortened it
	}
	return data[:n], err
}

// get returns the compiled module, and compiles it if it is not stored.
func (s *store) get(ctx context.Context, module []byte) (*os.File, error) {
	path := s.path(module)
	for {
		f, err := os.Open(path)
		if err == nil {
			now := time.Now()
			_ = os.Chtimes(path, now, now) // if this fails, the file is only removed earlier
			return f, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		s.mu.Lock()
		compiled, other := s.busy[path]
		if !other {
			s.busy[path] = make(chan struct{})
		}
		s.mu.Unlock()
		if !other {
			return s.make(ctx, path, module)
		}
		select {
		case <-compiled:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if _, err := os.Stat(path); err != nil {
			return nil, errors.New("the module could not be compiled for another request")
		}
	}
}

// path returns the path of the compiled module. The runner's file is named by its content.
func (s *store) path(module []byte) string {
	sum := sha256.New()
	_, _ = io.WriteString(sum, filepath.Base(s.runner)+"\x00") // writing to a hash does not fail
	_, _ = sum.Write(module)
	return filepath.Join(s.dir, hex.EncodeToString(sum.Sum(nil)))
}

// make compiles a module and stores the result.
func (s *store) make(ctx context.Context, path string, module []byte) (*os.File, error) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.busy[path])
		delete(s.busy, path)
	}()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	err := durable.ReplaceWith(path, durable.Options{Draft: draftPrefix + "*", Mode: 0o600}, func(w io.Writer) error {
		return compile(ctx, s.runner, module, w)
	})
	if err != nil {
		return nil, err
	}
	s.evict(path)
	return os.Open(path)
}

// draftPrefix is the name prefix of a file that is being written.
const draftPrefix = ".new-"

// maxDraftAge is the age from which a draft belongs to a process that has ended.
const maxDraftAge = time.Hour

// evict removes the least recently used modules until the rest is within the limit. A sandbox can
// still use a removed module that it has open.
func (s *store) evict(keep string) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.log.Warn("cannot evict compiled modules", "err", err)
		return
	}
	var files []fs.FileInfo
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // another process removed it
		}
		if strings.HasPrefix(info.Name(), draftPrefix) {
			if time.Since(info.ModTime()) > maxDraftAge {
				_ = os.Remove(filepath.Join(s.dir, info.Name())) // the next call tries again
			}
			continue
		}
		files, total = append(files, info), total+info.Size()
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files {
		path := filepath.Join(s.dir, f.Name())
		if total <= s.limit {
			return
		}
		if path == keep {
			continue
		}
		if err := os.Remove(path); err == nil || errors.Is(err, fs.ErrNotExist) {
			total -= f.Size()
		}
	}
}
