package snapshot

import (
	"crypto/sha256"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// digest is a SHA-256.
type digest = [sha256.Size]byte

// identity identifies a file in a certain state. It includes the change time, which only the kernel
// sets, so it also differs after a program changed a file and restored its size and modification
// time.
type identity struct {
	Device   uint64 `json:"device"`
	Inode    uint64 `json:"inode"`
	Bytes    int64  `json:"bytes"`
	Modified int64  `json:"modified"`
	Changed  int64  `json:"changed"`
}

func identify(f *os.File) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return identity{}, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	return identity{
		Device: st.Dev, Inode: st.Ino, Bytes: st.Size,
		Modified: unix.TimespecToNsec(st.Mtim), Changed: unix.TimespecToNsec(st.Ctim),
	}, nil
}

// maxHashes limits a hashCache. Some tens of thousands of images in use would reach it.
const maxHashes = 1 << 16

// hashCache has the hashes of files that this process has read, so that a second lease need not
// read them.
type hashCache struct {
	mu   sync.Mutex
	seen map[identity]digest
}

func newHashCache() *hashCache { return &hashCache{seen: map[identity]digest{}} }

// holds reports whether a file in exactly this state was read and had that hash.
func (m *hashCache) holds(i identity, d digest) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	got, ok := m.seen[i]
	return ok && got == d
}

func (m *hashCache) add(i identity, d digest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.seen) >= maxHashes {
		clear(m.seen)
	}
	m.seen[i] = d
}
