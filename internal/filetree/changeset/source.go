package changeset

import (
	"context"
	"io"
	"time"
)

// Source provides a sandbox's files: its guest, through the control service. Its answers are not
// trusted.
type Source interface {
	// Tree returns the guest's answer to guest.PathTree.
	Tree(ctx context.Context, req TreeRequest) (io.ReadCloser, error)
	// Pack returns the guest's answer to guest.PathPack.
	Pack(ctx context.Context, req PackRequest) (io.ReadCloser, error)
	// Redactor returns the redactor for the sandbox's files and names. It is called again for each
	// of them, and does not affect the other methods.
	Redactor() Redactor
}

// TreeRequest requests the list of files below a directory. ReadTree reads the answer.
type TreeRequest struct {
	Dir string `json:"dir"` // absolute and clean
	// Paths, if not nil, restricts the answer to these paths, without the files below them. They
	// are bytes, because names need not be UTF-8.
	Paths [][]byte `json:"paths,omitempty"`
	// Sums requests the checksums of files of up to SumBytes bytes.
	Sums     bool  `json:"sums,omitempty"`
	SumBytes int64 `json:"sum_bytes,omitempty"`
	// Newer, if set, leaves out files whose ctime is before it. Directories are always included.
	Newer time.Time `json:"newer,omitzero"`
}

// PackRequest requests the content of regular files. Extract reads the answer.
type PackRequest struct {
	Dir       string   `json:"dir"`
	Paths     [][]byte `json:"paths"`
	FileBytes int64    `json:"file_bytes"` // larger ones are left out
}

// PackEnd is the PAX record of a pack's last header, with the number of files. A stream without it
// is truncated.
const PackEnd = "CRANNOG.end"

// asBytes converts paths for a request.
func asBytes(paths []string) [][]byte {
	out := make([][]byte, len(paths))
	for i, p := range paths {
		out[i] = []byte(p)
	}
	return out
}

// line is an entry in the wire format.
type line struct {
	Path string `json:"path,omitempty"`
	// Raw is a path that is not UTF-8, and RawTarget such a link target.
	Raw       []byte `json:"raw,omitempty"`
	Type      Type   `json:"type,omitempty"`
	Mode      uint32 `json:"mode,omitempty"`
	Size      int64  `json:"size,omitempty"`
	MTime     int64  `json:"mtime,omitempty"` // nanoseconds
	CTime     int64  `json:"ctime,omitempty"`
	Sum       string `json:"sum,omitempty"`
	Target    string `json:"target,omitempty"`
	RawTarget []byte `json:"raw_target,omitempty"`
	Opaque    bool   `json:"opaque,omitempty"`
	// End marks the last line, with the number of lines before it.
	End   bool `json:"end,omitempty"`
	Count int  `json:"count,omitempty"`
}
