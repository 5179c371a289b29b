package filesystem

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/crannog/crannog/internal/guest/gen/filesystempb"
	"github.com/crannog/crannog/internal/guest/metadata"
)

// entry describes the file at path. The caller must have switched to the user of the request.
func (s *Service) entry(path string) (*pb.EntryInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	return s.describe(path, info), nil
}

// describe returns the description of an entry. For a symbolic link, type and mode are those of its
// target if that exists, and all other fields are the link's own.
func (s *Service) describe(path string, info fs.FileInfo) *pb.EntryInfo {
	e := &pb.EntryInfo{
		Name:         text(filepath.Base(path)),
		Path:         text(path),
		Size:         info.Size(),
		ModifiedTime: timestamppb.New(info.ModTime()),
		Metadata:     validText(metadata.Read(path)),
	}
	typeInfo := info
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			// A dangling link still has a target path.
			target, _ = os.Readlink(path)
		} else if to, err := os.Stat(target); err == nil {
			typeInfo = to
		}
		target = text(target)
		e.SymlinkTarget = &target
	}
	e.Type = entryType(typeInfo.Mode())
	e.Mode = uint32(typeInfo.Mode().Perm())
	e.Permissions = typeInfo.Mode().String()
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		e.Owner = text(s.cfg().Accounts.UserName(stat.Uid))
		e.Group = text(s.cfg().Accounts.GroupName(stat.Gid))
	}
	return e
}

func entryType(mode fs.FileMode) pb.FileType {
	switch {
	case mode.IsRegular():
		return pb.FileType_FILE_TYPE_FILE
	case mode.IsDir():
		return pb.FileType_FILE_TYPE_DIRECTORY
	case mode&fs.ModeSymlink != 0:
		return pb.FileType_FILE_TYPE_SYMLINK
	}
	return pb.FileType_FILE_TYPE_UNSPECIFIED
}

// text converts a name from the kernel, which may be any bytes, to valid UTF-8 for the protocol.
// Otherwise one invalid name would make the whole list fail.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// validText returns a set with valid UTF-8 only.
func validText(set map[string]string) map[string]string {
	for key, value := range set {
		if text(key) != key {
			delete(set, key) // uploads never create such a key
			continue
		}
		set[key] = text(value)
	}
	return set
}
