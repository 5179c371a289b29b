package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/egress/gateway"
)

const (
	attachedSandboxes   = 256
	requestingSandboxes = 64
)

// netCrowdFigures attaches many sandboxes to one gateway. It measures the memory of each, and the
// duration of requests when many arrive at once.
func netCrowdFigures(ctx context.Context, b *bench) (err error) {
	r := &netRig{dir: filepath.Join(b.dir, "netcrowd")}
	defer func() { err = errors.Join(err, r.close()) }()
	if r.upstream, err = startUpstream(ctx); err != nil {
		return err
	}
	r.closers = append(r.closers, r.upstream.close)
	if r.client, err = r.openGateway(ctx, r.dir); err != nil {
		return err
	}
	pid := r.client.Info().PID
	sizes := newScores()
	empty, err := residentOf(pid)
	if err != nil {
		return err
	}
	sizes.add("the process alone", float64(empty)/1e6)
	addMemory := func(name string) error {
		now, err := settledResident(ctx, pid)
		sizes.add(name+", all", float64(now)/1e6)
		sizes.add(name+", each", float64(now)/1e6/attachedSandboxes)
		return err
	}
	var sandboxes []*netStack
	began := time.Now()
	for i := range attachedSandboxes {
		end, certificate, err := r.attach(ctx, r.client, r.dir, "crowd"+strconv.Itoa(i), usualRules)
		if err != nil {
			return err
		}
		sb, err := openStack(end, certificate)
		if err != nil {
			return err
		}
		sandboxes = append(sandboxes, sb)
		r.closers = append(r.closers, sb.close)
	}
	took := time.Since(began) / attachedSandboxes
	if err := addMemory("256 attached, no connection"); err != nil {
		return err
	}
	if err := allAtOnce(sandboxes, func(sb *netStack) error { return requestOnce(ctx, sb.client) }); err != nil {
		return err
	}
	if err := addMemory("256 attached, a TLS connection each, opened"); err != nil {
		return err
	}
	sec := table("netcrowd", "resident memory of the gateway's process", "MB", sizes)
	for _, name := range []string{"256 attached, no connection, each", "256 attached, a TLS connection each, opened, each"} {
		sec.target(name, "≤ 1 MB", func(r row) bool { return r.P50 <= 1 })
	}
	sec.note("VmRSS of /proc/PID/status, the process's own share included, three seconds after the last change. Each sandbox")
	sec.note("has 23 rules for five hosts. The sandboxes' ends are network stacks of this program. Attaching took %s ms each.", number(millis(took)))
	b.report.add(sec)
	return r.requestAtOnce(ctx, b, sandboxes[:requestingSandboxes])
}

// allAtOnce runs a function for all sandboxes at once.
func allAtOnce[T any](all []T, do func(T) error) error {
	errs := make([]error, len(all))
	var wait sync.WaitGroup
	for i, one := range all {
		wait.Go(func() { errs[i] = do(one) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// requestOnce makes a small request and checks the answer.
func requestOnce(ctx context.Context, c *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+hostSecret+"/answer", nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && (resp.StatusCode != http.StatusOK || n != int64(len(smallAnswer))) {
		err = fmt.Errorf("%s, %d bytes", resp.Status, n)
	}
	return err
}

// requestAtOnce measures requests from several sandboxes at once, and from as many clients outside
// of sandboxes.
func (r *netRig) requestAtOnce(ctx context.Context, b *bench, sandboxes []*netStack) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(r.upstream.roots)
	var inside, direct []*http.Client
	for _, sb := range sandboxes {
		inside = append(inside, sb.client)
		t := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, r.upstream.address)
		}}
		defer t.CloseIdleConnections()
		direct = append(direct, &http.Client{Transport: t})
	}
	ask := func(name string, clients []*http.Client) contender {
		return contender{name, func(ctx context.Context, s *scores) error {
			return allAtOnce(clients, func(c *http.Client) error {
				for range 10 {
					began := time.Now()
					if err := requestOnce(ctx, c); err != nil {
						return err
					}
					s.addTime(name, time.Since(began))
				}
				return nil
			})
		}}
	}
	names := []string{"1, direct", "64 at once, direct", "1, through the gateway", "64 at once, through the gateway"}
	s, err := race(ctx, b.fewer(4), ask(names[0], direct[:1]), ask(names[1], direct), ask(names[2], inside[:1]), ask(names[3], inside))
	if err != nil {
		return err
	}
	sec := table("netcrowd", "a request on a kept-alive connection, decrypted, secret set and redacted, 256 attached", "ms", s, names...)
	sec.against(names[0], names[2])
	sec.against(names[1], names[3])
	sec.note("Clients, their stacks and the server are one process and share the processors with the gateway: at once, they wait for those.")
	b.report.add(sec)
	return nil
}

// residentOf returns the resident memory of a process, including pages of its program.
func residentOf(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}

// settledResident returns the resident memory of a process after a pause.
func settledResident(ctx context.Context, pid int) (int64, error) {
	select {
	case <-time.After(settleTime):
		return residentOf(pid)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// startGateway returns a contender that measures the start of a gateway process, and an attachment
// to it.
func (b *bench) startGateway(name, attach string) contender {
	round := 0
	return contender{name, func(ctx context.Context, s *scores) (err error) {
		round++
		r := &netRig{dir: filepath.Join(b.dir, "start"+strconv.Itoa(round))}
		if err := os.MkdirAll(r.dir, 0o700); err != nil {
			return err
		}
		began := time.Now()
		c, err := gateway.Connect(ctx, r.dir, gateway.Options{})
		if err != nil {
			return err
		}
		s.addTime(name, time.Since(began))
		// The process ends by itself within two seconds after Close.
		defer func() { err = errors.Join(err, c.Close()) }()
		began = time.Now()
		end, _, err := r.attach(ctx, c, r.dir, "one", usualRules)
		if err != nil {
			return err
		}
		s.addTime(attach, time.Since(began))
		return end.Close()
	}}
}
