package objects

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sort"

	"github.com/crannog/crannog/internal/filetree/gitrepo/varint"
)

// pack is a file of many objects, with an index of version 2.
type pack struct {
	files      Files
	base       string
	index, all *os.File
	err        error
	fanout     [256]uint32
}

// open opens the pack's files if necessary.
func (p *pack) open(r *Reader) error {
	if p.index != nil || p.err != nil {
		return p.err
	}
	p.err = p.openBoth(r)
	return p.err
}

// openBoth opens the index and the pack, and reads the index's fan-out table.
func (p *pack) openBoth(r *Reader) (err error) {
	if p.index, err = p.files.Open(p.base + ".idx"); err != nil {
		return err
	}
	r.close = append(r.close, p.index)
	if p.all, err = p.files.Open(p.base + ".pack"); err != nil {
		return err
	}
	r.close = append(r.close, p.all)
	var head [8 + 1024]byte
	if _, err := p.index.ReadAt(head[:], 0); err != nil || !bytes.Equal(head[:8], []byte("\xfftOc\x00\x00\x00\x02")) {
		return fmt.Errorf("%w: %s has no index of version 2", errMalformed, p.base)
	}
	for i := range p.fanout {
		p.fanout[i] = binary.BigEndian.Uint32(head[8+4*i:])
		if i > 0 && p.fanout[i] < p.fanout[i-1] {
			return fmt.Errorf("%w: the index of %s is out of order", errMalformed, p.base)
		}
	}
	return nil
}

// lookup returns the offset of an object.
func (p *pack) lookup(r *Reader, raw []byte) (int64, error) {
	if err := p.open(r); err != nil {
		return 0, err
	}
	low, high := uint32(0), p.fanout[raw[0]]
	if raw[0] > 0 {
		low = p.fanout[raw[0]-1]
	}
	count, size := int64(p.fanout[255]), int64(len(raw))
	name := make([]byte, size)
	var failed error
	names := int64(8 + 1024)
	n := sort.Search(int(high-low), func(i int) bool {
		if _, err := p.index.ReadAt(name, names+(int64(low)+int64(i))*size); err != nil {
			failed = err
		}
		return bytes.Compare(name, raw) >= 0
	})
	at := int64(low) + int64(n)
	if failed != nil {
		return 0, fmt.Errorf("%w: the index of %s is truncated", errMalformed, p.base)
	}
	if n == int(high-low) {
		return 0, ErrMissing
	}
	if _, err := p.index.ReadAt(name, names+at*size); err != nil || !bytes.Equal(name, raw) {
		return 0, ErrMissing
	}
	var offset [8]byte
	short := names + count*size + count*4
	if _, err := p.index.ReadAt(offset[:4], short+at*4); err != nil {
		return 0, fmt.Errorf("%w: the index of %s is truncated", errMalformed, p.base)
	}
	o := binary.BigEndian.Uint32(offset[:4])
	if o&0x80000000 == 0 {
		return int64(o), nil
	}
	if _, err := p.index.ReadAt(offset[:], short+count*4+int64(o&0x7fffffff)*8); err != nil {
		return 0, fmt.Errorf("%w: the index of %s is truncated", errMalformed, p.base)
	}
	return int64(binary.BigEndian.Uint64(offset[:]) & (1<<63 - 1)), nil
}

var kinds = map[byte]string{1: "commit", 2: "tree", 3: "blob", 4: "tag"}

// packed reads an object of a pack, with all objects of which it is a delta.
func (r *Reader) packed(d *dir, p *pack, at int64, hash, chain int) (kind string, data []byte, err error) {
	if o, ok := r.cache.find(objectKey{pack: p, at: at}); ok {
		return o.kind, o.data, nil
	}
	if kind, data, err = r.unpack(d, p, at, hash, chain); err == nil {
		r.cache.add(objectKey{pack: p, at: at}, object{kind, data})
	}
	return kind, data, err
}

// unpack is packed without the cache.
func (r *Reader) unpack(d *dir, p *pack, at int64, hash, chain int) (kind string, data []byte, err error) {
	if chain > maxChain {
		return "", nil, fmt.Errorf("%w: the chain of deltas is too long", errMalformed)
	}
	var buffer [64]byte
	n, err := p.all.ReadAt(buffer[:], at)
	if n == 0 {
		return "", nil, fmt.Errorf("%w: %s is truncated: %v", errMalformed, p.base, err)
	}
	head := buffer[:n]
	size, used := int64(head[0]&15), 1
	for shift := 4; head[used-1]&0x80 != 0; shift += 7 {
		if used == n || shift > 56 {
			return "", nil, errMalformed
		}
		size |= int64(head[used]&0x7f) << shift
		used++
	}
	if size > maxObject {
		return "", nil, fmt.Errorf("%w of %d bytes", errMalformed, size)
	}
	kind, plain := kinds[head[0]>>4&7]
	var base func() (string, []byte, error)
	switch head[0] >> 4 & 7 {
	case 6: // a delta of an earlier object of the pack, at the distance that follows
		distance, m := varint.Read(head[used:])
		back := int64(distance)
		if used += m; m == 0 || back <= 0 || back > at {
			return "", nil, errMalformed
		}
		base = func() (string, []byte, error) { return r.packed(d, p, at-back, hash, chain+1) }
	case 7: // a delta of the object whose name follows
		if used+hash > n {
			return "", nil, errMalformed
		}
		raw := bytes.Clone(head[used : used+hash])
		used += hash
		base = func() (string, []byte, error) { return r.find(d, fmt.Sprintf("%x", raw), raw, chain+1) }
	default:
		if !plain {
			return "", nil, errMalformed
		}
	}
	z, err := zlib.NewReader(io.NewSectionReader(p.all, at+int64(used), 1<<62-at))
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if data, err = r.exactly(z, size); err != nil || base == nil {
		return kind, data, err
	}
	kind, original, err := base()
	if err != nil {
		return "", nil, err
	}
	data, err = r.patch(original, data)
	return kind, data, err
}

// patch applies a delta.
func (r *Reader) patch(base, delta []byte) ([]byte, error) {
	from, n := binary.Uvarint(delta)
	if n <= 0 || from != uint64(len(base)) {
		return nil, errMalformed
	}
	delta = delta[n:]
	size, n := binary.Uvarint(delta)
	if n <= 0 || size > maxObject {
		return nil, errMalformed
	}
	if r.left -= int64(size); r.left < 0 {
		return nil, fmt.Errorf("the objects are larger than the limit")
	}
	delta = delta[n:]
	var out []byte
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		if op&0x80 == 0 {
			if op == 0 || int(op) > len(delta) {
				return nil, errMalformed
			}
			out, delta = append(out, delta[:op]...), delta[op:]
		} else {
			var at, length uint64
			for i := range 7 {
				if op>>i&1 == 0 {
					continue
				}
				if len(delta) == 0 {
					return nil, errMalformed
				}
				if b := uint64(delta[0]); i < 4 {
					at |= b << (8 * i)
				} else {
					length |= b << (8 * (i - 4))
				}
				delta = delta[1:]
			}
			if length == 0 { // git's encoding of 64 KiB
				length = 0x10000
			}
			if at+length > uint64(len(base)) {
				return nil, errMalformed
			}
			out = append(out, base[at:at+length]...)
		}
		if uint64(len(out)) > size {
			return nil, errMalformed
		}
	}
	if uint64(len(out)) != size {
		return nil, errMalformed
	}
	return out, nil
}
