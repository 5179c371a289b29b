package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/egress/policy"
)

// netRig is a server with several network paths to it: from the host directly and through a plain
// proxy, from a sandbox whose network passes everything, and from a sandbox behind the egress
// gateway. As in production, each part is a separate process, except that the server is in this
// one.
type netRig struct {
	dir            string
	upstream       *upstream
	proxy          string
	client         *gateway.Client
	gatewaySandbox *engineSandbox
	passSandbox    *engineSandbox
	roots          []byte // of the gateway and of the upstream
	hostArgv       string // the client's program on the host
	closers        []func() error
}

// netRig starts all parts.
func (b *bench) netRig(ctx context.Context) (_ *netRig, err error) {
	r := &netRig{}
	if r.dir, err = os.MkdirTemp(b.dir, "net"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	workspace := filepath.Join(r.dir, "workspace")
	if err := os.MkdirAll(workspace, 0o755); err != nil {
		return nil, err
	}
	r.hostArgv = filepath.Join(workspace, clientArg0)
	if err := copyProgram(r.hostArgv); err != nil {
		return nil, err
	}
	if r.upstream, err = startUpstream(ctx); err != nil {
		return nil, err
	}
	r.closers = append(r.closers, r.upstream.close)
	if r.proxy, err = r.start(ctx, connectArg0, nil); err != nil {
		return nil, err
	}
	if r.client, err = r.openGateway(ctx, r.dir); err != nil {
		return nil, err
	}
	eng, err := openEngine(filepath.Join(r.dir, "engine"), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	end, certificate, err := r.attach(ctx, r.client, r.dir, "causeway1", manyRules)
	if err != nil {
		return nil, err
	}
	r.roots = append(bytes.Clone(r.upstream.roots), certificate...)
	if r.gatewaySandbox, err = r.sandbox(ctx, eng, workspace, end); err != nil {
		return nil, err
	}
	end, ours, err := attachment.Pair(attachment.Packets)
	if err != nil {
		return nil, err
	}
	if _, err := r.start(ctx, passArg0, ours); err != nil {
		return nil, errors.Join(err, end.Close(), ours.Close())
	}
	if r.passSandbox, err = r.sandbox(ctx, eng, workspace, end); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	return r, ours.Close()
}

// close ends all parts, the last one first.
func (r *netRig) close() error {
	var errs []error
	for _, end := range slices.Backward(r.closers) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// copyProgram copies this program to a path that sandboxes see, under the client's name.
func copyProgram(to string) (err error) {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}

// start starts this program in another role and returns its first line.
func (r *netRig) start(ctx context.Context, role string, file *os.File) (string, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", r.upstream.address)
	cmd.Args[0], cmd.Stderr = role, os.Stderr
	if file != nil {
		cmd.ExtraFiles = []*os.File{file}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	r.closers = append(r.closers, func() error { return errors.Join(in.Close(), cmd.Wait()) })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s: %w", role, err)
	}
	return strings.TrimSpace(line), nil
}

// openGateway starts a gateway process whose only destination is the upstream server.
func (r *netRig) openGateway(ctx context.Context, state string) (*gateway.Client, error) {
	if err := (netEnvironment{Upstream: r.upstream.address, Roots: r.upstream.roots}).write(state); err != nil {
		return nil, err
	}
	c, err := gateway.Connect(ctx, state, gateway.Options{})
	if err == nil {
		r.closers = append(r.closers, c.Close)
	}
	return c, err
}

// attach gives a sandbox a network with a flow file, as the server does.
func (r *netRig) attach(ctx context.Context, c *gateway.Client, dir, id string, many int) (*os.File, []byte, error) {
	return r.attachKind(ctx, c, dir, id, many, egress.Packets, nil)
}

// attachKind is like attach, for a kind of attachment whose end exists already.
func (r *netRig) attachKind(ctx context.Context, c *gateway.Client, dir, id string, many int, kind egress.AttachmentKind, link *os.File) (*os.File, []byte, error) {
	record, err := os.OpenFile(filepath.Join(dir, id+".ndjson"), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer record.Close()
	d, err := policy.Parse([]byte(netPolicy(many)))
	if err != nil {
		return nil, nil, err
	}
	return c.Attach(ctx, gateway.Attachment{
		Sandbox: id, Kind: kind, Link: link, Record: record, Policy: []policy.Layer{{Kind: policy.LayerTask, Document: d}},
		Secrets: []egress.Secret{{
			Name: "API", Value: "k-4f9d0c7ab1e2836655d0", Generation: 1, Host: hostSecret, Port: 443, Header: "Authorization", Format: "Bearer {}",
			Expires: time.Now().Add(time.Hour), Uses: 1 << 30,
		}},
	})
}

// usualRules and manyRules are numbers of rules of the last host. usualRules is the default.
const (
	usualRules = 10
	manyRules  = 1000
)

// netPolicy returns a policy that passes one host on without decryption and decrypts the others.
// The last host has many rules.
func netPolicy(many int) string {
	var b strings.Builder
	b.WriteString("policy: v1\nlevel: minimal\nnetwork:\n  unlisted: deny\n  hosts:\n")
	block := func(host string, rules int, open bool) {
		fmt.Fprintf(&b, "    - host: %s\n      rules:\n", host)
		for i := range rules - 1 {
			fmt.Fprintf(&b, "        - {id: r%d, methods: [GET, PUT], paths: [/repos/%d/**, /v%d/*/items], do: allow}\n", i, i, i)
		}
		if open {
			b.WriteString("        - {id: rest, methods: [GET, POST], do: allow}\n")
		} else {
			b.WriteString("        - {id: all, do: allow}\n")
		}
	}
	block(hostSplice, 1, false)
	block(hostOpen, 1, true)
	block(hostSecret, 1, true)
	block(hostTen, 10, true)
	block(hostThousand, many, true)
	return b.String()
}

// onHost runs the client's job on the host.
func (r *netRig) onHost(ctx context.Context, j netJob) ([]time.Duration, error) {
	var out bytes.Buffer
	if err := hostCommand(ctx, &out, r.hostArgv, j.argument()); err != nil {
		return nil, err
	}
	return readTimes(out.Bytes())
}

func (j netJob) argument() string {
	data, err := json.Marshal(j)
	if err != nil {
		panic(err) // a job always has a JSON form
	}
	return string(data)
}

// readTimes parses the output of the client.
func readTimes(out []byte) (took []time.Duration, err error) {
	err = json.Unmarshal(out, &took)
	return took, err
}
