package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
)

// exported is a line of an exported file that is not an entry. The file consists of lines of JSON.
// It begins with a header that names the audit log. Then follow entries as they are in the log, and
// lines that represent omitted entries. The last line has the signed tree head that covers all of
// them.
type exported struct {
	Header  *exportHeader `json:"record,omitempty"`
	LeftOut *leftOut      `json:"left_out,omitempty"`
	End     *exportEnd    `json:"end,omitempty"`
}

type exportHeader struct {
	Version int    `json:"version"`
	Key     string `json:"key"`
}

// leftOut represents the omitted entries from..to.
type leftOut struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Prev is the hash of the previous line, if that line is in the file.
	Prev string `json:"prev,omitempty"`
	// Hashes are the roots of the complete subtrees that these entries form.
	Hashes []string `json:"hashes"`
}

type exportEnd struct {
	Prev string `json:"prev,omitempty"`
	Size int64  `json:"size"`
	Root string `json:"root"`
	Note string `json:"note"`
}

const exportVersion = 1

// Export writes the entries that match a filter, in a format that VerifyFile checks without the
// log. The check detects changed entries, and omitted entries that are not marked as omitted.
func (l *Log) Export(ctx context.Context, w io.Writer, filter Filter) (err error) {
	c, err := l.Checkpoint(ctx)
	if err != nil {
		return err
	}
	if filter.Before == 0 || filter.Before > c.Size {
		filter.Before = c.Size
	}
	f, err := openAt(l.path(hashesName), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	x := &exporter{out: bufio.NewWriter(w), tree: treeOf(f, c.Size)}
	if err := x.writeLine(exported{Header: &exportHeader{exportVersion, l.key}}); err != nil {
		return err
	}
	if c.Size > 0 {
		if err := l.readLines(ctx, filter, false, x.writeEntry); err != nil {
			return err
		}
	}
	if err := x.omit(c.Size); err != nil {
		return err
	}
	return errors.Join(x.writeLine(exported{End: &exportEnd{Prev: x.prev, Size: c.Size, Root: c.Root, Note: c.Note}}), x.out.Flush())
}

// exporter writes an exported file.
type exporter struct {
	out  *bufio.Writer
	tree *hashTree
	next int64  // number of the entry after the last written or omitted one
	prev string // hash of the last written line, or ""
}

func (x *exporter) writeLine(line exported) error {
	data, err := json.Marshal(line)
	if err != nil {
		return err
	}
	_, err = x.out.Write(append(data, '\n'))
	return err
}

// writeEntry writes the line of an entry, after a line for the omitted entries before it.
func (x *exporter) writeEntry(e Entry, line []byte) error {
	if err := x.omit(e.Seq); err != nil {
		return err
	}
	x.next, x.prev = e.Seq+1, hashOf(line)
	if _, err := x.out.Write(line); err != nil {
		return err
	}
	return x.out.WriteByte('\n')
}

// omit writes a line that represents the omitted entries before entry to, if there are any.
func (x *exporter) omit(to int64) error {
	if x.next >= to {
		return nil
	}
	_, indexes := subtrees(x.next, to)
	hashes, err := x.tree.ReadHashes(indexes)
	if err != nil {
		return err
	}
	gap := &leftOut{From: x.next, To: to, Prev: x.prev, Hashes: encodeHashes(hashes)}
	x.next, x.prev = to, ""
	return x.writeLine(exported{LeftOut: gap})
}
