package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"
)

// key identifies a compiled module. wazero derives it from the module's content, its own version
// and the processor's features.
type key = [32]byte

// store is the cache that wazero reads and writes. wazero itself offers only a directory, in which
// every file would have to be trusted. A store contains only the module that this process received.
type store struct {
	key  key
	code []byte
	// mapped is the file with the key and the code.
	mapped []byte
	// out receives the compiled module. If it is nil, the module is dropped.
	out io.Writer
}

// Get implements wazero's cache.
func (s *store) Get(k key) (io.ReadCloser, bool, error) {
	if s.code == nil || k != s.key {
		return nil, false, nil
	}
	return io.NopCloser(bytes.NewReader(s.code)), true, nil
}

// Add implements wazero's cache.
func (s *store) Add(k key, code io.Reader) error {
	if s.out == nil {
		return nil
	}
	if _, err := s.out.Write(k[:]); err != nil {
		return err
	}
	_, err := io.Copy(s.out, code)
	return err
}

// Delete implements wazero's cache.
func (s *store) Delete(key) error {
	s.code = nil
	return nil
}

// errStore is returned if this version of wazero does not accept a store.
var errStore = errors.New("this version of wazero does not accept the store of compiled modules")

// cache returns a wazero cache that uses the store. It sets an unexported field, because wazero has
// no other way to store compiled code outside of a directory.
func (s *store) cache() (c wazero.CompilationCache, err error) {
	c = wazero.NewCompilationCache()
	field := reflect.ValueOf(c).Elem().FieldByName("fileCache")
	value := reflect.ValueOf(s)
	if !field.IsValid() || !field.CanAddr() || !value.Type().AssignableTo(field.Type()) {
		return c, errStore
	}
	reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().Set(value)
	return c, nil
}

// readStore reads a compiled module.
func readStore(from *os.File) (*store, error) {
	mapped, err := mapFile(from)
	if err != nil {
		return nil, err
	}
	s := &store{mapped: mapped}
	if len(mapped) <= len(s.key) {
		s.close()
		return nil, io.ErrUnexpectedEOF
	}
	s.code = mapped[copy(s.key[:], mapped):]
	return s, nil
}

// close releases the compiled module, after wazero has copied it.
func (s *store) close() {
	if s.mapped != nil {
		_ = unix.Munmap(s.mapped) // it can only fail for memory that is not a mapping
		s.mapped, s.code = nil, nil
	}
}

// settings returns the configuration of every runtime. It must be the same when a module is
// compiled and when it runs.
func settings() wazero.RuntimeConfig {
	return wazero.NewRuntimeConfigCompiler().WithDebugInfoEnabled(false)
}

// compile reads a module and writes the compiled module. The module may be hostile, so the process
// has dropped its rights before it reads the first byte.
func compile(in io.Reader, out *os.File) error {
	if err := limitCompiler(); err != nil {
		return err
	}
	if err := confine(nil); err != nil {
		return err
	}
	module, err := readModule(in)
	if err != nil {
		return err
	}
	cache, err := (&store{out: out}).cache()
	if err != nil {
		return err
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, settings().WithCompilationCache(cache))
	if _, err := r.CompileModule(ctx, module); err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	return nil
}
