package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	experimental "github.com/tetratelabs/wazero/experimental/sys"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/wasm/quickjs"
)

// maxFile is the maximum size of a file that code reads as a whole.
const maxFile = 256 << 20

// workerHost answers the operations of the worker's program. Code of the context can reach them too,
// because it can replace functions that the program uses. So they are no more than what every
// module can do.
type workerHost struct {
	tree     *tree
	messages io.Writer
	acks     io.Reader
	// ended is set if the program requests the end of the worker.
	ended bool
}

// Call implements quickjs.Host.
func (h *workerHost) Call(operation string, arguments [][]byte) (quickjs.Result, error) {
	switch operation {
	case "end":
		h.ended = true
		return quickjs.Result{}, nil
	case "out", "err":
		to := os.Stdout
		if operation == "err" {
			to = os.Stderr
		}
		_, err := to.Write(bytes.Join(arguments, nil))
		return quickjs.Result{}, err
	case "send", "sendAndWait":
		_, err := h.messages.Write(append(bytes.Join(arguments, nil), '\n'))
		if err == nil && operation == "sendAndWait" {
			_, err = io.ReadFull(h.acks, make([]byte, 1))
		}
		return quickjs.Result{}, err
	}
	if len(arguments) == 0 {
		return quickjs.Result{}, fmt.Errorf("operation %s has no path", operation)
	}
	path := string(arguments[0])
	dir, name, err := h.tree.find(path)
	if err != nil {
		return quickjs.Result{}, codeError(err, operation, path)
	}
	result, err := h.file(operation, dir, name, arguments[1:])
	return result, codeError(err, operation, path)
}

// find returns the directory that a module sees and in which an absolute path is, and the rest of
// the path.
func (t *tree) find(path string) (*directory, string, error) {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return nil, "", unix.EINVAL
	}
	path = filepath.Clean(path)
	for _, d := range t.dirs {
		if rest, found := strings.CutPrefix(path+"/", d.path+"/"); found {
			return d, filepath.Clean("./" + rest), nil
		}
	}
	return nil, "", fs.ErrNotExist
}

// file answers an operation on a file. No path leads out of the root (tree.go).
func (h *workerHost) file(operation string, dir *directory, name string, arguments [][]byte) (quickjs.Result, error) {
	root := dir.root
	data := bytes.Join(arguments, nil)
	var result quickjs.Result
	var err error
	switch operation {
	case "read":
		result.Data, err = readFile(root, name)
		result.Binary = true
	case "write":
		err = writeFile(root, name, os.O_TRUNC, data)
	case "append":
		err = writeFile(root, name, os.O_APPEND, data)
	case "list":
		result.Data, err = listDirectory(root, name)
	case "stat":
		result.Data, err = describe(dir, name)
	case "mkdir":
		err = root.Mkdir(name, 0o777)
	case "mkdirs":
		err = root.MkdirAll(name, 0o777)
	case "remove":
		err = root.Remove(name)
	case "removeAll":
		err = root.RemoveAll(name)
	default:
		err = fmt.Errorf("unknown operation %s", operation)
	}
	return result, err
}

// readFile reads a file.
func readFile(root *os.Root, name string) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe without a writer must not block
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = unix.EFBIG
	}
	return data, err
}

// writeFile writes to a file.
func writeFile(root *os.Root, name string, flag int, data []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|flag, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// entry describes a file to code.
type entry struct {
	Name  string  `json:"name"`
	Dir   bool    `json:"dir"`
	Link  bool    `json:"link"`
	Size  int64   `json:"size"`
	Mode  uint32  `json:"mode"`
	Mtime float64 `json:"mtimeMs"`
}

// listDirectory lists a directory, in the order of the names.
func listDirectory(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	list := make([]entry, 0, len(found))
	for _, e := range found {
		list = append(list, entry{Name: e.Name(), Dir: e.IsDir(), Link: e.Type()&fs.ModeSymlink != 0})
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return json.Marshal(list)
}

// describe describes a file.
func describe(dir *directory, name string) ([]byte, error) {
	info, err := dir.root.Stat(name)
	if err != nil {
		return nil, err
	}
	st, errno := dir.stat(info, nil, name)
	if errno != 0 {
		return nil, errno
	}
	return json.Marshal(entry{Name: info.Name(), Dir: info.IsDir(), Size: st.Size, Mode: uint32(info.Mode().Perm()), Mtime: float64(st.Mtim / 1e6)})
}

// codeError returns an error whose text begins with its name, as JavaScript programs expect it.
func codeError(err error, operation, path string) error {
	if err == nil {
		return nil
	}
	errno := unix.EIO
	n, ok := errors.AsType[unix.Errno](err)
	switch {
	case ok:
		errno = n
	case errors.Is(err, fs.ErrNotExist):
		errno = unix.ENOENT
	case code(err) == experimental.EPERM:
		errno = unix.EPERM
	}
	return fmt.Errorf("%s: %s, %s '%s'", unix.ErrnoName(errno), errno, operation, path)
}
