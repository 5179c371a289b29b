// Package clamd owns the protocol of ClamAV's daemon: which version of the daemon and of its
// database answers, and what it finds in a stream of bytes.
package clamd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/text"
)

const (
	// DefaultAddress is where Debian's daemon listens.
	DefaultAddress = "unix:///run/clamav/clamd.ctl"
	// maxReply limits a reply of the daemon.
	maxReply = 4 << 10
	// maxName limits the name of a signature, and of a version.
	maxName = 200
	// chunk is how many bytes are sent at once.
	chunk = 64 << 10
	// stepTimeout is how long the daemon may take to accept a chunk, or to answer a command that
	// scans nothing.
	stepTimeout = 20 * time.Second
	// scanTimeout is how long it may take to scan a file that it has. Its own limit, MaxScanTime, is
	// two minutes.
	scanTimeout = 3 * time.Minute
	// versionLife is how long a version is used without asking again.
	versionLife = 5 * time.Second
	// maxScans limits how many files are sent at the same time. The daemon has few threads.
	maxScans = 4
)

// Scanner sends files to one daemon. It is safe for concurrent use.
type Scanner struct {
	address, network, name string
	scans                  chan struct{} // has an element for each file that is being sent

	mu      sync.Mutex
	version string
	asked   time.Time
	// alerts is the version of the daemon that was seen to report what exceeds its limits.
	alerts string
}

// New returns a scanner for the daemon at an address of the form unix:///PATH or tcp://HOST:PORT.
// The empty address is DefaultAddress. New does not connect.
func New(address string) (*Scanner, error) {
	if address == "" {
		address = DefaultAddress
	}
	s := &Scanner{address: address, scans: make(chan struct{}, maxScans)}
	u, err := url.Parse(address)
	switch {
	case err != nil:
	case u.Scheme == "unix" && u.Host == "" && filepath.IsAbs(u.Path):
		s.network, s.name = "unix", u.Path
	case u.Scheme == "tcp" && u.Hostname() != "" && u.Port() != "" && u.Path == "":
		s.network, s.name = "tcp", u.Host
	}
	if s.network == "" {
		return nil, fault.Newf(fault.Invalid, "package_scanner_invalid", "%.100q is no address of ClamAV's daemon, such as unix:///run/clamav/clamd.ctl or tcp://127.0.0.1:3310", address)
	}
	return s, nil
}

// Address returns the address of the daemon.
func (s *Scanner) Address() string { return s.address }

// unavailable returns the error for a daemon that cannot be used.
func (s *Scanner) unavailable(err error, why string) *fault.Error {
	return fault.Wrap(err, fault.Unavailable, "package_scanner", "ClamAV's daemon at "+s.address+" "+why).
		WithHint("start clamav-daemon, or set package_scanner to its address; crannog doctor shows what is missing")
}

// Version returns the version of the daemon and of its database. It may be some seconds old.
func (s *Scanner) Version(ctx context.Context) (string, error) {
	s.mu.Lock()
	version, fresh := s.version, time.Since(s.asked) < versionLife
	s.mu.Unlock()
	if fresh && version != "" {
		return version, nil
	}
	reply, err := s.command(ctx, "VERSION", nil)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(reply, "ClamAV ") {
		return "", s.unavailable(errors.New("the answer has another form"), "answers "+text.ASCII(reply, maxName)+", which is no version of ClamAV")
	}
	version = text.ASCII(reply, maxName)
	s.mu.Lock()
	s.version, s.asked = version, time.Now()
	s.mu.Unlock()
	return version, nil
}

