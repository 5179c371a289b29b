package content

import (
	"path"
	"strings"
)

// Limits of the name of an entry.
const (
	maxName  = 1024
	maxDepth = 100
	// maxLinks limits how many symbolic links an archive may have.
	maxLinks = 10_000
)

// name checks the name of an entry. It returns false if nothing else can be said about the entry.
func (i *inspection) name(name string) bool {
	if len(name) > maxName || strings.Count(name, "/") > maxDepth {
		i.add(Unreadable, name, "has a name that is too long")
		return false
	}
	if why := leaves(name); why != "" {
		i.add(Escape, name, why)
		return false
	}
	// Attack: an entry below a link is written where the link leads.
	if clean := path.Clean(name); len(i.links) > 0 {
		for at := strings.IndexByte(clean, '/'); at >= 0; {
			if i.links[clean[:at]] {
				i.add(Escape, name, "is below a symbolic link")
				return false
			}
			next := strings.IndexByte(clean[at+1:], '/')
			if next < 0 {
				break
			}
			at += 1 + next
		}
	}
	return true
}

// leaves returns why a name may lead out of the directory into which an archive is unpacked.
// Clients remove the first directory of some archives, so every .. counts.
func leaves(name string) string {
	switch {
	case strings.ContainsRune(name, 0):
		return "has a NUL in its name"
	case strings.HasPrefix(name, "/"), strings.HasPrefix(name, `\`):
		return "is an absolute path"
	case len(name) > 1 && name[1] == ':' && (name[0]|0x20) >= 'a' && (name[0]|0x20) <= 'z':
		return "begins with a drive"
	}
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == ".." {
			return "leads out of the package"
		}
	}
	return ""
}

// symlink checks a symbolic link.
func (i *inspection) symlink(name, target string) error {
	if leads(name, target) {
		i.add(Escape, name, "is a link that leads out of the package")
	}
	i.links[path.Clean(name)] = true
	if len(i.links) > maxLinks {
		return i.bomb("has too many links")
	}
	return nil
}

// leads reports whether a symbolic link may lead out of its package. A .. after a name is not
// permitted, because the name could be another link.
func leads(name, target string) bool {
	if target == "" || len(target) > maxName || strings.ContainsAny(target, "\x00\\") || target[0] == '/' {
		return true
	}
	rest := target
	for strings.HasPrefix(rest, "../") || strings.HasPrefix(rest, "./") {
		_, rest, _ = strings.Cut(rest, "/")
	}
	if rest != ".." && leaves(rest) != "" {
		return true
	}
	clean := path.Clean(name)
	to := path.Join(path.Dir(clean), target)
	if to == ".." || strings.HasPrefix(to, "../") {
		return true
	}
	// Clients remove the first directory of some archives.
	top, _, isBelow := strings.Cut(clean, "/")
	toTop, _, _ := strings.Cut(to, "/")
	return isBelow && top != toTop
}
