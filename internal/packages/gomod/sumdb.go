package gomod

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb"

	"github.com/crannog/crannog/internal/packages"
)

// sumdbKey is the public key of Go's checksum database, as in the program go.
const sumdbKey = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"

// maxSums limits how many verified sums are remembered.
const maxSums = 8192

// unreachableError is returned if the checksum database cannot be read or does not know a module.
type unreachableError struct {
	name  string
	cause error
}

func (e *unreachableError) Error() string {
	return "the checksum database " + e.name + " cannot be read, or does not know the module: " + e.cause.Error()
}

// sum returns the verified sum of a module's version, or with the suffix /go.mod that of its go.mod.
func (p *Protocol) sum(ctx context.Context, s packages.Source, t packages.Target, version string) (string, error) {
	prefix := t.Name + " " + version + " "
	p.mu.Lock()
	known := p.sums[prefix]
	p.mu.Unlock()
	if known != "" {
		return known, nil
	}
	name, _, _ := strings.Cut(p.key, "+")
	ops := &database{protocol: p, source: s, ctx: ctx, name: name, origin: t.Origin}
	lines, err := sumdb.NewClient(ops).Lookup(t.Name, version)
	ops.mu.Lock()
	defer ops.mu.Unlock()
	switch {
	case ops.misbehaved != "":
		// An attacker who serves a false module also has to forge the database.
		return "", packages.Tampered("the checksum database " + name + " contradicts itself or is forged: " + ops.misbehaved)
	case err != nil && ops.failed != nil:
		if err := ctx.Err(); err != nil {
			return "", err
		}
		return "", &unreachableError{name, ops.failed}
	case err != nil:
		return "", packages.Tampered("the answer of the checksum database " + name + " is not valid: " + err.Error())
	}
	for _, line := range lines {
		if sum, ok := strings.CutPrefix(line, prefix); ok && strings.HasPrefix(sum, "h1:") {
			p.remember(prefix, sum)
			return sum, nil
		}
	}
	return "", packages.Tampered("the checksum database " + name + " has no usable sum of " + strings.TrimSpace(prefix))
}

func (p *Protocol) remember(prefix, sum string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other := range p.sums {
		if len(p.sums) < maxSums {
			break
		}
		delete(p.sums, other)
	}
	p.sums[prefix] = sum
}

// database gives a client of the checksum database access to it. It implements sumdb.ClientOps.
type database struct {
	protocol *Protocol
	source   packages.Source
	ctx      context.Context //nolint:containedctx // the interface has no contexts; a database serves one request
	name     string
	origin   string

	mu         sync.Mutex
	failed     error  // of the last request
	misbehaved string // a proof that the database is not the one of the key
}

// ReadRemote reads the database through the proxy, as go itself does, or else directly.
func (d *database) ReadRemote(path string) ([]byte, error) {
	// What is not yet verified is not stored.
	text, err := d.source.Text(d.ctx, packages.Query{URL: d.origin + "/sumdb/" + d.name + path, Bypass: true})
	if errors.Is(err, packages.ErrAbsent) && d.origin != "https://proxy.golang.org" {
		text, err = d.source.Text(d.ctx, packages.Query{URL: "https://" + d.name + path, Bypass: true})
	}
	if err != nil {
		d.mu.Lock()
		d.failed = err
		d.mu.Unlock()
	}
	return text.Body, err
}

// ReadConfig returns the key or the newest signed tree head.
func (d *database) ReadConfig(file string) ([]byte, error) {
	if file == "key" {
		return []byte(d.protocol.key), nil
	}
	d.protocol.mu.Lock()
	defer d.protocol.mu.Unlock()
	return d.protocol.latest, nil
}

// WriteConfig replaces the newest signed tree head.
func (d *database) WriteConfig(_ string, before, after []byte) error {
	d.protocol.mu.Lock()
	defer d.protocol.mu.Unlock()
	if !bytes.Equal(before, d.protocol.latest) {
		return sumdb.ErrWriteConflict
	}
	d.protocol.latest = after
	return nil
}

// ReadCache returns a verified part of the database.
func (d *database) ReadCache(file string) ([]byte, error) { return d.source.Stored(cacheKey(file)) }

// WriteCache stores a verified part of the database.
func (d *database) WriteCache(file string, data []byte) {
	d.source.Store(d.ctx, cacheKey(file), data)
}

// cacheKey returns the key of a part. It is not a URL, so no fetched text can have it.
func cacheKey(file string) string { return "sumdb " + file }

// Log ignores messages about progress.
func (d *database) Log(string) {}

// SecurityError notes that the database is forged.
func (d *database) SecurityError(msg string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.misbehaved, _, _ = strings.Cut(msg, "\n")
}
