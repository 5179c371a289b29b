// Package offline owns the DNS server of a sandbox without a network. It answers that no name
// exists, so that programs fail at once instead of after a timeout. It records the names, so that
// the user can be told which ones to allow.
package offline

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Address is the server's address. It is not 127.0.0.1, so that programs inside can run a DNS
// server there.
var Address = netip.MustParseAddrPort("127.0.0.53:53")

// ResolvConf is the resolver configuration that refers to the server.
const ResolvConf = "# This sandbox has no network: no name exists.\nnameserver 127.0.0.53\noptions timeout:1 attempts:1\n"

// maxNames limits the recorded names, so that memory is bounded. When it is reached, the name with
// the oldest query is dropped. The names of a command are thus available at its end, however many
// names came before.
const maxNames = 64

// Server answers queries and records the names.
type Server struct {
	conn *net.UDPConn

	mu    sync.Mutex
	names []Name
}

// Name is a name that programs tried to resolve.
type Name struct {
	Name string
	At   time.Time // of the last query
}

// Listen starts serving at an address in the background, until Close.
func Listen(at netip.AddrPort) (*Server, error) {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, fmt.Errorf("name server: %w", err)
	}
	s := &Server{conn: conn}
	go s.serve()
	return s, nil
}

// Addr returns the server's address.
func (s *Server) Addr() netip.AddrPort { return s.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// Close ends the server.
func (s *Server) Close() error { return s.conn.Close() }

// Lookups returns the names that programs tried to resolve, in the order of their first query, in
// lower case and without the final dot.
func (s *Server) Lookups() []Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names)
}

func (s *Server) serve() {
	var query [512]byte
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(query[:])
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		if reply, name, err := answer(query[:n]); err == nil {
			s.record(name)
			// An error means that the client has gone, and nothing depends on the answer.
			_, _ = s.conn.WriteToUDPAddrPort(reply, from)
		}
	}
}

func (s *Server) record(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	i := slices.IndexFunc(s.names, func(n Name) bool { return n.Name == name })
	switch {
	case i >= 0:
		s.names[i].At = now
	default:
		if len(s.names) == maxNames {
			oldest := slices.MinFunc(s.names, func(a, b Name) int { return a.At.Compare(b.At) })
			s.names = slices.DeleteFunc(s.names, func(n Name) bool { return n == oldest })
		}
		s.names = append(s.names, Name{name, now})
	}
}

// answer returns the reply to a query, which is NXDOMAIN, and the name in the query.
func answer(query []byte) (reply []byte, name string, err error) {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil {
		return nil, "", err
	}
	if header.Response {
		return nil, "", errors.New("a reply, not a question")
	}
	question, err := p.Question()
	if err != nil {
		return nil, "", err
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{
		ID: header.ID, Response: true, OpCode: header.OpCode, RecursionDesired: header.RecursionDesired,
		RecursionAvailable: true, RCode: dnsmessage.RCodeNameError,
	})
	if err := b.StartQuestions(); err != nil {
		return nil, "", err
	}
	if err := b.Question(question); err != nil {
		return nil, "", err
	}
	reply, err = b.Finish()
	return reply, strings.ToLower(strings.TrimSuffix(question.Name.String(), ".")), err
}
