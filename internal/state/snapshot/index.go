package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"slices"
)

const (
	pageBytes  = 4096
	indexMagic = "crannog index 1\n"
	// maxIndexBytes limits the memory for an index. A gigabyte of pages of which no two are
	// adjacent has an index of 5 MiB.
	maxIndexBytes = 256 << 20
	maxPacks      = 1 << 16
	runBytes      = 4 + 8 + 8
	headSize      = len(indexMagic) + 8 + 4 + 4
)

// index describes how a file of pages is assembled. It needs no authentication, because the result
// is authenticated: with a wrong index, Verify rejects the image.
type index struct {
	pages uint64
	packs []string
	runs  []run
}

// run is a sequence of pages that are adjacent in both the image and a pack.
type run struct {
	pack  uint32 // 0 is a hole of zeros, others are packs[pack-1]
	at    uint64 // first page in the pack
	count uint64
}

// add appends a page.
func (x *index) add(pack uint32, at uint64) {
	x.pages++
	if n := len(x.runs); n > 0 {
		last := &x.runs[n-1]
		if last.pack == pack && (pack == 0 || last.at+last.count == at) {
			last.count++
			return
		}
	}
	if pack == 0 {
		at = 0
	}
	x.runs = append(x.runs, run{pack, at, 1})
}

// compact removes packs that no run needs.
func (x *index) compact() {
	used := make([]uint32, len(x.packs)+1)
	var packs []string
	for i, r := range x.runs {
		if r.pack == 0 {
			continue
		}
		if used[r.pack] == 0 {
			packs = append(packs, x.packs[r.pack-1])
			used[r.pack] = uint32(len(packs))
		}
		x.runs[i].pack = used[r.pack]
	}
	x.packs = packs
}

func (x index) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, headSize+len(x.packs)*packNameLen+len(x.runs)*runBytes+sha256.Size)
	b = append(b, indexMagic...)
	b = le.AppendUint64(b, x.pages)
	b = le.AppendUint32(b, uint32(len(x.packs)))
	b = le.AppendUint32(b, uint32(len(x.runs)))
	for _, p := range x.packs {
		b = append(b, p...)
	}
	for _, r := range x.runs {
		b = le.AppendUint32(b, r.pack)
		b = le.AppendUint64(b, r.at)
		b = le.AppendUint64(b, r.count)
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

var errIndex = errors.New("index: unknown format")

func decodeIndex(data []byte) (index, error) {
	le := binary.LittleEndian
	if len(data) < headSize+sha256.Size || len(data) > maxIndexBytes || !bytes.HasPrefix(data, []byte(indexMagic)) {
		return index{}, errIndex
	}
	body, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if want := sha256.Sum256(body); !bytes.Equal(want[:], sum) {
		return index{}, errors.New("index: changed")
	}
	b := body[len(indexMagic):]
	x := index{pages: le.Uint64(b)}
	packs, runs := int64(le.Uint32(b[8:])), int64(le.Uint32(b[12:]))
	b = b[16:]
	if packs > maxPacks || int64(len(b)) != packs*packNameLen+runs*runBytes || x.pages > maxBytes/pageBytes {
		return index{}, errIndex
	}
	for range packs {
		name := string(b[:packNameLen])
		if !validPack(name) || slices.Contains(x.packs, name) {
			return index{}, errIndex
		}
		x.packs, b = append(x.packs, name), b[packNameLen:]
	}
	var pages uint64
	for range runs {
		r := run{le.Uint32(b), le.Uint64(b[4:]), le.Uint64(b[12:])}
		b = b[runBytes:]
		const limit = maxBytes / pageBytes
		if int64(r.pack) > packs || r.count == 0 || r.count > limit || r.at > limit || r.pack == 0 && r.at != 0 {
			return index{}, errIndex
		}
		if pages += r.count; pages > x.pages {
			return index{}, errIndex
		}
		x.runs = append(x.runs, r)
	}
	if pages != x.pages {
		return index{}, errIndex
	}
	return x, nil
}

// readIndex reads an image's index.
func (s *Images) readIndex(id string) (index, error) {
	f, err := openRegular(s.root, imagePath(id, indexFile))
	if err != nil {
		return index{}, readFault(id, indexFile, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIndexBytes+1))
	if err != nil {
		return index{}, readFault(id, indexFile, err)
	}
	x, err := decodeIndex(data)
	if err != nil {
		return index{}, damaged(id, "its index was changed", err)
	}
	return x, nil
}
