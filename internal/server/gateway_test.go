package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/javastore"
	"github.com/crannog/crannog/internal/guest/proxyport"
	"github.com/crannog/crannog/internal/sandbox"
)

// If the gateway does not start, Attach must fail. Otherwise a sandbox would start without a
// network.
func TestGatewayStartErrorIsReturned(t *testing.T) {
	failed, tries := errors.New("no process"), 0
	g := &egressGateway{stateDir: t.TempDir(), log: slog.New(slog.DiscardHandler), connect: func(context.Context, string, gateway.Options) (*gateway.Client, error) {
		tries++
		return nil, failed
	}}
	g.onLoss(func(context.Context) { t.Error("onLoss was called, although no process was started") })
	calls := map[string]func() error{
		"attach": func() error { _, err := g.Attach(t.Context(), sandbox.Attachment{Sandbox: "i1"}); return err },
		"update": func() error { return g.Update(t.Context(), sandbox.Attachment{Sandbox: "i1"}) },
		"adopt":  func() error { _, err := g.Adopt(t.Context(), []string{"i1"}); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, failed) {
			t.Errorf("%s: got %v, want %v", name, err, failed)
		}
	}
	// Each call tries to start the process again. Detach needs no process.
	if tries != len(calls) {
		t.Errorf("got %d attempts to start the process, want %d", tries, len(calls))
	}
	if err := g.Detach(t.Context(), "i1"); err != nil || tries != len(calls) {
		t.Errorf("detach: got %v after %d attempts, want nil and no further attempt", err, tries)
	}
	if err := g.close(); err != nil {
		t.Error(err)
	}
	for name, call := range calls {
		if err := call(); err == nil || errors.Is(err, failed) || tries != len(calls) {
			t.Errorf("%s of a closed client: got %v, want an error without an attempt", name, err)
		}
	}
}

// Programs in a sandbox look up names at the gateway and trust its certificates.
func TestGatewayTrustHasNameServerAndCertificate(t *testing.T) {
	ca, err := certs.New("i1", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	files, env, err := gatewayTrust(ca.Certificate(), egress.Packets)
	if err != nil {
		t.Fatal(err)
	}
	fileAt := func(path string) guest.File {
		i := slices.IndexFunc(files, func(f guest.File) bool { return f.Path == path })
		if i < 0 {
			t.Fatalf("gatewayTrust returns no file %s", path)
		}
		return files[i]
	}
	if text := string(fileAt("/etc/resolv.conf").Data); !strings.HasPrefix(text, "nameserver ") {
		t.Errorf("resolv.conf: got %q, want a name server", text)
	}
	if f := fileAt(certs.BundlePath); !f.Append || !strings.Contains(string(f.Data), strings.TrimSpace(string(ca.Certificate()))) {
		t.Errorf("bundle: got %+v, want the gateway's certificate appended", f)
	}
	// An image may have Java where the host has none.
	if f := fileAt(certs.JavaPath); f.Around == nil || !javastore.IsHead(f.Around.Head) {
		t.Errorf("Java's store: got %+v, want an entry that is added", f)
	}
	if len(env) == 0 || env["HTTPS_PROXY"] != "" {
		t.Errorf("gatewayTrust returns the environment variables %v, want no proxy", env)
	}
	// Without a network interface, programs have to use the proxy.
	if files, env, err = gatewayTrust(ca.Certificate(), egress.Proxy); err != nil {
		t.Fatal(err)
	}
	if text := string(fileAt("/etc/resolv.conf").Data); text != proxyport.ResolvConf || env["HTTPS_PROXY"] == "" || env["https_proxy"] != env["HTTPS_PROXY"] {
		t.Errorf("with a proxy: resolv.conf is %q, and the variables are %v", text, env)
	}
	if _, _, err := gatewayTrust([]byte("no certificate"), egress.Packets); err == nil {
		t.Error("gatewayTrust accepted an invalid certificate")
	}
}
