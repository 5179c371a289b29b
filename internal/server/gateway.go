package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"sync"

	"github.com/crannog/crannog/internal/audit/flows"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/javastore"
	"github.com/crannog/crannog/internal/guest/proxyport"
	"github.com/crannog/crannog/internal/packages/examine"
	"github.com/crannog/crannog/internal/packages/figures"
	"github.com/crannog/crannog/internal/packages/store"
	"github.com/crannog/crannog/internal/sandbox"
)

// egressGateway is the client of the process that terminates the networks of all sandboxes. The
// process is started when the first sandbox needs a network.
type egressGateway struct {
	stateDir string
	log      *slog.Logger
	flows    *flows.Dir
	// connect is gateway.Connect, except in tests.
	connect func(ctx context.Context, stateDir string, o gateway.Options) (*gateway.Client, error)

	approver egress.Approver
	// packages stores what the process has fetched for the package cache.
	packages *store.Store
	// examiner inspects and scans them.
	examiner *examine.Examiner
	// keyrings are the files of PackageOptions.Keyrings.
	keyrings []string
	// answered counts the answers of the package cache while the server serves.
	answered figures.Counter

	mu     sync.Mutex
	lost   func(context.Context) // called after the process has died
	client *gateway.Client
	closed bool
	wait   sync.WaitGroup
}

// onLoss sets the function that is called after the process has died.
func (g *egressGateway) onLoss(f func(context.Context)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = f
}

// open returns a client whose process is running.
func (g *egressGateway) open(ctx context.Context) (*gateway.Client, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errors.New("the egress gateway's client is closed")
	}
	if g.client != nil {
		select {
		case <-g.client.Done():
		default:
			return g.client, nil
		}
	}
	client, err := g.connect(ctx, g.stateDir, gateway.Options{Asker: g.approver, Log: g.log, Packages: g.packages, Examiner: g.examiner})
	if err != nil {
		return nil, err
	}
	g.client = client
	g.wait.Go(func() { g.watch(client) })
	return client, nil
}

// watch calls lost after the process has died, because then every sandbox has lost its network.
func (g *egressGateway) watch(client *gateway.Client) {
	<-client.Done()
	g.mu.Lock()
	lost, closed := g.lost, g.closed
	g.mu.Unlock()
	if !closed && lost != nil {
		lost(context.Background())
	}
}

// existing returns the client, or nil if no process has been started yet.
func (g *egressGateway) existing() *gateway.Client {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.client
}

// Attach implements sandbox.Gateway.
func (g *egressGateway) Attach(ctx context.Context, a sandbox.Attachment) (sandbox.Link, error) {
	client, err := g.open(ctx)
	if err != nil {
		return sandbox.Link{}, err
	}
	if err := g.refreshKeys(a.Policy); err != nil {
		return sandbox.Link{}, err
	}
	record, err := g.flows.Create(a.Sandbox)
	if err != nil {
		return sandbox.Link{}, err
	}
	defer record.Close()
	end, certificate, err := client.Attach(ctx, gateway.Attachment{
		Sandbox: a.Sandbox, Policy: a.Policy.Layers(), Secrets: a.Secrets, Record: record, Kind: a.Kind, Link: a.End,
		Locked: a.Locked,
	})
	if err != nil {
		return sandbox.Link{}, err
	}
	link := sandbox.Link{End: end}
	if link.Files, link.Env, err = gatewayTrust(certificate, a.Kind); err != nil {
		if end != nil {
			err = errors.Join(err, end.Close())
		}
		return sandbox.Link{}, err
	}
	return link, nil
}

// gatewayTrust returns the files and variables with which programs in a sandbox find the name
// server and trust the gateway's certificates.
func gatewayTrust(certificate []byte, kind egress.AttachmentKind) ([]guest.File, map[string]string, error) {
	trust, err := certs.Addition(certificate)
	if err != nil {
		return nil, nil, err
	}
	store, err := javaStore(certificate)
	if err != nil {
		return nil, nil, err
	}
	resolver := fmt.Sprintf("nameserver %s\noptions timeout:2 attempts:2\n", egress.Gateway)
	if kind == egress.Proxy {
		resolver = proxyport.ResolvConf
		maps.Copy(trust.Env, proxyport.Variables())
	}
	files := []guest.File{{Path: "/etc/resolv.conf", Mode: 0o644, Data: []byte(resolver)}}
	for _, f := range append(trust.Files, store...) {
		files = append(files, guest.File{Path: f.Path, Mode: f.Mode, Data: f.Data, Link: f.Link, Append: f.Append, Around: (*guest.Around)(f.Around)})
	}
	return files, trust.Env, nil
}

// javaStore returns what makes Java trust the gateway, in sandboxes that have a trust store of Java:
// the host's, because the host's programs are visible in sandboxes, or that of an image.
func javaStore(certificate []byte) ([]certs.File, error) {
	// Read the host's store each time, because the host's packages may have changed it.
	hostStore, err := os.ReadFile(certs.JavaPath)
	if errors.Is(err, fs.ErrNotExist) {
		hostStore = javastore.Join(0)
	} else if err != nil {
		return nil, err
	}
	if added, ok, err := certs.JavaAddition(hostStore, certificate); ok || err != nil {
		return []certs.File{added}, err
	}
	roots, err := hostRoots()
	if err != nil {
		return nil, err
	}
	store, err := certs.JavaStore(roots, certificate)
	return []certs.File{store}, err
}

// hostRoots reads the host's certificate authorities once.
var hostRoots = sync.OnceValues(func() (*certs.Bundle, error) {
	data, err := os.ReadFile(certs.BundlePath)
	if err != nil {
		return nil, err
	}
	return certs.ReadBundle(data)
})

// Update implements sandbox.Gateway.
func (g *egressGateway) Update(ctx context.Context, a sandbox.Attachment) error {
	client, err := g.open(ctx)
	if err != nil {
		return err
	}
	if err := g.refreshKeys(a.Policy); err != nil {
		return err
	}
	return client.Update(ctx, a.Sandbox, a.Policy.Layers(), a.Secrets, a.Probes)
}

// Detach implements sandbox.Gateway. If no process was started, there is nothing to detach, because
// an attachment ends with its sandbox.
func (g *egressGateway) Detach(ctx context.Context, id string) error {
	client := g.existing()
	if client == nil {
		return nil
	}
	err := client.Detach(ctx, id)
	select {
	case <-client.Done():
		return nil // all attachments ended with the process
	default:
		return err
	}
}

// Adopt implements sandbox.Gateway.
func (g *egressGateway) Adopt(ctx context.Context, ids []string) ([]string, error) {
	client, err := g.open(ctx)
	if err != nil {
		return nil, err
	}
	return client.Adopt(ctx, ids...)
}

// close closes the client. The process and the attachments keep running.
func (g *egressGateway) close() error {
	g.mu.Lock()
	client := g.client
	g.client, g.closed = nil, true
	g.mu.Unlock()
	var err error
	if client != nil {
		err = client.Close()
	}
	g.wait.Wait()
	return err
}
