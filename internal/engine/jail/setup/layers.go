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

// LayersFD is the descriptor with which the guest keeps a read-only view of the file system that
// receives the sandbox's writes. The engine copies it, also after a restart of the server. Programs
// in the sandbox cannot, because the guest is protected from them. The view contains nothing of the
// host, so it is of no use to an attacker who takes over the guest.
const LayersFD = 200

// LayersName is the file in that view that describes it.
const LayersName = "layers"

// Layers describes where the sandbox's writes are stored.
type Layers struct {
	Uppers []Upper
	// Copied lists files that were copied instead of overlaid, with the change time of the copy.
	Copied map[string]time.Time
	// Absent lists paths that were removed when the root was built.
	Absent []string
	// Points lists the mount points of volumes.
	Points []string `json:",omitempty"`
}

// Upper is the directory that receives the writes below one path of the sandbox.
type Upper struct{ Dir, Path string }

// describe records a directory whose overlay is mounted at a path of the root.
func (b *builder) describe(upper, target string) {
	if target == b.root {
		b.layers.Uppers = append(b.layers.Uppers, Upper{filepath.Base(upper), ""})
	} else if inside, ok := strings.CutPrefix(target, b.root+"/"); ok {
		b.layers.Uppers = append(b.layers.Uppers, Upper{filepath.Base(upper), inside})
	}
}

// describeCopy records a copy of a file.
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

// keepLayers opens the view as a detached mount, which is in no namespace.
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
