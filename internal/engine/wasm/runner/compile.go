package runner

import (
	"bytes"
	"context"
	"encoding/binary"
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
	// key is the key of the outline, under which wazero finds the code.
	key     key
	outline []byte
	code    []byte
	// used is set when wazero has taken the code.
	used bool
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
	s.used = true
	return io.NopCloser(bytes.NewReader(s.code)), true, nil
}

// Add implements wazero's cache.
func (s *store) Add(k key, code io.Reader) error {
	s.key = k
	if s.out == nil {
		return nil
	}
	_, err := io.Copy(s.out, code)
	return err
}

// Delete implements wazero's cache.
func (s *store) Delete(key) error {
	s.code, s.used = nil, false // wazero calls this if it does not take the code
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
	rest := mapped[copy(s.key[:], mapped):]
	if len(rest) <= sizeBytes {
		s.close()
		return nil, io.ErrUnexpectedEOF
	}
	size := int(binary.LittleEndian.Uint32(rest))
	if rest = rest[sizeBytes:]; size >= len(rest) {
		s.close()
		return nil, io.ErrUnexpectedEOF
	}
	s.outline, s.code = bytes.Clone(rest[:size]), rest[size:]
	return s, nil
}

// sizeBytes is the size of the number in front of the outline.
const sizeBytes = 4

// load loads the compiled module into a runtime that has the store as its cache. It returns nil if
// wazero did not take the code, for example because the processor is another one.
func (s *store) load(ctx context.Context, r wazero.Runtime) wazero.CompiledModule {
	m, err := r.CompileModule(ctx, s.outline)
	if err == nil && s.used {
		return m
	}
	// Without the code, the outline would be compiled as it is, and every function of it traps.
	return nil
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
	return writeCompiled(module, out)
}

// writeCompiled compiles a module and writes the file that readStore reads.
func writeCompiled(module []byte, out io.Writer) error {
	var code bytes.Buffer
	if _, err := compileTo(&store{out: &code}, module); err != nil {
		return err
	}
	short, err := outline(module)
	if err != nil {
		return err
	}
	// wazero derives the key of the outline when it compiles it.
	k, err := compileTo(&store{}, short)
	if err != nil {
		return err
	}
	head := append(k[:], binary.LittleEndian.AppendUint32(nil, uint32(len(short)))...)
	for _, part := range [][]byte{head, short, code.Bytes()} {
		if _, err := out.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// compileTo compiles a module, so that wazero writes its code to the store, and returns its key.
func compileTo(s *store, module []byte) (key, error) {
	cache, err := s.cache()
	if err != nil {
		return key{}, err
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, settings().WithCompilationCache(cache))
	defer r.Close(ctx)
	if _, err := r.CompileModule(ctx, module); err != nil {
		return key{}, fmt.Errorf("compile: %w", err)
	}
	return s.key, nil
}
