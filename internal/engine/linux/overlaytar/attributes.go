package overlaytar

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// paxPrefix is the prefix of PAX records that hold extended attributes.
const paxPrefix = "SCHILY.xattr."

// An overlay in a user namespace stores its marks in "user." attributes. In the tar they have the
// "trusted." names that overlays of root use.
const (
	markPrefix = "user.overlay."
	opaqueMark = "trusted.overlay.opaque"
)

// attributes returns the "user." attributes of a file, and the mark of an opaque directory.
func attributes(fd int) (map[string]string, error) {
	size, err := unix.Flistxattr(fd, nil)
	if errors.Is(err, unix.ENOTSUP) || err == nil && size == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list := make([]byte, size)
	if size, err = unix.Flistxattr(fd, list); err != nil {
		return nil, err
	}
	records := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:size]), "\x00"), "\x00") {
		mark := name == opaqueMark || name == markPrefix+"opaque"
		if !mark && (!strings.HasPrefix(name, "user.") || strings.HasPrefix(name, markPrefix)) {
			continue
		}
		value, err := attribute(fd, name)
		switch {
		case errors.Is(err, unix.ENODATA):
		case err != nil:
			return nil, err
		case mark && value == "y":
			records[paxPrefix+opaqueMark] = value
		case !mark:
			records[paxPrefix+name] = value
		}
	}
	return records, nil
}

// attribute returns the value of an attribute.
func attribute(fd int, name string) (string, error) {
	size, err := unix.Fgetxattr(fd, name, nil)
	if err != nil || size == 0 {
		return "", err
	}
	value := make([]byte, size)
	size, err = unix.Fgetxattr(fd, name, value)
	return string(value[:max(size, 0)]), err
}
