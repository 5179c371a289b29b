package rootfs

import (
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/sandbox"
)

// Limits of the search of a workspace's contents. It runs in parallel to the boot and takes less
// time, however large the workspace is. Files that are left out are counted and reported.
const (
	maxKeyFiles  = 512
	maxKeyBytes  = 4 << 20
	maxFileBytes = 64 << 10
	// maxCandidates limits how many files of each rank are remembered.
	maxCandidates = 4096
)

// candidates are the visible files of a workspace, those most likely to contain keys first.
type candidates struct {
	ranks [3][]string // below the workspace
	seen  int
}

// credentialNames contains parts of the names that people give to credential files.
var credentialNames = []string{"env", "secret", "token", "key", "cred", "passw", "auth", "config", "conf", "setting", "rc", "local", "deploy", "account", "note", "todo", "tfvars", "tfstate", "compose"}

// textExtensions are the extensions of files that people write.
var textExtensions = []string{".txt", ".md", ".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".properties", ".xml", ".sh", ".py", ".js", ".ts", ".tsx", ".go", ".rb", ".php", ".java", ".ipynb", ".tf", ".http", ".sql", ".log"}

// thirdPartyDirs are directories with files from third parties, such as dependencies.
var thirdPartyDirs = []string{"node_modules", "vendor", "site-packages", ".venv", "venv", "target", "dist", ".tox", "__pycache__"}

// add adds one file by its path inside.
func (c *candidates) add(inside string) {
	rel := strings.TrimPrefix(inside, sandbox.WorkspaceDir+"/")
	parts := strings.Split(rel, "/")
	if slices.Contains(parts[:len(parts)-1], ".git") && !strings.HasSuffix(rel, ".git/config") {
		return // git packs its contents, which are also files of the work tree
	}
	c.seen++
	name := strings.ToLower(parts[len(parts)-1])
	rank := 2
	switch {
	case slices.ContainsFunc(thirdPartyDirs, func(o string) bool { return slices.Contains(parts[:len(parts)-1], o) }):
	case slices.ContainsFunc(credentialNames, func(l string) bool { return strings.Contains(name, l) }):
		rank = 0
	case slices.ContainsFunc(textExtensions, func(end string) bool { return strings.HasSuffix(name, end) }):
		rank = 1
	}
	if len(c.ranks[rank]) < maxCandidates {
		c.ranks[rank] = append(c.ranks[rank], rel)
	}
}

// inOrder returns the files by rank, and within a rank by their distance from the top.
func (c *candidates) inOrder() []string {
	var all []string
	for _, rank := range c.ranks {
		slices.SortStableFunc(rank, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
		all = append(all, rank...)
	}
	return all
}

// keyPatterns recognizes keys by their form alone.
var keyPatterns = sync.OnceValue(func() *redact.Redactor {
	r, err := redact.New(nil, redact.Options{Patterns: true})
	if err != nil {
		panic(err) // it has no values that could be invalid
	}
	return r
})

// KeySearch searches the contents of a workspace in parallel to the boot of its sandbox. A nil
// KeySearch finds nothing.
type KeySearch struct {
	workspace string
	files     candidates
	done      chan struct{}
	keys      sandbox.Keys
}

// Start begins the search, on a goroutine of its own.
func (k *KeySearch) Start() {
	if k == nil {
		return
	}
	k.done = make(chan struct{})
	go func() {
		defer close(k.done)
		k.keys = k.search()
	}()
}

// Found waits for the end of a search that was started, and returns its result.
func (k *KeySearch) Found() sandbox.Keys {
	if k == nil || k.done == nil {
		return sandbox.Keys{}
	}
	<-k.done
	return k.keys
}

func (k *KeySearch) search() sandbox.Keys {
	keys := sandbox.Keys{Left: k.files.seen}
	root, err := os.OpenRoot(k.workspace)
	if err != nil {
		return keys
	}
	defer root.Close()
	bytesLeft := int64(maxKeyBytes)
	buf := make([]byte, maxFileBytes)
	for _, name := range k.files.inOrder() {
		if keys.Looked == maxKeyFiles || bytesLeft <= 0 {
			break
		}
		text, ok := readBeginning(root, name, buf[:min(bytesLeft, maxFileBytes)])
		if !ok {
			continue
		}
		bytesLeft -= int64(len(text))
		keys.Looked++
		keys.Left--
		kinds := keyPatterns().Found(text)
		if len(kinds) == 0 {
			continue
		}
		if keys.Count++; len(keys.Files) < sandbox.MaxNamed {
			keys.Files = append(keys.Files, sandbox.KeyFile{Name: path.Clean(name), Kinds: kinds})
		}
	}
	return keys
}

// readBeginning reads the first bytes of a regular file. It does not block on a pipe that has
// replaced the file, and does not follow a link, which could lead to a file that the policy hides.
// A root follows links within itself in spite of O_NOFOLLOW, so the opened file is compared with
// the one that has the name.
func readBeginning(root *os.Root, name string, buf []byte) ([]byte, bool) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	if named, err := root.Lstat(name); err != nil || !os.SameFile(info, named) {
		return nil, false
	}
	n, err := io.ReadFull(f, buf)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, false
	}
	return buf[:n], true
}