// Ready returns the daemon's version, or an error if its answers cannot be relied on: a daemon
// without AlertExceedsMax reports a file as clean that it did not read completely.
func (s *Scanner) Ready(ctx context.Context) (string, error) {
	version, err := s.Version(ctx)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	known := s.alerts == version
	s.mu.Unlock()
	if known {
		return version, nil
	}
	found, err := s.Scan(ctx, strings.NewReader(tooDeep()))
	if err != nil {
		return "", err
	}
	if found == "" {
		return "", s.unavailable(errors.New("it reports a nested archive beyond its limits as clean"), "reports files as clean that exceed its limits").
			WithHint("set AlertExceedsMax yes in clamd.conf, and restart clamav-daemon")
	}
	s.mu.Lock()
	s.alerts = version
	s.mu.Unlock()
	return version, nil
}

// Scan sends content to the daemon. It returns the name of the signature that the daemon found, or
// the empty text.
func (s *Scanner) Scan(ctx context.Context, content io.Reader) (string, error) {
	select {
	case s.scans <- struct{}{}:
		defer func() { <-s.scans }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	reply, err := s.command(ctx, "INSTREAM", content)
	if err != nil {
		return "", err
	}
	found, err := parseReply(reply)
	if err != nil {
		return "", s.unavailable(err, "could not scan the file: "+err.Error())
	}
	return found, nil
}

// parseReply reads the reply to a scan. Anything but OK and FOUND is an error, so that no other
// answer passes for a clean one.
func parseReply(reply string) (string, error) {
	if reply == "stream: OK" {
		return "", nil
	}
	if rest, ok := strings.CutPrefix(reply, "stream: "); ok {
		if name, ok := strings.CutSuffix(rest, " FOUND"); ok && name != "" {
			return text.ASCII(name, maxName), nil
		}
	}
	if strings.HasPrefix(reply, "INSTREAM size limit exceeded") {
		return "", errors.New("it is larger than StreamMaxLength of clamd.conf")
	}
	return "", errors.New("the daemon answered " + fmt.Sprintf("%q", text.ASCII(reply, maxName)))
}

// command sends a command, with content if it is not nil, and returns the reply.
func (s *Scanner) command(ctx context.Context, name string, content io.Reader) (string, error) {
	dialer := net.Dialer{Timeout: stepTimeout}
	conn, err := dialer.DialContext(ctx, s.network, s.name)
	if err != nil {
		return "", s.unavailable(err, "cannot be reached")
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	wait := stepTimeout
	err = send(conn, []byte("z"+name+"\x00"))
	if content != nil && err == nil {
		wait = scanTimeout
		var read error
		if read, err = stream(conn, content); read != nil {
			return "", read
		}
	}
	// A daemon that refuses the content answers before it has read everything, and closes. Its
	// answer says more than the failed write.
	if deadline := conn.SetReadDeadline(time.Now().Add(wait)); deadline != nil {
		return "", deadline
	}
	reply, readErr := io.ReadAll(io.LimitReader(conn, maxReply))
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	// A complete reply ends with a zero byte. Half of one could be another answer.
	line, complete := strings.CutSuffix(string(reply), "\x00")
	if !complete || strings.Contains(line, "\x00") {
		return "", s.unavailable(errors.Join(err, readErr, errors.New("the reply is incomplete")), "gave no complete answer to "+name)
	}
	if err != nil && !strings.HasSuffix(line, "ERROR") {
		return "", s.unavailable(err, "answered before it had the whole file")
	}
	return line, nil
}

// stream sends content in chunks, each with its length before it. The first error is one of reading
// the content.
func stream(conn net.Conn, content io.Reader) (read, write error) {
	block := make([]byte, 4+chunk)
	for {
		n, err := io.ReadFull(content, block[4:])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err, nil
		}
		if n > 0 {
			binary.BigEndian.PutUint32(block, uint32(n))
			if err := send(conn, block[:4+n]); err != nil {
				return nil, err
			}
		}
		if err != nil {
			return nil, send(conn, []byte{0, 0, 0, 0})
		}
	}
}

func send(conn net.Conn, data []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(stepTimeout)); err != nil {
		return err
	}
	_, err := conn.Write(data)
	return err
}
