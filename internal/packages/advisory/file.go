package advisory

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
)

// A database is one file: magic, the SHA-256 of the header, the header's length, the header as
// JSON, an index, and a block of JSON for each package. The index is ordered by the hashes of the
// packages' names and has the place and the SHA-256 of each block. So a reader verifies what it
// uses without reading the whole file, and keeps only the index in memory.
const (
	magic      = "crnadv\x00\x01"
	prefixSize = len(magic) + sha256.Size + 4
	keySize    = 16
	entrySize  = keySize + 8 + 4 + sha256.Size

	maxHeader   = 64 << 10
	maxPackages = 1_000_000
	maxRecords  = 1_000_000
	// maxBlock limits what is read about one package. The largest are about Linux kernels.
	maxBlock = 32 << 20
	// maxFile limits a database.
	maxFile = 1 << 30
	// maxReleases limits the releases of a distribution.
	maxReleases = 1024
)

// Info describes a database.
type Info struct {
	Ecosystem packages.Ecosystem `json:"ecosystem"`
	// Releases are the releases of distributions that the database knows.
	Releases   []string  `json:"releases,omitempty"`
	Advisories int       `json:"advisories"`
	Packages   int       `json:"packages"`
	Imported   time.Time `json:"imported"`
	// Modified is when the newest advisory was last modified by its publisher.
	Modified time.Time `json:"modified,omitzero"`
}

// header is the header of a file.
type header struct {
	Info
	Index string `json:"index"` // SHA-256 of the index
	Size  int64  `json:"size"`  // of all blocks
}

// key returns the name of a package in the index.
func key(name string) [keySize]byte {
	sum := sha256.Sum256([]byte(name))
	return [keySize]byte(sum[:keySize])
}

func damaged(err error) error {
	return fault.Wrap(err, fault.Unavailable, "advisories_damaged", "the advisory database is damaged").
		WithHint("remove it with crannog cache advisories rm, and import it again")
}

// encode writes a database. blocks has the JSON of each package.
func encode(w io.Writer, info Info, blocks map[string][]byte) error {
	if len(blocks) > maxPackages {
		return tooLarge("the advisories are about more than %d packages", maxPackages)
	}
	names := slices.SortedFunc(maps.Keys(blocks), func(a, b string) int {
		ka, kb := key(a), key(b)
		return cmp.Or(bytes.Compare(ka[:], kb[:]), cmp.Compare(a, b))
	})
	index := make([]byte, 0, len(names)*entrySize)
	at := int64(0)
	for _, name := range names {
		block := blocks[name]
		if len(block) > maxBlock {
			return tooLarge("the advisories about %s take more than %d bytes", name, maxBlock)
		}
		k, sum := key(name), sha256.Sum256(block)
		index = append(index, k[:]...)
		index = binary.BigEndian.AppendUint64(index, uint64(at))
		index = binary.BigEndian.AppendUint32(index, uint32(len(block)))
		index = append(index, sum[:]...)
		at += int64(len(block))
	}
	sum := sha256.Sum256(index)
	info.Packages = len(names)
	text, err := json.Marshal(header{Info: info, Index: fmt.Sprintf("%x", sum), Size: at})
	if err != nil {
		return err
	}
	if len(text) > maxHeader || int64(prefixSize+len(text)+len(index))+at > maxFile {
		return tooLarge("the database of %s would be larger than %d bytes", info.Ecosystem, maxFile)
	}
	sum = sha256.Sum256(text)
	prefix := append([]byte(magic), sum[:]...)
	prefix = binary.BigEndian.AppendUint32(prefix, uint32(len(text)))
	for _, part := range [][]byte{prefix, text, index} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	for _, name := range names {
		if _, err := w.Write(blocks[name]); err != nil {
			return err
		}
	}
	return nil
}

// file is an open database.
type file struct {
	header
	content io.ReaderAt
	index   []byte
	start   int64 // of the blocks
}

// decode opens a database of a number of bytes. It verifies the header and the index, so that a
// package cannot seem to have no advisories because of damage.
func decode(content io.ReaderAt, size int64, e packages.Ecosystem) (*file, error) {
	prefix := make([]byte, prefixSize)
	if _, err := content.ReadAt(prefix, 0); err != nil {
		return nil, damaged(err)
	}
	n := binary.BigEndian.Uint32(prefix[prefixSize-4:])
	if string(prefix[:len(magic)]) != magic || n > maxHeader || size > maxFile {
		return nil, damaged(errors.New("it has no valid header"))
	}
	text := make([]byte, n)
	if _, err := content.ReadAt(text, int64(prefixSize)); err != nil {
		return nil, damaged(err)
	}
	if sum := sha256.Sum256(text); !bytes.Equal(sum[:], prefix[len(magic):len(magic)+sha256.Size]) {
		return nil, damaged(errors.New("its header has another digest"))
	}
	f := &file{content: content}
	if err := json.Unmarshal(text, &f.header); err != nil {
		return nil, damaged(err)
	}
	indexSize := int64(f.Packages) * entrySize
	f.start = int64(prefixSize) + int64(n) + indexSize
	if f.Packages < 0 || f.Packages > maxPackages || f.Ecosystem != e || f.Size < 0 || f.start+f.Size != size {
		return nil, damaged(errors.New("it is not what its header says"))
	}
	f.index = make([]byte, indexSize)
	if _, err := content.ReadAt(f.index, int64(prefixSize)+int64(n)); err != nil && indexSize > 0 {
		return nil, damaged(err)
	}
	if sum := sha256.Sum256(f.index); fmt.Sprintf("%x", sum) != f.Index {
		return nil, damaged(errors.New("its index has another digest"))
	}
	return f, nil
}

// records returns the records about a package, and their size.
func (f *file) records(name string) ([]record, int64, error) {
	want := key(name)
	low, high := 0, f.Packages
	for low < high {
		mid := (low + high) / 2
		if bytes.Compare(f.index[mid*entrySize:mid*entrySize+keySize], want[:]) < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == f.Packages || !bytes.Equal(f.index[low*entrySize:low*entrySize+keySize], want[:]) {
		return nil, keySize, nil
	}
	b, err := f.block(low)
	if err == nil && b.Package != name {
		err = damaged(errors.New("a block is about another package"))
	}
	return b.Records, b.size, err
}

// block is what a file has about one package.
type block struct {
	Package string   `json:"package"`
	Records []record `json:"records"`
	size    int64
}

// block reads the block of an entry of the index.
func (f *file) block(n int) (block, error) {
	var out block
	entry := f.index[n*entrySize : (n+1)*entrySize]
	at, size := binary.BigEndian.Uint64(entry[keySize:]), binary.BigEndian.Uint32(entry[keySize+8:])
	if size > maxBlock || at > uint64(f.Size) || int64(at)+int64(size) > f.Size {
		return out, damaged(errors.New("its index leads out of it"))
	}
	text := make([]byte, size)
	if _, err := f.content.ReadAt(text, f.start+int64(at)); err != nil {
		return out, damaged(err)
	}
	if sum := sha256.Sum256(text); !bytes.Equal(sum[:], entry[keySize+12:]) {
		return out, damaged(errors.New("a block has another digest"))
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, damaged(err)
	}
	out.size = int64(size)
	return out, nil
}
