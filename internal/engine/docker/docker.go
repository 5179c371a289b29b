// Package docker owns the engine that isolates sandboxes with containers of a Docker Engine. It
// uses a local or remote daemon, creates hardened containers without a network, and finds its
// containers again by labels. No other package uses Docker.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/crannog/crannog/internal/engine"
)

// Name is the engine's name.
const Name = "docker"

// Images is a store of images that the daemon does not share.
type Images interface {
	// ExportTo writes an image under another name, in the format of docker save.
	ExportTo(ctx context.Context, image engine.OCI, name string, w io.Writer) error
}

// Options configure the engine.
type Options struct {
	// StateDir is the server's state directory. It holds an ID, which labels all objects that the
	// engine creates in the daemon.
	StateDir string
	Log      *slog.Logger
	// Guest is the path of the statically linked guest program on this host.
	Guest string
	// Host is the daemon's address, such as unix:///run/docker.sock. If it is "", DOCKER_HOST or
	// the default is used.
	Host string
	// Runtime is the daemon's name of the OCI runtime, such as crun or runsc. If it is "", the
	// daemon's default is used.
	Runtime string
	// NoDevice makes the engine connect sandboxes by a proxy, as with a daemon of another host.
	NoDevice bool
	// Images is the store of images that are loaded into the daemon, or nil.
	Images Images
}

// Engine runs sandboxes in containers of a daemon. It is safe for concurrent use.
type Engine struct {
	o      Options
	dir    string // StateDir/docker
	client *client.Client
	local  bool // the daemon is reached through a socket of this host
	// life ends with Close, and carried are the goroutines that carry networks until then.
	life    context.Context //nolint:containedctx // it is the engine's own
	end     context.CancelFunc
	carried sync.WaitGroup

	mu              sync.Mutex
	streams         map[string]*execConnection // by container
	version         string                     // the daemon's version, once it is known
	runtimeAccepted bool                       // the daemon has the runtime, and it is what its name says
	derived         map[string]string          // IDs of images with the guest, by base image and guest
	failedCreations map[string]bool            // IDs whose creation failed before anything was created
	carriers        map[string]bool            // containers whose network this process carries, or waits to carry
}

var (
	_ engine.Engine  = (*Engine)(nil)
	_ engine.Meter   = (*Engine)(nil)
	_ engine.Freezer = (*Engine)(nil)

	_ engine.Archiver    = (*Engine)(nil)
	_ engine.ImageFinder = (*Engine)(nil)
)

// New opens the engine on a state directory. It does not contact the daemon. A missing daemon is a
// finding of Probe, and an error of each method that needs the daemon.
func New(o Options) (*Engine, error) {
	c, err := newClient(o.Host)
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	life, end := context.WithCancel(context.Background())
	return &Engine{
		life: life, end: end, carriers: map[string]bool{},
		o: o, dir: filepath.Join(o.StateDir, "docker"), client: c, local: strings.HasPrefix(c.DaemonHost(), "unix://"),
		streams: map[string]*execConnection{}, derived: map[string]string{}, failedCreations: map[string]bool{},
	}, nil
}

// newClient returns a client of the daemon at an address, or of the daemon that the environment
// names. If the environment is invalid, newClient succeeds and each call of the client fails: a
// wrong variable of another program must not stop other engines.
func newClient(host string) (*client.Client, error) {
	options := []client.Opt{client.FromEnv}
	if host != "" {
		options = append(options, client.WithHost(host))
	}
	c, err := client.New(options...)
	if err == nil {
		return c, nil
	}
	return client.New(client.WithHost(client.DefaultDockerHost), client.WithDialContext(func(context.Context, string, string) (net.Conn, error) { return nil, err }))
}

// Info implements engine.Engine.
func (e *Engine) Info() engine.Info {
	info := engine.Info{
		Name: Name, Version: e.daemonVersion(), Boundary: engine.SharedKernel,
		Enforces:   []engine.Limit{engine.LimitMemory, engine.LimitCPU, engine.LimitPIDs, engine.LimitShm},
		OwnNetwork: true, OwnFiles: true, NoRoot: true, OnRequest: true, DiskInMemory: true, FixedHostname: true, Volumes: e.showsVolumes(),
		Capabilities: engine.Implemented(e),
		Images:       slices.Clone(imageKinds),
		Egress:       e.egressKinds(),
		Notes: []string{
			"all programs of a sandbox run as the sandbox's user: none is root, and that user owns /etc",
			"a program that exceeds the memory limit is killed, and the sandbox continues",
			"files that a sandbox writes are in its memory, except for those of a workspace of this host, which have no limit of their own",
		},
	}
	if e.userspaceKernel() {
		e.describeOwnKernel(&info)
	}
	if info.Attachment() == engine.EgressProxy {
		info.Notes = append(info.Notes, "programs reach the network only through the proxy that HTTP_PROXY, HTTPS_PROXY and ALL_PROXY name: a network interface requires a daemon on this host, root, and a runtime that uses the host's network stack")
	}
	return info
}

// daemonVersion returns the daemon's version, or "" before its first answer.
func (e *Engine) daemonVersion() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.version
}

// listTime bounds List. A server lists the sandboxes of all engines before it serves requests, and
// a hanging daemon must not block the sandboxes of other engines.
const listTime = 10 * time.Second

// List implements engine.Engine.
func (e *Engine) List(ctx context.Context) ([]engine.Status, error) {
	owner, err := e.owner(false)
	if err != nil || owner == "" {
		return nil, err // nothing was created yet
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	containers, err := e.containers(ctx, owner, "")
	if err != nil {
		return nil, e.explain("list the containers", err)
	}
	var list []engine.Status
	known := map[string]bool{}
	for _, c := range containers {
		id := c.Labels[labelSandbox]
		if id == "" {
			continue // a container in which an image is built
		}
		status := engine.Status{ID: id, State: engine.Stopped, Created: time.Unix(c.Created, 0)}
		if c.State == "running" || c.State == "paused" {
			status.State = engine.Running
		}
		known[id] = true
		list = append(list, status)
	}
	// An interrupted creation or removal may have left only a volume.
	volumes, err := e.volumes(ctx, owner, "")
	if err != nil {
		return nil, e.explain("list the volumes", err)
	}
	for _, v := range volumes {
		if id := v.Labels[labelSandbox]; !known[id] {
			known[id] = true
			list = append(list, engine.Status{ID: id, State: engine.Stopped})
		}
	}
	// And an interrupted creation may have left only the socket of its network.
	sockets, err := e.socketOwners()
	for _, id := range sockets {
		if !known[id] {
			list = append(list, engine.Status{ID: id, State: engine.Stopped})
		}
	}
	return list, err
}

// Close ends the streams of this process into sandboxes, and their networks that it carries. The
// sandboxes keep running, and the next process carries their networks.
func (e *Engine) Close() error {
	e.end()
	e.carried.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for id, s := range e.streams {
		errs = append(errs, s.close())
		delete(e.streams, id)
	}
	return errors.Join(append(errs, e.client.Close())...)
}
