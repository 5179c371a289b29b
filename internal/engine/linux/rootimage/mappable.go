package rootimage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/erofs/go-erofs"
)

// go-erofs stores the content of a small file beside its inode, in the middle of a block. gVisor can
// read such a file but not map it, so that programs which map their data end with SIGBUS. mappable
// gives each of these files a block of its own, which both gVisor and Linux can map.

// Positions and values of the format that mappable reads and changes.
const (
	superBlock       = 1024 // position of the superblock, and of its fields in it:
	featuresField    = 8
	blockBitsField   = 12
	blocksField      = 36
	inodeAreaField   = 40
	checksumFeature  = 1
	layoutInline     = 2 // the content follows the inode
	layoutMask       = 0b1110
	extendedInode    = 1 // bit of an inode's first field
	attributesField  = 2 // position in an inode
	blockField       = 16
	inodeUnit        = 32 // inodes are numbered in units of this many bytes
	extendedSize     = 64
	attributesHeader = 12
	attributesUnit   = 4
)

// mappable changes an image so that all its regular files can be mapped.
func mappable(f *os.File) error {
	var head [128]byte
	if _, err := f.ReadAt(head[:], superBlock); err != nil {
		return err
	}
	if head[blockBitsField] != 12 || binary.LittleEndian.Uint32(head[featuresField:])&checksumFeature != 0 {
		return errors.New("the image has an unexpected size of blocks, or a checksum")
	}
	tree, err := erofs.Open(f)
	if err != nil {
		return err
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	m := mover{file: f, next: (end + sectorSize - 1) / sectorSize, inodes: int64(binary.LittleEndian.Uint32(head[inodeAreaField:])) * sectorSize}
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*erofs.Stat)
		if !ok {
			return fmt.Errorf("%s: the inode is unknown", name)
		}
		if stat.Size == 0 || stat.InodeLayout != layoutInline {
			return nil
		}
		return m.move(stat)
	})
	if err != nil {
		return err
	}
	var blocks [4]byte
	binary.LittleEndian.PutUint32(blocks[:], uint32(m.next)) //nolint:gosec // move checks it
	_, err = f.WriteAt(blocks[:], superBlock+blocksField)
	return errors.Join(err, f.Truncate(m.next*sectorSize))
}

// mover moves the content of files to new blocks at the end of an image.
type mover struct {
	file   *os.File
	next   int64 // number of the next new block
	inodes int64 // position of the inodes
}

// move gives a file a block.
func (m *mover) move(stat *erofs.Stat) error {
	at := m.inodes + stat.Ino*inodeUnit
	var inode [inodeUnit]byte
	if _, err := m.file.ReadAt(inode[:], at); err != nil {
		return err
	}
	format := binary.LittleEndian.Uint16(inode[:])
	if format&layoutMask>>1 != layoutInline || stat.Size > sectorSize || m.next >= 1<<32-1 {
		return fmt.Errorf("unexpected inode %d of %d bytes", stat.Ino, stat.Size)
	}
	content := at + inodeUnit
	if format&extendedInode != 0 {
		content = at + extendedSize
	}
	if n := int64(binary.LittleEndian.Uint16(inode[attributesField:])); n > 0 {
		content += attributesHeader + (n-1)*attributesUnit
	}
	data := make([]byte, stat.Size)
	if _, err := m.file.ReadAt(data, content); err != nil {
		return err
	}
	if _, err := m.file.WriteAt(data, m.next*sectorSize); err != nil {
		return err
	}
	binary.LittleEndian.PutUint16(inode[:], format&^layoutMask)
	binary.LittleEndian.PutUint32(inode[blockField:], uint32(m.next)) //nolint:gosec // checked above
	m.next++
	_, err := m.file.WriteAt(inode[:], at)
	return err
}
