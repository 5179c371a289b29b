package stagetree

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/guest/javastore"
)

// trust returns the files with which a sandbox trusts its own gateway: the gateway's certificate
// authority, and the lists of root certificates that contain it. They must not become part of an
// image. Where the image runs, programs would trust an authority of this machine, and no public
// one. A list that the command itself has written, for example with update-ca-certificates, does
// not contain this authority.
func (c *Changes) trust(lower *os.Root) (map[string]bool, error) {
	authority := trim(certs.AuthorityPath)
	authorityCert, err := c.read(authority)
	if err != nil || authorityCert == nil {
		return nil, err
	}
	drop := map[string]bool{authority: true}
	block, _ := pem.Decode(authorityCert)
	for _, name := range []string{trim(certs.BundlePath), trim(certs.JavaPath)} {
		data, err := c.read(name)
		if err != nil {
			return nil, err
		}
		binary := block != nil && bytes.Contains(data, block.Bytes)
		if bytes.Contains(data, bytes.TrimSpace(authorityCert)) || binary && !c.keepStore(lower, name, data, block.Bytes) {
			drop[name] = true
		}
	}
	bundles := certs.OtherBundles()
	for _, one := range c.list {
		if one.header.Typeflag != tar.TypeSymlink {
			continue
		}
		target := one.header.Linkname
		if !path.IsAbs(target) {
			target = path.Join("/", path.Dir(one.name), target) // as openssl rehash makes them
		}
		switch target {
		case certs.AuthorityPath:
			drop[one.name] = true
		case certs.BundlePath:
			if slices.Contains(bundles, "/"+one.name) {
				drop[one.name] = true
			}
		}
	}
	c.dropEmptied(drop)
	return drop, nil
}

// keepStore removes the authority from a Java trust store, which the installation of Java makes of all
// certificates that it finds. It returns false if the file is another one, or is then as in the stage.
func (c *Changes) keepStore(lower *os.Root, name string, data, authority []byte) bool {
	rest, ok := javastore.Without(data, authority)
	if !ok || bytes.Contains(rest, authority) || isContent(lower, name, rest) {
		return false
	}
	i := slices.IndexFunc(c.list, func(one change) bool { return one.name == name })
	c.list[i].content = rest
	// The guest's note about what it added is wrong now.
	c.list[i].header.PAXRecords = nil
	return true
}

// isContent reports whether a file has this content. An earlier command of the build may have made a
// very large file or a FIFO at its path. Reading it would use up memory or block the build.
func isContent(lower *os.Root, name string, content []byte) bool {
	info, err := lower.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(content)) {
		return false
	}
	got, err := lower.ReadFile(name)
	return err == nil && bytes.Equal(got, content)
}

// trim returns a path relative to the root.
func trim(name string) string { return strings.TrimPrefix(name, "/") }

// dropEmptied adds to drop the directories that contain only dropped files.
func (c *Changes) dropEmptied(drop map[string]bool) {
	parents := map[string]bool{}
	for name := range drop {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			parents[dir] = true
		}
	}
	for _, dir := range slices.Backward(c.list) {
		if dir.header.Typeflag == tar.TypeDir && parents[dir.name] && !c.needed(dir.name, drop) {
			drop[dir.name] = true
		}
	}
}

// needed reports whether a directory has an entry that is not dropped.
func (c *Changes) needed(dir string, drop map[string]bool) bool {
	for _, one := range c.list {
		if strings.HasPrefix(one.name, dir+"/") && !drop[one.name] && !strings.HasSuffix(one.name, ".crannog-new") {
			return true
		}
	}
	return false
}

// maxTrust bounds the size of a list of root certificates, in bytes.
const maxTrust = 16 << 20

// read returns the content of a changed file, or nil.
func (c *Changes) read(name string) ([]byte, error) {
	for _, one := range c.list {
		if one.name == name && one.header.Typeflag == tar.TypeReg && one.header.Size <= maxTrust {
			return io.ReadAll(io.NewSectionReader(c.f, one.at, one.header.Size))
		}
	}
	return nil, nil
}
