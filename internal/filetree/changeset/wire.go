package changeset

import (
	"context"
	"io"
	"time"
)

// Box is where a sandbox's files are read from: its guest, over the control
// service. What comes from it is to be taken as the sandbox's own words.
type Box interface {
	// Tree answers what guest.PathTree does.
	Tree(ctx context.Context, req TreeRequest) (io.ReadCloser, error)
	// Pack answers what guest.PathPack does.
	Pack(ctx context.Context, req PackRequest) (io.ReadCloser, error)
	// Hide is what must not be seen of its files and names: a Hide. It is asked
	// anew for each of them, and changes nothing of what the others answer.
	Hide() Hider
}

// TreeRequest asks a guest for what lies below a directory. The answer is what
// ReadTree reads.
type TreeRequest struct {
	Dir string `json:"dir"` // absolute and clean
	// Paths, if not nil, are the only ones that are looked at, without what is
	// below them. They are bytes: names need not be text.
	Paths [][]byte `json:"paths,omitempty"`
	// Sums asks for the sums of files up to SumBytes.
	Sums     bool  `json:"sums,omitempty"`
	SumBytes int64 `json:"sum_bytes,omitempty"`
	// Newer, if set, leaves out files whose ctime is before it. Directories are
	// always there.
	Newer time.Time `json:"newer,omitzero"`
}

// PackRequest asks a guest for the content of regular files. The answer is
// what Extract reads.
type PackRequest struct {
	Dir       string   `json:"dir"`
	Paths     [][]byte `json:"paths"`
	FileBytes int64    `json:"file_bytes"` // larger ones are left out
}

// PackEnd is the record of a pack's last header, with the number of files. A
// stream without it was cut.
const PackEnd = "CRANNOG.end"

func asBytes(paths []string) [][]byte {
	out := make([][]byte, len(paths))
	for i, p := range paths {
		out[i] = []byte(p)
	}
	return out
}

// line is what stands for an entry on the wire.
type line struct {
	Path string `json:"path,omitempty"`
	// Raw is a path that is no text; RawTarget a target.
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
	// End is the last line, with the number of those before it.
	End   bool `json:"end,omitempty"`
	Count int  `json:"count,omitempty"`
}
