package setup

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// LayersFD is the descriptor at which the guest keeps a read-only view of the file system that takes
// what the sandbox writes. The engine takes a copy of it, also after a restart of the server.
// Programs inside cannot: the guest is protected from them. The view has nothing of the host, so
// an attacker who takes over the guest gains nothing by it.
const LayersFD = 200

// LayersName is a file in that view which describes it.
const LayersName = "layers"

// Layers describe where what a sandbox writes is kept.
type Layers struct {
	Uppers []Upper
	// Copied are the files of mounts, of which there are copies, with the time of change that
	// they were made with.
	Copied map[string]time.Time
	// Absent are paths that were removed when the root was made.
	Absent []string
}

// Upper is the directory that takes what is written below one path inside.
type Upper struct{ Dir, Path string }

// describe adds a directory whose overlay is mounted at a place of the root.
func (b *builder) describe(upper, target string) {
	if target == b.root {
		b.layers.Uppers = append(b.layers.Uppers, Upper{filepath.Base(upper), ""})
	} else if inside, ok := strings.CutPrefix(target, b.root+"/"); ok {
		b.layers.Uppers = append(b.layers.Uppers, Upper{filepath.Base(upper), inside})
	}
}

// describeCopy adds a copy of a file.
func (b *builder) describeCopy(target string) error {
	var stat unix.Stat_t
	if err := unix.Lstat(target, &stat); err != nil {
		return &os.PathError{Op: "stat", Path: target, Err: err}
	}
	if b.layers.Copied == nil {
		b.layers.Copied = map[string]time.Time{}
	}
	b.layers.Copied[strings.TrimPrefix(target, b.root+"/")] = time.Unix(stat.Ctim.Unix())
	return nil
}

// keepLayers opens the view. It is a mount of its own, which is in no namespace.
func (b *builder) keepLayers() error {
	data, err := json.Marshal(b.layers)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.base, LayersName), data, 0o400); err != nil {
		return err
	}
	view, err := unix.OpenTree(unix.AT_FDCWD, b.base, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return fmt.Errorf("view of the layers: %w", err)
	}
	defer unix.Close(view)
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(view, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return fmt.Errorf("view of the layers: make it read-only: %w", err)
	}
	if err := unix.Dup3(view, LayersFD, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("view of the layers: %w", err)
	}
	return nil
}
