package stagetree

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/certs"
)

// trust returns the files with which a sandbox trusts its own gateway: the gateway's certificate
// authority, and the lists of root certificates that contain it. They must not become part of an
// image. Where the image runs, programs would trust an authority of this machine, and no public
// one. A list that the command itself has written, for example with update-ca-certificates, does
// not contain this authority.
func (c *Changes) trust() (map[string]bool, error) {
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
		if bytes.Contains(data, bytes.TrimSpace(authorityCert)) || block != nil && bytes.Contains(data, block.Bytes) {
			drop[name] = true
		}
	}
	bundles := certs.OtherBundles()
	for _, one := range c.list {
		if one.header.Typeflag != tar.TypeSymlink {
			continue
		}
		switch one.header.Linkname {
		case certs.AuthorityPath, certs.JavaPath:
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
