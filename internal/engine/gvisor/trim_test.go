package gvisor_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
	pgallocpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"

	"github.com/crannog/crannog/internal/engine/enginetest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// TestUntouchedMemoryIsGivenBack reads from a state how much memory gVisor had to search during the
// save: memory that programs had reserved and never written.
func TestUntouchedMemoryIsGivenBack(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	c := enginetest.Config{Open: open(false), Image: root(t)}
	dir := c.Saved(t, "(python3 -c 'import time; time.sleep(600)' & bash -c 'sleep 600; :' & sleep 600 &) >/dev/null 2>&1; python3 -c 'import json, threading'")
	data, err := os.ReadFile(filepath.Join(dir, "pages_meta.img"))
	if err != nil {
		t.Fatal(err)
	}
	// The length of the memory of programs comes first, followed by the memory.
	size := binary.LittleEndian.Uint64(data)
	var memory pgallocpb.MemoryFileMetadataProto
	if err := proto.Unmarshal(data[8:8+size], &memory); err != nil {
		t.Fatal(err)
	}
	var held, empty uint64
	for _, r := range memory.MemAcct {
		if r.KnownCommitted {
			held += r.End - r.Start
		} else {
			empty += r.End - r.Start
		}
	}
	t.Logf("%d KB hold something, %d KB do not", held>>10, empty>>10)
	if empty >= 4<<20 {
		t.Errorf("gVisor looked through %d bytes that hold nothing", empty)
	}
	if held < 1<<20 {
		t.Errorf("only %d bytes hold something: that is no box", held)
	}
}
