package causeway_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// internetFile is a file in the state directory of a test with a fake internet. Only this test
// binary's gateway role reads it, not the product. Without the file the gateway uses the real
// internet.
const internetFile = "environment.json"

// exchange connects a gateway with the fake internet: a listener of the test, which resolves names
// and accepts dials.
type exchange struct {
	Address string
	Roots   []byte
}

// exchangeRequest is a lookup or a dial of the gateway.
type exchangeRequest struct {
	Lookup string `json:",omitempty"`
	Dial   string `json:",omitempty"`
}

// exchangeAnswer is the answer to an exchangeRequest. After a dial the connection's bytes follow.
type exchangeAnswer struct {
	Addresses []netip.Addr `json:",omitempty"`
	Refused   bool         `json:",omitempty"`
}

// serveFakeInternet runs the gateway with the fake internet of its state directory.
func serveFakeInternet() {
	gateway.ServeGathered(func() ([]byte, error) {
		data, err := os.ReadFile(filepath.Join(filepath.Dir(os.Args[1]), internetFile))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return data, err
	}, func(data []byte) (gateway.Environment, error) {
		if len(data) == 0 {
			return gateway.Environment{}, nil
		}
		var x exchange
		if err := json.Unmarshal(data, &x); err != nil {
			return gateway.Environment{}, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(x.Roots)
		return gateway.Environment{Resolver: &x, Dial: x.dial, Roots: roots}, nil
	})
}

// LookupNetIP implements names.Resolver.
func (x *exchange) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	conn, out, err := x.send(ctx, exchangeRequest{Lookup: host})
	if err != nil {
		return nil, err
	}
	conn.Close()
	if len(out.Addresses) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return out.Addresses, nil
}

func (x *exchange) dial(ctx context.Context, _, address string) (net.Conn, error) {
	to, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	conn, out, err := x.send(ctx, exchangeRequest{Dial: address})
	if err != nil {
		return nil, err
	}
	if out.Refused {
		conn.Close()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: os.NewSyscallError("connect", fmt.Errorf("connection refused"))}
	}
	return dialled{conn, to}, nil
}

func (x *exchange) send(ctx context.Context, o exchangeRequest) (*net.TCPConn, exchangeAnswer, error) {
	var out exchangeAnswer
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", x.Address)
	if err != nil {
		return nil, out, err
	}
	if err = json.NewEncoder(conn).Encode(o); err == nil {
		err = readLine(conn, &out)
	}
	if err != nil {
		conn.Close()
		return nil, out, err
	}
	return conn.(*net.TCPConn), out, nil
}

// dialled is a connection that, as far as the gateway can see, leads to the dialled address.
type dialled struct {
	*net.TCPConn
	to net.Addr
}

// RemoteAddr returns the dialled address, which the gateway checks again when a policy changes.
func (d dialled) RemoteAddr() net.Addr { return d.to }

// readLine reads a line and no byte more, since the next bytes belong to the dialled connection.
func readLine(conn net.Conn, into any) error {
	if err := conn.SetReadDeadline(hosttest.Deadline()); err != nil {
		return err
	}
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := conn.Read(one); err != nil {
			return err
		}
		if one[0] == '\n' {
			break
		}
		line = append(line, one[0])
	}
	if err := json.Unmarshal(line, into); err != nil {
		return err
	}
	return conn.SetReadDeadline(time.Time{})
}
