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

// loneBox is a sandbox with a network, made by the engine without a server.
type loneBox struct {
	engine  engine.Engine
	id      string
	http    *http.Transport
	process *client.Client
}

// box creates a sandbox with a network, and closes this process's copy of the sandbox's end.
func (r *netRig) box(ctx context.Context, l *loneEngine, workspace string, end *os.File) (_ *loneBox, err error) {
	defer func() { err = errors.Join(err, end.Close()) }()
	box := &loneBox{engine: l.engine, id: strings.ToLower(rand.Text()[:20])}
	token := rand.Text()
	config, err := json.Marshal(guest.Config{
		SandboxID: box.id, Hostname: box.id, AccessToken: token, ControlToken: rand.Text(), DefaultUser: "user",
		EndAt: time.Now().Add(30 * time.Minute),
	})
	if err != nil {
		return nil, err
	}
	spec := engine.Spec{ID: box.id, Hostname: box.id, Image: l.image, Boot: engine.Boot{Config: config}, Workspace: workspace, Egress: engine.Packets(end)}
	if err := l.engine.Create(ctx, spec); err != nil {
		return nil, err
	}
	box.http = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return l.engine.Dial(ctx, box.id, guestboot.Port)
	}}
	box.process = client.New(&http.Client{Transport: box.http}, "http://guest", http.Header{"X-Access-Token": {token}})
	r.closers = append(r.closers, func() error {
		box.http.CloseIdleConnections()
		return l.engine.Remove(context.WithoutCancel(ctx), box.id)
	})
	return box, nil
}

// run runs the client's job in the sandbox.
func (b *loneBox) run(ctx context.Context, j netJob) ([]time.Duration, error) {
	p, err := b.process.Start(ctx, client.Spec{Cmd: "/workspace/" + clientArg0, Args: []string{j.argument()}})
	if err != nil {
		return nil, err
	}
	var out, stderr bytes.Buffer
	exit, err := p.Pump(&out, &stderr)
	if err != nil || exit.Code != 0 {
		return nil, errors.Join(err, fmt.Errorf("the client ended with %d: %s", exit.Code, strings.TrimSpace(stderr.String())))
	}
	return readTimes(out.Bytes())
}
