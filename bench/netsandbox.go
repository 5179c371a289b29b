package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// engineSandbox is a sandbox with a network. An engine created it directly, without a server.
type engineSandbox struct {
	engine  engine.Engine
	id      string
	http    *http.Transport
	process *client.Client
}

// sandbox creates a sandbox with a network. end is the sandbox's side of its network attachment;
// sandbox closes it.
func (r *netRig) sandbox(ctx context.Context, l *singleEngine, workspace string, end *os.File) (_ *engineSandbox, err error) {
	defer func() { err = errors.Join(err, end.Close()) }()
	sb := &engineSandbox{engine: l.engine, id: strings.ToLower(rand.Text()[:20])}
	token := rand.Text()
	config, err := json.Marshal(guest.Config{
		SandboxID: sb.id, Hostname: sb.id, AccessToken: token, ControlToken: rand.Text(), DefaultUser: "user",
		EndAt: time.Now().Add(30 * time.Minute),
	})
	if err != nil {
		return nil, err
	}
	spec := engine.Spec{ID: sb.id, Hostname: sb.id, Image: l.image, Boot: engine.Boot{Config: config}, Workspace: workspace, Egress: engine.Packets(end)}
	if err := l.engine.Create(ctx, spec); err != nil {
		return nil, err
	}
	sb.http = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return l.engine.Dial(ctx, sb.id, guestboot.Port)
	}}
	sb.process = client.New(&http.Client{Transport: sb.http}, "http://guest", http.Header{"X-Access-Token": {token}})
	r.closers = append(r.closers, func() error {
		sb.http.CloseIdleConnections()
		return l.engine.Remove(context.WithoutCancel(ctx), sb.id)
	})
	return sb, nil
}

// run runs the client's job in the sandbox.
func (b *engineSandbox) run(ctx context.Context, j netJob) ([]time.Duration, error) {
	p, err := b.process.Start(ctx, client.Spec{Cmd: "/workspace/" + clientArg0, Args: []string{j.argument()}})
	if err != nil {
		return nil, err
	}
	var out, stderr bytes.Buffer
	exit, err := p.Stream(&out, &stderr)
	if err != nil || exit.Code != 0 {
		return nil, errors.Join(err, fmt.Errorf("measuring client: exit code %d, standard error %q", exit.Code, strings.TrimSpace(stderr.String())))
	}
	return readTimes(out.Bytes())
}
