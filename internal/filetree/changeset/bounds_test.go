package changeset_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
)

// The list of a sandbox that names too many files, or too long names, is rejected before it uses up
// the server's memory.
func TestReadTreeEnforcesLimits(t *testing.T) {
	deep := strings.Repeat(strings.Repeat("d", 200)+"/", 20)
	for name, c := range map[string]struct {
		path  string
		limit int
	}{"files": {"f", 500_000}, "names": {deep, 64 << 20 / len(deep)}} {
		in, out := io.Pipe()
		go func() {
			for n := range c.limit + c.limit/4 {
				if _, err := fmt.Fprintf(out, `{"path":"%s%d","type":"file","mode":420}`+"\n", c.path, n); err != nil {
					return
				}
			}
			out.CloseWithError(io.ErrUnexpectedEOF)
		}()
		_, err := changeset.ReadTree(in, changeset.Bounds{})
		in.Close()
		if fault.CodeOf(err) != "tree_too_large" {
			t.Errorf("%s: ReadTree: error %v", name, err)
		}
	}
}
