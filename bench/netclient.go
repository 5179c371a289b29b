package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// netJob is a job of the measuring client, which runs on the host or in a sandbox.
type netJob struct {
	Kind  jobKind
	Host  string
	Port  int
	Dial  string `json:",omitempty"` // address of Host; "" uses the gateway's name server
	Proxy string `json:",omitempty"` // proxy that is used with CONNECT
	H2    bool
	Roots []byte // PEM
	N     int    // measured requests, connections or transfers
	Bytes int64  // of a transfer
}

type jobKind string

const (
	jobKept     jobKind = "kept"     // requests on one connection
	jobNew      jobKind = "new"      // a connection for each request, without a lookup
	jobLookup   jobKind = "lookup"   // look-ups of a name
	jobDownload jobKind = "download" // answers of Bytes
	jobUpload   jobKind = "upload"   // bodies of Bytes
)

// warmUpRequests is the number of requests before the measured ones.
const warmUpRequests = 5

// netClient does the job in its argument, and prints the duration of each round.
func netClient() {
	var j netJob
	err := json.Unmarshal([]byte(os.Args[1]), &j)
	if err == nil {
		var took []time.Duration
		if took, err = j.do(context.Background()); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(took)
		}
	}
	if err != nil {
		fail(err)
	}
}

// do does the job and returns the duration of each measured round.
func (j netJob) do(ctx context.Context) ([]time.Duration, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(j.Roots)
	c := &netPath{job: j, roots: roots}
	if err := c.find(ctx); err != nil {
		return nil, err
	}
	once := c.transfer
	switch j.Kind {
	case jobKept:
		once = c.ask
	case jobNew:
		once = c.fresh
	case jobLookup:
		once = c.find
	case jobDownload, jobUpload: // transfers
	}
	skip := warmUpRequests
	if j.Bytes > 0 {
		skip = 0
		// Open the connection before the measurement starts.
		if err := c.ask(ctx); err != nil {
			return nil, err
		}
	}
	var took []time.Duration
	for i := range skip + j.N {
		began := time.Now()
		if err := once(ctx); err != nil {
			return nil, fmt.Errorf("%s %s: %w", j.Kind, j.Host, err)
		}
		if i >= skip {
			took = append(took, time.Since(began))
		}
	}
	return took, nil
}

// netPath is the client's connection to the server.
type netPath struct {
	job    netJob
	roots  *x509.CertPool
	at     string // address of the host
	client *http.Client
}

// find looks up the host, unless the job has its address.
func (c *netPath) find(ctx context.Context) error {
	if c.job.Dial != "" {
		c.at = c.job.Dial
		return nil
	}
	found, err := gatewayResolver().LookupNetIP(ctx, "ip4", c.job.Host)
	if err != nil {
		return err
	}
	c.at = net.JoinHostPort(found[0].String(), strconv.Itoa(c.job.Port))
	return nil
}

func (c *netPath) transport() *http.Transport {
	return &http.Transport{
		DialContext: c.dial, TLSClientConfig: &tls.Config{RootCAs: c.roots}, ForceAttemptHTTP2: c.job.H2,
		DisableCompression: true, ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10,
	}
}

func (c *netPath) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	if c.job.Proxy == "" {
		return new(net.Dialer).DialContext(ctx, network, c.at)
	}
	proxy := c.job.Proxy
	if path, socket := strings.CutPrefix(proxy, "unix:"); socket {
		network, proxy = "unix", path
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, proxy)
	if err != nil {
		return nil, err
	}
	target := net.JoinHostPort(c.job.Host, strconv.Itoa(c.job.Port))
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	// The server sends nothing after the head before the client's TLS hello, so no buffered byte is
	// lost.
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err == nil {
		resp.Body.Close() // after a success the connection is the tunnel, which stays open
		if resp.StatusCode != http.StatusOK {
			err = errors.New("the proxy answered " + resp.Status)
		}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// sharedClient returns one client for the whole job.
func (c *netPath) sharedClient() *http.Client {
	if c.client == nil {
		c.client = &http.Client{Transport: c.transport()}
	}
	return c.client
}

// ask makes a small request on the shared connection.
func (c *netPath) ask(ctx context.Context) error {
	return c.get(ctx, c.sharedClient(), "/answer", int64(len(smallAnswer)))
}

// fresh makes a small request on a new connection.
func (c *netPath) fresh(ctx context.Context) error {
	t := c.transport()
	defer t.CloseIdleConnections()
	return c.get(ctx, &http.Client{Transport: t}, "/answer", int64(len(smallAnswer)))
}

// transfer makes one upload or download.
func (c *netPath) transfer(ctx context.Context) error {
	if c.job.Kind == jobUpload {
		return c.send(ctx, c.sharedClient())
	}
	return c.get(ctx, c.sharedClient(), "/bytes?n="+strconv.FormatInt(c.job.Bytes, 10), c.job.Bytes)
}

func (c *netPath) get(ctx context.Context, client *http.Client, path string, size int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.job.Host+path, nil)
	if err != nil {
		return err
	}
	return c.expect(client, req, size)
}

func (c *netPath) send(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.job.Host+"/upload", io.LimitReader(endless{}, c.job.Bytes))
	if err != nil {
		return err
	}
	req.ContentLength = c.job.Bytes
	return c.expect(client, req, int64(len(smallAnswer)))
}

// expect makes a request and returns an error for an unexpected answer.
func (c *netPath) expect(client *http.Client, req *http.Request, size int64) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, copyBuffer(size)))
	err = errors.Join(err, resp.Body.Close())
	if err == nil && (resp.StatusCode != http.StatusOK || n != size || (resp.ProtoMajor == 2) != c.job.H2) {
		err = fmt.Errorf("%s, %d bytes of %d over HTTP/%d", resp.Status, n, size, resp.ProtoMajor)
	}
	return err
}

func copyBuffer(size int64) int64 { return min(max(size, 512), 256<<10) }
