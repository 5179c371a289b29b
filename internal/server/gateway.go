package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"github.com/crannog/crannog/internal/audit/flows"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
)

// way is the sandboxes' way out: the process that holds all links, which is
// started when the first sandbox asks for one.
type way struct {
	stateDir string
	log      *slog.Logger
	flows    *flows.Dir
	// connect is gateway.Connect, but in tests.
	connect func(ctx context.Context, stateDir string, o gateway.Options) (*gateway.Client, error)

	asker egress.Asker

	mu     sync.Mutex
	lost   func(context.Context) // called after the process has died
	client *gateway.Client
	closed bool
	wait   sync.WaitGroup
}

// onLoss sets what is called after the process has died.
func (w *way) onLoss(f func(context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = f
}

// open returns a client whose process lives.
func (w *way) open(ctx context.Context) (*gateway.Client, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, errors.New("the causeway's client is closed")
	}
	if w.client != nil {
		select {
		case <-w.client.Done():
		default:
			return w.client, nil
		}
	}
	client, err := w.connect(ctx, w.stateDir, gateway.Options{Asker: w.asker, Log: w.log})
	if err != nil {
		return nil, err
	}
	w.client = client
	w.wait.Go(func() { w.watch(client) })
	return client, nil
}

// watch tells when the process has died and every sandbox has lost its link.
func (w *way) watch(client *gateway.Client) {
	<-client.Done()
	w.mu.Lock()
	lost, closed := w.lost, w.closed
	w.mu.Unlock()
	if !closed && lost != nil {
		lost(context.Background())
	}
}

// existing returns the client if there is one: for what has nothing to do
// where no process lives.
func (w *way) existing() *gateway.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.client
}

// Attach implements sandbox.Way.
func (w *way) Attach(ctx context.Context, a sandbox.Attachment) (sandbox.Link, error) {
	client, err := w.open(ctx)
	if err != nil {
		return sandbox.Link{}, err
	}
	record, err := w.flows.Create(a.Sandbox)
	if err != nil {
		return sandbox.Link{}, err
	}
	defer record.Close()
	box, certificate, err := client.Attach(ctx, gateway.Attachment{
		Sandbox: a.Sandbox, Policy: a.Policy.Layers(), Secrets: a.Secrets, Record: record,
	})
	if err != nil {
		return sandbox.Link{}, err
	}
	link := sandbox.Link{Box: box}
	if link.Files, link.Env, err = trusting(certificate); err != nil {
		return sandbox.Link{}, errors.Join(err, box.Close())
	}
	return link, nil
}

// trusting are the files and variables by which programs inside find the name
// server and trust the causeway.
func trusting(certificate []byte) ([]guest.File, map[string]string, error) {
	trust, err := certs.Addition(certificate)
	if err != nil {
		return nil, nil, err
	}
	store, err := javaStore(certificate)
	if err != nil {
		return nil, nil, err
	}
	files := []guest.File{{
		Path: "/etc/resolv.conf", Mode: 0o644, Data: fmt.Appendf(nil, "nameserver %s\noptions timeout:2 attempts:2\n", egress.Gateway),
	}}
	for _, f := range append(trust.Files, store...) {
		files = append(files, guest.File{Path: f.Path, Mode: f.Mode, Data: f.Data, Link: f.Link, Append: f.Append, Around: (*guest.Around)(f.Around)})
	}
	return files, trust.Env, nil
}

// javaStore is the trust store for a host that has Java; sandboxes show the
// host's programs.
func javaStore(certificate []byte) ([]certs.File, error) {
	// Read each time: the host's packages may have changed it.
	there, err := os.ReadFile(certs.JavaPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if added, ok, err := certs.JavaAddition(there, certificate); ok || err != nil {
		return []certs.File{added}, err
	}
	roots, err := worldRoots()
	if err != nil {
		return nil, err
	}
	store, err := certs.JavaStore(roots, certificate)
	return []certs.File{store}, err
}

var worldRoots = sync.OnceValues(func() (*certs.Bundle, error) {
	data, err := os.ReadFile(certs.BundlePath)
	if err != nil {
		return nil, err
	}
	return certs.ReadBundle(data)
})

// Update implements sandbox.Way.
func (w *way) Update(ctx context.Context, a sandbox.Attachment) error {
	client, err := w.open(ctx)
	if err != nil {
		return err
	}
	return client.Update(ctx, a.Sandbox, a.Policy.Layers(), a.Secrets, a.Looks)
}

// Detach implements sandbox.Way. Where no process is known there is nothing to
// end: a link ends with its sandbox.
func (w *way) Detach(ctx context.Context, id string) error {
	client := w.existing()
	if client == nil {
		return nil
	}
	err := client.Detach(ctx, id)
	select {
	case <-client.Done():
		return nil // and all links with it
	default:
		return err
	}
}

// Adopt implements sandbox.Way.
func (w *way) Adopt(ctx context.Context, ids []string) ([]string, error) {
	client, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	return client.Adopt(ctx, ids...)
}

// close leaves the process and the links as they are.
func (w *way) close() error {
	w.mu.Lock()
	client := w.client
	w.client, w.closed = nil, true
	w.mu.Unlock()
	var err error
	if client != nil {
		err = client.Close()
	}
	w.wait.Wait()
	return err
}
