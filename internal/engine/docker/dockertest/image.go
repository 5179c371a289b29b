package dockertest

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/moby/client"

	"github.com/crannog/crannog/internal/engine"
)

// programs lists the programs of this host that are copied into the image.
var programs = strings.Fields(`sh bash cat od setsid pkill ls mkdir rm rmdir mv cp ln chmod chown touch stat head tail cut tr sort wc grep sed find xargs id hostname
	sleep echo test truncate true false env date timeout mktemp tee sha256sum python3 unshare mount umount mknod dd ps kill uname basename dirname
	readlink ip nsenter setpriv prlimit df free nproc awk curl getent python3.11`)

// trees lists the directories and files that these programs also read.
var trees = []string{"/usr/lib/python3.11", "/etc/ssl/certs/ca-certificates.crt"}

// omitted lists directories of the trees that no test needs and the image does not contain.
var omitted = []string{"__pycache__", "test", "tests", "idlelib", "lib2to3", "tkinter", "ensurepip", "config-3.11-x86_64-linux-gnu"}

// Import loads an image with programs of this host into the daemon, under a name.
func (d *Daemon) Import(ctx context.Context, name string) (engine.OCI, error) {
	c, err := d.Client()
	if err != nil {
		return engine.OCI{}, err
	}
	defer c.Close()
	from, to := io.Pipe()
	go func() { to.CloseWithError(WriteImage(to)) }()
	defer from.Close()
	response, err := c.ImageImport(ctx, client.ImageImportSource{Source: from, SourceName: "-"}, name, client.ImageImportOptions{})
	if err != nil {
		return engine.OCI{}, err
	}
	_, err = io.Copy(io.Discard, response)
	if err := errors.Join(err, response.Close()); err != nil {
		return engine.OCI{}, err
	}
	image, err := c.ImageInspect(ctx, name)
	if err != nil {
		return engine.OCI{}, err
	}
	return engine.OCI{Ref: name, Digest: image.ID}, nil
}

// WriteImage writes the files of the image as a tar.
func WriteImage(w io.Writer) error {
	archive := tar.NewWriter(w)
	files := map[string]bool{}
	for _, name := range programs {
		path := findProgram(name)
		if path == "" {
			continue // the test that needs the program reports it
		}
		files[path] = true
		// A program may be a link into /etc/alternatives.
		for at := path; ; {
			to, err := os.Readlink(at)
			if err != nil {
				break
			}
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(at), to)
			}
			at = to
			files[at] = true
		}
		addLibraries(path, files)
	}
	for _, tree := range trees {
		err := filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() {
				if slices.Contains(omitted, entry.Name()) {
					return fs.SkipDir
				}
				return nil
			}
			files[path] = true
			if strings.HasSuffix(path, ".so") {
				addLibraries(path, files)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: "usr/" + link, Mode: 0o777}); err != nil {
			return err
		}
	}
	texts := map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\n", "etc/group": "root:x:0:\n", "etc/shadow": "root:*:1:0:99999:7:::\n", "etc/hosts": "127.0.0.1 localhost\n",
		"etc/nsswitch.conf": "hosts: files dns\n",
	}
	for name, text := range texts {
		mode := int64(0o644)
		if name == "etc/shadow" {
			mode = 0o600
		}
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(text))}); err != nil {
			return err
		}
		if _, err := io.WriteString(archive, text); err != nil {
			return err
		}
	}
	for name := range files {
		if err := addFile(archive, name); err != nil {
			return err
		}
	}
	return archive.Close()
}

// findProgram returns the path of a program of a Debian package, regardless of PATH.
func findProgram(name string) string {
	for _, dir := range []string{"/usr/bin", "/usr/sbin"} {
		if path := filepath.Join(dir, name); exec.Command("test", "-x", path).Run() == nil { //nolint:noctx // TestMain has no context
			return path
		}
	}
	return ""
}

// addLibraries adds the shared libraries of a program to files.
func addLibraries(program string, files map[string]bool) {
	out, err := exec.Command("ldd", program).Output() //nolint:noctx // as above
	if err != nil {
		return // a script or a static program
	}
	for word := range strings.FieldsSeq(string(out)) {
		if !filepath.IsAbs(word) {
			continue
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(word))
		if err != nil {
			continue
		}
		at := filepath.Join(dir, filepath.Base(word))
		files[at] = true
		if to, err := filepath.EvalSymlinks(at); err == nil {
			files[to] = true
		}
		if word == "/lib64/ld-linux-x86-64.so.2" {
			files["/usr/lib64/ld-linux-x86-64.so.2"] = true
		}
	}
}

// addFile adds a file of this host to the tar under the same path.
func addFile(archive *tar.Writer, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name = path[1:]
	if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(archive, file); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
