package probe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// maxStatusLine bounds the first line of a proxy's answer.
const maxStatusLine = 512

// connectThrough asks a proxy for a connection to name:port and closes it. No data is sent.
func connectThrough(ctx context.Context, proxy, target string) (accepted bool, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", proxy)
	if err != nil {
		return false, fmt.Errorf("the proxy %s: %w", proxy, err)
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			return false, err
		}
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		return false, fmt.Errorf("the proxy %s: %w", proxy, err)
	}
	line, err := bufio.NewReader(io.LimitReader(conn, maxStatusLine)).ReadString('\n')
	if err != nil {
		return false, fmt.Errorf("the proxy %s: %w", proxy, err)
	}
	_, status, _ := strings.Cut(line, " ")
	return strings.HasPrefix(status, "200"), nil
}

// checkPortsThrough tries the ports of a known name through the proxy.
func (c Checks) checkPortsThrough(ctx context.Context, name string) error {
	for _, what := range c.Reached {
		if _, ok := portOf(name, what); !ok {
			continue
		}
		accepted, err := connectThrough(ctx, c.Proxy, what)
		if err != nil {
			return fmt.Errorf("no connection to the allowed %s: %w", what, err)
		}
		if !accepted {
			return fmt.Errorf("no connection to the allowed %s: the proxy refuses it", what)
		}
	}
	for _, what := range c.Closed {
		if _, ok := portOf(name, what); !ok {
			continue
		}
		if err := checkClosedThrough(ctx, c.Proxy, what); err != nil {
			return err
		}
	}
	return nil
}

// checkClosedThrough checks that the proxy makes no connection. No answer counts as a refusal, as
// for a connection without the proxy.
func checkClosedThrough(ctx context.Context, proxy, what string) error {
	ctx, cancel := context.WithDeadline(ctx, time.Now().Add(tryTimeout))
	defer cancel()
	if accepted, err := connectThrough(ctx, proxy, what); err == nil && accepted {
		return fmt.Errorf("the closed %s: the proxy made a connection", what)
	}
	return nil
}
