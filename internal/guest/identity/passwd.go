package identity

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// maxDatabase limits the size of the files, which root inside may have replaced.
const maxDatabase = 4 << 20

// Passwd reads accounts from passwd and group in a directory. It reads them again after a change.
type Passwd struct {
	dir string

	mu     sync.Mutex
	loaded [2]fileVersion // versions of passwd and group that were read
	users  map[string]User
	names  map[uint32]string // user names by ID
	groups map[uint32]string // group names by ID
}

// fileVersion identifies a version of a file.
type fileVersion struct {
	modified, size int64
}

// NewPasswd returns a Passwd for dir, which is /etc in a sandbox.
func NewPasswd(dir string) *Passwd { return &Passwd{dir: dir} }

// Lookup finds an account by its name or, as in the configuration of an image, by USER[:GROUP] with
// names or numbers. Numbers without an account are valid.
func (p *Passwd) Lookup(name string) (User, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refresh(); err != nil {
		return User{}, err
	}
	if u, ok := p.users[name]; ok {
		return u, nil
	}
	return p.byID(name)
}

// byID parses USER[:GROUP] with numbers. p.mu must be held.
func (p *Passwd) byID(text string) (User, error) {
	name, group, grouped := strings.Cut(text, ":")
	u, ok := p.users[name]
	if !ok {
		uid, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			return User{}, &UnknownError{Name: text}
		}
		if account, known := p.names[uint32(uid)]; known {
			u = p.users[account]
		} else {
			u = User{Name: name, UID: uint32(uid), Home: "/"}
		}
	}
	if !grouped {
		return u, nil
	}
	gid, err := strconv.ParseUint(group, 10, 32)
	if err != nil {
		for number, name := range p.groups {
			if name == group {
				gid, err = uint64(number), nil
			}
		}
	}
	if err != nil {
		return User{}, &UnknownError{Name: text}
	}
	// A named group replaces all other groups, as in other container runtimes.
	u.GID, u.Groups = uint32(gid), nil
	return u, nil
}

// UserName returns the name of the account with a user ID.
func (p *Passwd) UserName(uid uint32) string {
	return p.name(uid, func() map[uint32]string { return p.names })
}

// GroupName returns the name of the group with a group ID.
func (p *Passwd) GroupName(gid uint32) string {
	return p.name(gid, func() map[uint32]string { return p.groups })
}

// name returns a name from a map, or the ID as text.
func (p *Passwd) name(id uint32, from func() map[uint32]string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	// If the database cannot be read, the ID itself is a correct answer.
	if err := p.refresh(); err == nil {
		if name, ok := from()[id]; ok {
			return name
		}
	}
	return strconv.FormatUint(uint64(id), 10)
}

// refresh reads the files if they have changed. p.mu must be held.
func (p *Passwd) refresh() error {
	var now [2]fileVersion
	for i, name := range []string{"passwd", "group"} {
		info, err := os.Stat(filepath.Join(p.dir, name))
		if err != nil {
			return fmt.Errorf("user database: %w", err)
		}
		now[i] = fileVersion{info.ModTime().UnixNano(), info.Size()}
	}
	if p.users != nil && now == p.loaded {
		return nil
	}
	passwd, err := readBounded(filepath.Join(p.dir, "passwd"))
	if err != nil {
		return err
	}
	group, err := readBounded(filepath.Join(p.dir, "group"))
	if err != nil {
		return err
	}
	p.users, p.names, p.groups = parse(passwd, group)
	p.loaded = now
	return nil
}

// readBounded reads the beginning of a file, up to maxDatabase.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("user database: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxDatabase))
	if err != nil {
		return nil, fmt.Errorf("user database: %w", err)
	}
	return data, nil
}

// parse parses both files. Like libc, it ignores malformed lines.
func parse(passwd, group []byte) (map[string]User, map[uint32]string, map[uint32]string) {
	users, names := map[string]User{}, map[uint32]string{}
	for f := range splitLines(passwd, 7) {
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if f[0] == "" || err1 != nil || err2 != nil {
			continue
		}
		if _, exists := users[f[0]]; exists {
			continue
		}
		users[f[0]] = User{Name: f[0], UID: uint32(uid), GID: uint32(gid), Home: f[5]}
		if _, exists := names[uint32(uid)]; !exists {
			names[uint32(uid)] = f[0]
		}
	}
	groups := map[uint32]string{}
	for f := range splitLines(group, 4) {
		gid, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			continue
		}
		if _, exists := groups[uint32(gid)]; !exists {
			groups[uint32(gid)] = f[0]
		}
		for member := range strings.SplitSeq(f[3], ",") {
			u, ok := users[member]
			if ok && u.GID != uint32(gid) && !slices.Contains(u.Groups, uint32(gid)) {
				u.Groups = append(u.Groups, uint32(gid))
				users[member] = u
			}
		}
	}
	return users, names, groups
}

// splitLines yields the lines that have at least n fields.
func splitLines(data []byte, n int) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, maxDatabase)
		for lines.Scan() {
			if fields := strings.Split(lines.Text(), ":"); len(fields) >= n && !yield(fields) {
				return
			}
		}
	}
}
