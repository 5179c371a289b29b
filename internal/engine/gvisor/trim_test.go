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

// TestCheckpointReleasesUntouchedMemory reads from a state how much memory gVisor had to search for
// data during the checkpoint: memory that programs had reserved and never written.
func TestCheckpointReleasesUntouchedMemory(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	c := enginetest.Config{Open: open(false), Image: root(t)}
	dir := c.Saved(t, "(python3 -c 'import time; time.sleep(600)' & bash -c 'sleep 600; :' & sleep 600 &) >/dev/null 2>&1; python3 -c 'import json, threading'")
	data, err := os.ReadFile(filepath.Join(dir, "pages_meta.img"))
	if err != nil {
		t.Fatal(err)
	}
	// The file begins with the length of the description of the memory.
	size := binary.LittleEndian.Uint64(data)
	var memory pgallocpb.MemoryFileMetadataProto
	if err := proto.Unmarshal(data[8:8+size], &memory); err != nil {
		t.Fatal(err)
	}
	var used, empty uint64
	for _, r := range memory.MemAcct {
		if r.KnownCommitted {
			used += r.End - r.Start
		} else {
			empty += r.End - r.Start
		}
	}
	t.Logf("%d KB have content, %d KB have none", used>>10, empty>>10)
	if empty >= 4<<20 {
		t.Errorf("gVisor searched %d bytes without content, want less than 4 MiB", empty)
	}
	if used < 1<<20 {
		t.Errorf("control: only %d bytes have content, want at least 1 MiB", used)
	}
}
