package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
)

// A sandbox must not start believing that it has a network that it has not.
func TestAGatewayThatDoesNotStart(t *testing.T) {
	failed, tries := errors.New("no process"), 0
	g := &egressGateway{stateDir: t.TempDir(), log: slog.New(slog.DiscardHandler), connect: func(context.Context, string, gateway.Options) (*gateway.Client, error) {
		tries++
		return nil, failed
	}}
	g.onLoss(func(context.Context) { t.Error("a process died that never ran") })
	calls := map[string]func() error{
		"attach": func() error { _, err := g.Attach(t.Context(), sandbox.Attachment{Sandbox: "i1"}); return err },
		"update": func() error { return g.Update(t.Context(), sandbox.Attachment{Sandbox: "i1"}) },
		"adopt":  func() error { _, err := g.Adopt(t.Context(), []string{"i1"}); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, failed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Each call tries again, and the end of a network needs no process.
	if tries != len(calls) {
		t.Errorf("%d tries of %d calls", tries, len(calls))
	}
	if err := g.Detach(t.Context(), "i1"); err != nil || tries != len(calls) {
		t.Errorf("detach: %v after %d tries", err, tries)
	}
	if err := g.close(); err != nil {
		t.Error(err)
	}
	for name, call := range calls {
		if err := call(); err == nil || errors.Is(err, failed) || tries != len(calls) {
			t.Errorf("%s of a closed client: %v", name, err)
		}
	}
}

// Programs inside look up names at the gateway, and trust its certificates.
func TestTrusting(t *testing.T) {
	ca, err := certs.New("i1", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	files, env, err := gatewayTrust(ca.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	at := func(path string) guest.File {
		i := slices.IndexFunc(files, func(f guest.File) bool { return f.Path == path })
		if i < 0 {
			t.Fatalf("there is no %s", path)
		}
		return files[i]
	}
	if text := string(at("/etc/resolv.conf").Data); !strings.HasPrefix(text, "nameserver ") {
		t.Errorf("%q", text)
	}
	if f := at(certs.BundlePath); !f.Append || !strings.Contains(string(f.Data), strings.TrimSpace(string(ca.Certificate()))) {
		t.Errorf("the bundle is %+v", f)
	}
	if len(env) == 0 {
		t.Error("no variable names the bundle")
	}
	if _, _, err := gatewayTrust([]byte("no certificate")); err == nil {
		t.Error("programs trust what is no certificate")
	}
}
