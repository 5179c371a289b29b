package crannog

import (
	"io"
	"io/fs"
)

// file reads one file. The first Read requests its content, so that Stat costs one
// call.
type file struct {
	fs     *FS
	name   string
	info   fs.FileInfo
	body   io.ReadCloser
	closed bool
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }

func (f *file) Read(p []byte) (int, error) {
	if f.closed {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrClosed}
	}
	if f.body == nil {
		body, err := f.fs.download(f.name)
		if err != nil {
			return 0, &fs.PathError{Op: "read", Path: f.name, Err: err}
		}
		f.body = body
	}
	return f.body.Read(p)
}

func (f *file) Close() error {
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.closed = true
	if f.body == nil {
		return nil
	}
	return f.body.Close()
}

// directory is read once and returns its entries in pieces.
type directory struct {
	fs      *FS
	name    string
	info    fs.FileInfo
	entries []fs.DirEntry
	listed  bool
}

func (d *directory) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *directory) Close() error               { return nil }

func (d *directory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: fs.ErrInvalid}
}

func (d *directory) ReadDir(n int) ([]fs.DirEntry, error) {
	if !d.listed {
		entries, err := d.fs.ReadDir(d.name)
		if err != nil {
			return nil, err
		}
		d.entries, d.listed = entries, true
	}
	if n > 0 && len(d.entries) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(d.entries) {
		n = len(d.entries)
	}
	head := d.entries[:n:n]
	d.entries = d.entries[n:]
	return head, nil
}
