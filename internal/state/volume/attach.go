package volume

import (
	"io"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Attach makes the files of a volume accessible and returns their directory on the host.
func (s *Store) Attach(id string) (dir string, err error) {
	all, err := s.lock()
	if err != nil {
		return "", err
	}
	defer all.Close()
	return s.attach(id)
}

func (s *Store) attach(id string) (string, error) {
	v, err := s.Get(id)
	if err != nil {
		return "", err
	}
	free, err := s.exclude(v, unix.LOCK_SH)
	if err != nil {
		return "", err
	}
	defer free.Close()
	if !v.Enforced() {
		return filepath.Join(s.at(id), treeName), nil
	}
	at := filepath.Join(s.at(id), mountName)
	mounted, err := isMounted(at)
	if err == nil && !mounted {
		err = mountImage(filepath.Join(s.at(id), imageName), at)
	}
	return at, err
}

// Files opens the files of a volume. They stay accessible until Close.
func (s *Store) Files(id string) (*Files, error) {
	all, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer all.Close()
	dir, err := s.attach(id)
	if err != nil {
		return nil, err
	}
	return openTree(dir) // the open directory keeps the file system mounted
}

var _ io.Closer = (*Files)(nil)

// Usage returns the space that a volume uses. For a volume without a quota, its files are counted.
func (s *Store) Usage(v Volume) (Usage, error) {
	f, err := s.Files(v.ID)
	if err != nil {
		return Usage{}, err
	}
	defer f.Close()
	if !v.Enforced() {
		return f.count()
	}
	var stat unix.Statfs_t
	if err := unix.Fstatfs(int(f.root.Fd()), &stat); err != nil {
		return Usage{}, err
	}
	// The file system keeps some inodes for itself.
	return Usage{
		UsedBytes: int64(stat.Blocks-stat.Bfree) * stat.Bsize, UsedFiles: max(0, v.Files-int64(stat.Ffree)),
		TotalBytes: int64(stat.Blocks) * stat.Bsize, TotalFiles: v.Files,
	}, nil
}
