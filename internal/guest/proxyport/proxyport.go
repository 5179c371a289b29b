// Package proxyport owns the loopback ports of a sandbox without a network interface: an HTTP proxy
// and a name server. Each connection and each query becomes a stream to the egress gateway, which
// decides about it. Nothing is decided here.
package proxyport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Host is the address of both ports. It is not 127.0.0.1, so that programs inside can have servers
// at the same ports there.
var Host = netip.MustParseAddr("127.0.0.53")

// Addresses of the ports.
var (
	Proxy = netip.AddrPortFrom(Host, 3128)
	Names = netip.AddrPortFrom(Host, 53)
)

// ResolvConf is the resolver configuration that refers to the name server.
const ResolvConf = "nameserver 127.0.0.53\noptions timeout:2 attempts:2\n"

// Variables returns the environment variables that make programs use the proxy.
func Variables() map[string]string {
	const url, local = "http://127.0.0.53:3128", "localhost,127.0.0.1,::1"
	return map[string]string{
		"HTTP_PROXY": url, "HTTPS_PROXY": url, "ALL_PROXY": url, "NO_PROXY": local,
		// curl reads HTTP_PROXY only in lower case, because a CGI server sets it from a header.
		"http_proxy": url, "https_proxy": url, "all_proxy": url, "no_proxy": local,
		// Node.js ignores the variables above without this one.
		"NODE_USE_ENV_PROXY": "1",
	}
}

const (
	// maxStreams bounds the connections of programs, and maxQueries the queries that wait for an
	// answer. More connections wait in the kernel, and more queries are dropped, as by a network.
	maxStreams = 128
	maxQueries = 32
	// queryTime is how long the gateway may take to answer a query.
	queryTime = 10 * time.Second
	// retryPause is the pause after a connection could not be accepted, for example because this
	// process has too many open files.
	retryPause = 50 * time.Millisecond
)

// Stream is a connection to the gateway of which each direction can end by itself.
type Stream interface {
	net.Conn
	CloseWrite() error
}

// Opener opens a stream to the gateway.
type Opener func(ctx context.Context) (Stream, error)

// Server serves the ports of one sandbox.
type Server struct {
	open    Opener
	proxy   net.Listener
	names   net.Listener
	queries *net.UDPConn

	streams, asking chan struct{} // a token for each stream and each query
}

// Listen opens the ports. Programs can connect as soon as it returns, and are served by Serve.
func Listen(open Opener) (*Server, error) { return listen(open, Proxy, Names) }

func listen(open Opener, proxy, names netip.AddrPort) (s *Server, err error) {
	s = &Server{open: open, streams: make(chan struct{}, maxStreams), asking: make(chan struct{}, maxQueries)}
	defer func() {
		if err != nil {
			s.Close()
			s = nil
		}
	}()
	if s.proxy, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(proxy)); err != nil {
		return s, fmt.Errorf("proxy: %w", err)
	}
	if s.queries, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(names)); err != nil {
		return s, fmt.Errorf("name server: %w", err)
	}
	names = s.queries.LocalAddr().(*net.UDPAddr).AddrPort()
	if s.names, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(names)); err != nil {
		return s, fmt.Errorf("name server: %w", err)
	}
	return s, nil
}

// Close closes the ports. Open connections continue.
func (s *Server) Close() {
	if s.proxy != nil {
		_ = s.proxy.Close()
	}
	if s.names != nil {
		_ = s.names.Close()
	}
	if s.queries != nil {
		_ = s.queries.Close()
	}
}

// Serve serves the ports until one of them fails.
func (s *Server) Serve() error {
	failed := make(chan error, 3)
	go func() { failed <- s.accept(s.proxy) }()
	go func() { failed <- s.accept(s.names) }()
	go func() { failed <- s.answerQueries() }()
	err := <-failed
	s.Close()
	<-failed
	<-failed
	return err
}

// accept serves connections of programs. The gateway tells requests and queries apart by their
// first byte, so both ports are served in the same way.
func (s *Server) accept(l net.Listener) error {
	for {
		s.streams <- struct{}{}
		program, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			<-s.streams
			return err
		}
		if err != nil {
			<-s.streams
			time.Sleep(retryPause)
			continue
		}
		go func() {
			defer func() { <-s.streams }()
			s.connect(program.(*net.TCPConn)) //nolint:forcetypeassert // both listeners are TCP listeners
		}()
	}
}

// connect copies between a program and a new stream.
func (s *Server) connect(program *net.TCPConn) {
	defer program.Close()
	stream, err := s.open(context.Background())
	if err != nil {
		return // the program reads EOF, as when the gateway refuses a stream
	}
	defer stream.Close()
	var directions sync.WaitGroup
	directions.Go(func() {
		// If the program is gone or the gateway has ended the stream, the other end reads EOF.
		_, _ = io.Copy(stream, program)
		_ = stream.CloseWrite()
	})
	if _, err := io.Copy(program, stream); err == nil {
		_ = program.CloseWrite()
	} else {
		_ = program.Close()
		// The rest must be read, because some streams cannot be ended by their reader.
		_, _ = io.Copy(io.Discard, stream)
	}
	directions.Wait()
}
