package root

import (
	"path"
	"strings"

	"github.com/crannog/crannog/internal/image/layer"
)

// Prepare adds the files that a sandbox needs to a tree in which a build runs commands. Unlike the
// root of a complete image, the tree gets no account, because commands see the image's own. made
// lists the created paths, which belong to no layer.
func Prepare(t *layer.Tree, workingDir string) (made []string, err error) {
	want := []string{"etc/passwd", "etc/group", "etc/hosts", "etc/hostname", "etc/resolv.conf", strings.TrimPrefix(path.Clean("/"+workingDir), "/")}
	want = append(want, mountPoints...)
	for _, dir := range standardDirs {
		want = append(want, dir.name, path.Dir(dir.name))
	}
	want = append(want, "etc", layer.Reserved)
	for _, name := range want {
		exists, err := t.Exists(name)
		if err != nil {
			return nil, err
		}
		if !exists {
			made = append(made, name)
		}
	}
	if err := addMountPoints(t, workingDir); err != nil {
		return nil, err
	}
	for name, content := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n",
		"etc/hosts": "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n", "etc/hostname": "crannog\n", "etc/resolv.conf": "",
	} {
		if err := writeIfMissing(t, name, content); err != nil {
			return nil, err
		}
	}
	return made, nil
}
