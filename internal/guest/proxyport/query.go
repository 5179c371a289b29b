package proxyport

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// maxQuery is the largest query that the gateway accepts.
	maxQuery = 4096
	// plainSize is the largest answer for a program that names no size (RFC 1035), and maxDatagram
	// the largest for one that does (RFC 6891).
	plainSize, maxDatagram = 512, 4096
	headerSize             = 12
	// truncatedBit is the bit in the third byte of the header that makes a program ask over TCP.
	truncatedBit = 2
)

// answerQueries answers queries that arrive as datagrams.
func (s *Server) answerQueries() error {
	buffer := make([]byte, maxQuery+1)
	for {
		n, from, err := s.queries.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil || n > maxQuery || n < headerSize {
			continue
		}
		select {
		case s.asking <- struct{}{}:
		default:
			continue // the program asks again
		}
		query := append([]byte(nil), buffer[:n]...)
		go func() {
			defer func() { <-s.asking }()
			s.answer(query, from)
		}()
	}
}

// answer answers one query. Without an answer of the gateway, the program asks again.
func (s *Server) answer(query []byte, from netip.AddrPort) {
	reply, err := s.ask(query)
	if err != nil {
		return
	}
	// If the program has gone, nothing depends on the answer.
	_, _ = s.queries.WriteToUDPAddrPort(fit(reply, acceptedSize(query)), from)
}

// ask sends a query on a stream of its own, so that a slow answer delays no other query.
func (s *Server) ask(query []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), queryTime)
	defer cancel()
	stream, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	if err := stream.SetDeadline(time.Now().Add(queryTime)); err != nil {
		return nil, err
	}
	if _, err := stream.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(stream, size[:]); err != nil {
		return nil, err
	}
	reply := make([]byte, binary.BigEndian.Uint16(size[:]))
	if len(reply) < headerSize {
		return nil, io.ErrUnexpectedEOF
	}
	if _, err := io.ReadFull(stream, reply); err != nil {
		return nil, err
	}
	// The gateway closes the stream when it has read this.
	return reply, stream.CloseWrite()
}

// acceptedSize returns the largest datagram that the sender of a query accepts. A query comes from
// a program in the sandbox, which may send anything.
func acceptedSize(query []byte) int {
	var p dnsmessage.Parser
	if _, err := p.Start(query); err != nil {
		return plainSize
	}
	if p.SkipAllQuestions() != nil || p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return plainSize
	}
	for {
		header, err := p.AdditionalHeader()
		if err != nil {
			return plainSize
		}
		if header.Type == dnsmessage.TypeOPT {
			return min(max(int(header.Class), plainSize), maxDatagram)
		}
		if p.SkipAdditional() != nil {
			return plainSize
		}
	}
}

// fit returns a reply of at most limit bytes. A longer one is replaced by its header with the bit
// that makes the program ask again over TCP.
func fit(reply []byte, limit int) []byte {
	if len(reply) <= limit {
		return reply
	}
	short := append([]byte(nil), reply[:headerSize]...)
	short[2] |= truncatedBit
	clear(short[4:]) // the header counts no records
	return short
}
