package registration

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aymanbagabas/go-udiff"

	"github.com/crannog/crannog/internal/fault"
)

// maxFile is the maximum size of a file to edit. Some programs store their history in it.
const maxFile = 64 << 20

// Change is an edit of a program's configuration that is not written yet.
type Change struct {
	Path string // the path by which the program opens it
	// Title is the program's name. Instructions say what the user still has to do.
	Title, Instructions string
	real                string // Path with symbolic links resolved
	before, after       []byte
	mode                fs.FileMode
	existed             bool
}

// Install returns the change that registers a server with a program.
func Install(name string, scope Scope, p Directories, s Server) (*Change, error) {
	return prepare(name, scope, p, func(c client, ch *Change) error {
		if s.URL != "" {
			ch.Instructions = fmt.Sprintf(c.instructions, c.title)
		}
		if c.toml {
			f := tomlFile{string(ch.before)}
			err := f.set(c.list, ServerName, c.entry(s), c.ours)
			ch.after = []byte(f.text)
			return err
		}
		f := jsonFile{ch.before}
		config := map[string]any{}
		if len(bytes.TrimSpace(ch.before)) > 0 {
			var err error
			if config, err = f.decode(); err != nil {
				return err
			}
		}
		list, _ := config[c.list].(map[string]any)
		entry := merged(list[ServerName], c.entry(s), c.ours)
		if old, err := format(list[ServerName], "", ""); err == nil {
			if same, err := format(entry, "", ""); err == nil && bytes.Equal(old, same) {
				ch.after = ch.before
				return nil
			}
		}
		err := f.set(entry, c.list, ServerName)
		if err == nil && c.prompts && s.URL != "" {
			err = f.addPrompt(config["inputs"])
		}
		ch.after = f.text
		return err
	})
}

// addPrompt adds a prompt for the key to the inputs of a program that can ask its user.
func (f *jsonFile) addPrompt(inputs any) error {
	list, ok := inputs.([]any)
	if inputs != nil && !ok {
		return errors.New("inputs is not a list")
	}
	for _, existing := range list {
		if m, _ := existing.(map[string]any); m["id"] == keyPrompt {
			return nil
		}
	}
	return f.set(append(list, map[string]any{
		"type": "promptString", "id": keyPrompt, "description": "API key of crannog", "password": true,
	}), "inputs")
}

// Uninstall returns the change that removes the server's entry.
func Uninstall(name string, scope Scope, p Directories) (*Change, error) {
	return prepare(name, scope, p, func(c client, ch *Change) error {
		if c.toml {
			f := tomlFile{string(ch.before)}
			err := f.remove(c.list, ServerName)
			ch.after = []byte(f.text)
			return err
		}
		f := jsonFile{ch.before}
		err := f.remove(c.list, ServerName)
		ch.after = f.text
		return err
	})
}

// prepare reads a program's file and applies edit to it, without writing it.
func prepare(name string, scope Scope, p Directories, edit func(client, *Change) error) (*Change, error) {
	c, err := find(name)
	if err != nil {
		return nil, err
	}
	ch := &Change{Title: c.title}
	if ch.Path, err = c.path(scope, p); err != nil {
		return nil, err
	}
	if err := ch.read(scope); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "configuration_unreadable", ch.Path+" cannot be read")
	}
	if err := edit(c, ch); err != nil {
		return nil, fault.Newf(fault.Conflict, "configuration_not_edited", "%s is left as it is: %v", ch.Path, err).
			WithHint("add the entry by hand, as in docs/how-to/run-an-agent.md")
	}
	return ch, nil
}

// read reads the file. If the file is a link, its target is edited, so that the link is preserved.
func (c *Change) read(scope Scope) error {
	c.real, c.mode = c.Path, 0o600
	if scope == Project {
		c.mode = 0o644 // other users may read it, because it contains no key
	}
	real, err := filepath.EvalSymlinks(c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(c.Path); err == nil {
			return errors.New("it is a link to a file that does not exist")
		}
		return nil
	}
	if err != nil {
		return err
	}
	f, err := os.Open(real)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case info.Size() > maxFile:
		return fmt.Errorf("it has more than %d bytes", maxFile)
	}
	c.real, c.mode, c.existed = real, info.Mode().Perm(), true
	c.before, err = io.ReadAll(f)
	return err
}

// Empty reports whether the change changes nothing.
func (c *Change) Empty() bool { return bytes.Equal(c.before, c.after) }

// Diff shows the change to a person.
func (c *Change) Diff() string {
	edits := udiff.Strings(string(c.before), string(c.after))
	old := c.Path
	if !c.existed {
		old = "/dev/null"
	}
	// Only few lines of context are shown, because some programs store tokens in the same file.
	text, err := udiff.ToUnified(old, c.Path, string(c.before), edits, 1)
	if err != nil {
		return ""
	}
	return text
}

// Write writes the change, completely or not at all. It returns the path of a backup of the old
// file, or "" if there was none.
func (c *Change) Write() (backup string, err error) {
	if c.Empty() {
		return "", nil
	}
	defer func() {
		if err != nil {
			err = fault.Wrap(err, fault.Unavailable, "configuration_not_written", c.Path+" cannot be written")
		}
	}()
	if err := os.MkdirAll(filepath.Dir(c.real), 0o755); err != nil {
		return "", err
	}
	var suffix [4]byte
	_, _ = rand.Read(suffix[:]) // it never fails
	if c.existed {
		backup = c.real + ".crannog-" + hex.EncodeToString(suffix[:]) + ".bak"
		if err := writeNew(backup, c.before, c.mode); err != nil {
			return "", err
		}
	}
	tmp := c.real + ".crannog-" + hex.EncodeToString(suffix[:]) + ".tmp"
	if err := writeNew(tmp, c.after, c.mode); err != nil {
		return "", err
	}
	defer os.Remove(tmp)
	// The program may have written to the file after it was read, and its change must not be lost.
	now, err := os.ReadFile(c.real)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return backup, err
	}
	if !bytes.Equal(now, c.before) {
		return backup, errors.New("it has changed since it was read; try again")
	}
	return backup, os.Rename(tmp, c.real)
}

// writeNew creates a file with exactly this mode.
func writeNew(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		os.Remove(path)
	}
	return err
}
