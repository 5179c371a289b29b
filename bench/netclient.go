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

// netJob is a job of the client. The same program does it on the host and in a sandbox.
type netJob struct {
	Kind  jobKind
	Host  string
	Port  int
	Dial  string `json:",omitempty"` // address of Host; "" uses the gateway's name server
	Proxy string `json:",omitempty"` // proxy that is used with CONNECT
	H2    bool
	Roots []byte // PEM
	N     int    // counted requests, connections or transfers
	Bytes int64  // of a transfer
}

type jobKind string

const (
	jobKept     jobKind = "kept"     // requests on one connection
	jobNew      jobKind = "new"      // a connection for each request, its name known
	jobLookup   jobKind = "lookup"   // look-ups of a name
	jobDownload jobKind = "download" // answers of Bytes
	jobUpload   jobKind = "upload"   // bodies of Bytes
)

// warm is how many requests precede the measured ones.
const warm = 5

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

func (j netJob) do(ctx context.Context) ([]time.Duration, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(j.Roots)
	c := &netWay{job: j, roots: roots}
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
	skip := warm
	if j.Bytes > 0 {
		skip = 0
		// The connection is open before the measurement starts.
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

// netWay is the client's way to the server.
type netWay struct {
	job    netJob
	roots  *x509.CertPool
	at     string // address of the host
	client *http.Client
}

// find looks up the host, unless the job has its address.
func (c *netWay) find(ctx context.Context) error {
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

func (c *netWay) transport() *http.Transport {
	return &http.Transport{
		DialContext: c.dial, TLSClientConfig: &tls.Config{RootCAs: c.roots}, ForceAttemptHTTP2: c.job.H2,
		DisableCompression: true, ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10,
	}
}

func (c *netWay) dial(ctx context.Context, network, _ string) (net.Conn, error) {
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
	// Nothing can follow the head before we have sent our hello.
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err == nil {
		resp.Body.Close() // after a success the connection is the tunnel, which stays open
		if resp.StatusCode != http.StatusOK {
			err = errors.New("the proxy says " + resp.Status)
		}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// kept returns one client for the whole job.
func (c *netWay) kept() *http.Client {
	if c.client == nil {
		c.client = &http.Client{Transport: c.transport()}
	}
	return c.client
}

func (c *netWay) ask(ctx context.Context) error {
	return c.get(ctx, c.kept(), "/answer", int64(len(smallAnswer)))
}

func (c *netWay) fresh(ctx context.Context) error {
	t := c.transport()
	defer t.CloseIdleConnections()
	return c.get(ctx, &http.Client{Transport: t}, "/answer", int64(len(smallAnswer)))
}

func (c *netWay) transfer(ctx context.Context) error {
	if c.job.Kind == jobUpload {
		return c.send(ctx, c.kept())
	}
	return c.get(ctx, c.kept(), "/bytes?n="+strconv.FormatInt(c.job.Bytes, 10), c.job.Bytes)
}

func (c *netWay) get(ctx context.Context, client *http.Client, path string, size int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.job.Host+path, nil)
	if err != nil {
		return err
	}
	return c.expect(client, req, size)
}

func (c *netWay) send(ctx context.Context, client *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.job.Host+"/upload", io.LimitReader(endless{}, c.job.Bytes))
	if err != nil {
		return err
	}
	req.ContentLength = c.job.Bytes
	return c.expect(client, req, int64(len(smallAnswer)))
}

// expect makes a request and rejects an unexpected answer.
func (c *netWay) expect(client *http.Client, req *http.Request, size int64) error {
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
