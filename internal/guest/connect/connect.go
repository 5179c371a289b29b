// Package connect owns connections to servers inside a sandbox, for callers outside: it carries one
// TCP connection to a port of the sandbox's loopback interface over a program's standard streams.
// It runs as "crannog-guest connect PORT", so that a caller can reach no other host through it.
//
// Standard input consists of frames, so that "the caller has no more data" differs from "the caller
// is gone". A frame without data closes the sending half of the connection. End of file on standard
// input ends the program. Standard output is the plain data of the server.
package connect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// Role is the first argument that selects this program.
const Role = "connect"

// Args returns the command line for a port, after the program's name.
func Args(port int) []string { return []string{Role, strconv.Itoa(port)} }

// ExitRefused is the exit code if no connection to the port can be made, usually because no server
// listens.
const ExitRefused = 7

// maxFrame bounds the data of a frame.
const maxFrame = 64 << 10

// dialTime bounds a connection attempt.
const dialTime = 10 * time.Second

// Send copies r as frames to w until r ends. It writes a frame without data only at a regular end
// of r.
func Send(w io.Writer, r io.Reader) error {
	buf := make([]byte, 4+maxFrame)
	for {
		n, err := r.Read(buf[4:])
		if n > 0 {
			binary.BigEndian.PutUint32(buf, uint32(n))
			if _, err := w.Write(buf[:4+n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			_, err := w.Write(make([]byte, 4))
			return err
		}
		if err != nil {
			return err
		}
	}
}

// errFrame is returned for input that Send did not write.
var errFrame = errors.New("a frame is longer than allowed")

// receive copies the data of frames to w until a frame without data.
func receive(w io.Writer, r io.Reader) error {
	head, data := make([]byte, 4), make([]byte, maxFrame)
	for {
		if _, err := io.ReadFull(r, head); err != nil {
			return err
		}
		n := binary.BigEndian.Uint32(head)
		switch {
		case n == 0:
			return nil
		case n > maxFrame:
			return errFrame
		}
		if _, err := io.ReadFull(r, data[:n]); err != nil {
			return err
		}
		if _, err := w.Write(data[:n]); err != nil {
			return err
		}
	}
}

// Main connects and carries data until the server or the caller ends. It returns an exit code.
func Main(args []string, in io.Reader, out, log io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(log, "crannog-guest connect: it takes one port")
		return 2
	}
	port, err := strconv.ParseUint(args[0], 10, 16)
	if err != nil || port == 0 {
		fmt.Fprintf(log, "crannog-guest connect: %q is not a port\n", args[0])
		return 2
	}
	conn, err := dial(int(port))
	if err != nil {
		fmt.Fprintln(log, "crannog-guest connect:", err)
		return ExitRefused
	}
	defer conn.Close()
	if err := carry(conn, in, out); err != nil {
		fmt.Fprintln(log, "crannog-guest connect:", err)
		return 1
	}
	return 0
}

// dial tries both loopback addresses, because servers that listen on "localhost" choose either.
func dial(port int) (*net.TCPConn, error) {
	dialer := &net.Dialer{Timeout: dialTime}
	var errs []error
	for _, address := range []string{"127.0.0.1", "::1"} {
		conn, err := dialer.DialContext(context.Background(), "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if err == nil {
			if tcp, ok := conn.(*net.TCPConn); ok {
				return tcp, nil
			}
			err = errors.Join(errors.New("not a TCP connection"), conn.Close())
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// carry copies in both directions until the server's data ends. A caller learns the end of the data
// only from the end of this program, so the other direction does not keep it running.
func carry(conn *net.TCPConn, in io.Reader, out io.Writer) error {
	go func() {
		if receive(conn, in) == nil {
			_ = conn.CloseWrite() // fails if the server has reset the connection; io.Copy reports that
			_, _ = io.Copy(io.Discard, in)
		}
		// The caller is gone, the server accepts no more data, or a frame is invalid.
		_ = conn.Close()
	}()
	_, err := io.Copy(out, conn)
	if errors.Is(err, net.ErrClosed) {
		return nil // the caller left
	}
	return err
}
