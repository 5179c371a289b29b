package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// file is one file of the packages.
type file struct {
	path   string // in an installed system
	source string
	mode   fs.FileMode
	config bool // is kept if the administrator changed it
}

// files returns all files, sorted by path.
func (r release) files(ctx context.Context, staging string) ([]file, error) {
	if err := r.generate(ctx, staging); err != nil {
		return nil, err
	}
	in := func(name string) string { return filepath.Join(r.tree, name) }
	list := []file{
		{path: "/usr/bin/crannog", source: r.program, mode: 0o755},
		{path: "/usr/lib/systemd/system/crannog.service", source: in("deploy/systemd/crannog.service"), mode: 0o644},
		{path: "/usr/lib/systemd/system/crannog.socket", source: in("deploy/systemd/crannog.socket"), mode: 0o644},
		{path: "/etc/crannog/config.toml", source: in("deploy/config/config.toml"), mode: 0o644, config: true},
		{path: "/usr/share/bash-completion/completions/crannog", source: filepath.Join(staging, "bash"), mode: 0o644},
		{path: "/usr/share/zsh/vendor-completions/_crannog", source: filepath.Join(staging, "zsh"), mode: 0o644},
		{path: "/usr/share/fish/vendor_completions.d/crannog.fish", source: filepath.Join(staging, "fish"), mode: 0o644},
		{path: "/usr/share/crannog/prometheus/alerts.yaml", source: in("deploy/prometheus/alerts.yaml"), mode: 0o644},
		{path: "/usr/share/crannog/prometheus/scrape.yaml", source: in("deploy/prometheus/scrape.yaml"), mode: 0o644},
		{path: "/usr/share/crannog/grafana/crannog.json", source: in("deploy/grafana/crannog.json"), mode: 0o644},
		{path: "/usr/share/doc/crannog/copyright", source: in("LICENSE"), mode: 0o644},
	}
	compressed := map[string]string{"/usr/share/doc/crannog/changelog.gz": in("CHANGELOG.md")}
	pages, err := filepath.Glob(filepath.Join(staging, "man", "man*", "*"))
	if err != nil || len(pages) == 0 {
		return nil, fmt.Errorf("no man pages: %w", err)
	}
	for _, page := range pages {
		compressed[path.Join("/usr/share/man", filepath.Base(filepath.Dir(page)), filepath.Base(page)+".gz")] = page
	}
	for to, from := range compressed {
		name := filepath.Join(staging, strings.ReplaceAll(to[1:], "/", "-"))
		if err := compress(from, name); err != nil {
			return nil, err
		}
		list = append(list, file{path: to, source: name, mode: 0o644})
	}
	slices.SortFunc(list, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return list, nil
}

// compress writes a file without a name and a time in its header.
func compress(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o644)
}

// checksums writes SHA256SUMS about the packages.
func (r release) checksums(names []string) error {
	var b strings.Builder
	slices.Sort(names)
	for _, name := range names {
		f, err := os.Open(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		f.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", hex.EncodeToString(sum.Sum(nil)), name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(b.String()), 0o644)
}
