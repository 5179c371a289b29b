package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

const description = `Sandboxes for untrusted code
 Crannog runs commands of agents and other untrusted programs in sandboxes, with a policy for what
 they may reach, approvals by people, and an audit log.`

func (r release) deb(list []file) (string, error) {
	info := r.info(list)
	info.Recommends = []string{"ca-certificates"}
	return r.write(deb.Default, info, deb.Default.ConventionalFileName(info))
}

func (r release) rpm(list []file) (string, error) {
	info := r.info(list)
	return r.write(rpm.DefaultRPM, info, rpm.DefaultRPM.ConventionalFileName(info))
}

func (r release) info(list []file) *nfpm.Info {
	var contents files.Contents
	for _, f := range list {
		kind := files.TypeFile
		if f.config {
			kind = files.TypeConfigNoReplace
		}
		contents = append(contents, &files.Content{
			Source: f.source, Destination: f.path, Type: kind,
			FileInfo: &files.ContentFileInfo{Mode: f.mode, MTime: r.time, Owner: "root", Group: "root"},
		})
	}
	script := func(name string) string { return filepath.Join(r.tree, "deploy/packages/scripts", name+".sh") }
	return nfpm.WithDefaults(&nfpm.Info{
		Name: "crannog", Arch: r.arch, Platform: "linux", Version: r.version, VersionSchema: "none", Release: "1",
		Section: "admin", Priority: "optional", Maintainer: "The Crannog authors <crannog@localhost>", Vendor: "Crannog",
		Description: description, Homepage: "https://github.com/crannog/crannog", License: "Apache-2.0", MTime: r.time,
		Overridables: nfpm.Overridables{
			Contents: contents, Umask: 0o022,
			Scripts: nfpm.Scripts{PostInstall: script("postinstall"), PreRemove: script("preremove"), PostRemove: script("postremove")},
			RPM:     nfpm.RPM{BuildHost: "crannog", Compression: "gzip"},
			Deb:     nfpm.Deb{Compression: "gzip"},
		},
	})
}

func (r release) write(p nfpm.Packager, info *nfpm.Info, name string) (string, error) {
	if err := nfpm.PrepareForPackager(info, kindOf(name)); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	f, err := os.OpenFile(filepath.Join(r.out, name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	if err := p.Package(info, f); err != nil {
		f.Close()
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return name, f.Close()
}

func kindOf(name string) string { return filepath.Ext(name)[1:] }
