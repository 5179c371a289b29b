package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/crannog/crannog"
)

// local opens the product in this process, as a Go program would.
func (b *bench) local(ctx context.Context, name string) (*crannog.Client, error) {
	return crannog.Local(ctx, crannog.State(filepath.Join(b.dir, name)))
}

// server is a process of crannog serve on a free port of the loopback device.
type server struct {
	client *crannog.Client
	url    string
	key    string
	state  string
	cmd    *exec.Cmd
	logs   *os.File
}

// serve starts a server and waits until it prints its address and key.
func (b *bench) serve(ctx context.Context, binary, name string, args ...string) (_ *server, err error) {
	s := &server{state: filepath.Join(b.dir, name)}
	if s.logs, err = os.Create(s.state + ".log"); err != nil {
		return nil, err
	}
	// After an interrupt, the server continues until close has ended its sandboxes.
	s.cmd = exec.CommandContext(context.WithoutCancel(ctx), binary, append([]string{"serve", "--listen", "127.0.0.1:0", "--state", s.state}, args...)...)
	s.cmd.Stderr = s.logs
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, s.logs.Close())
	}
	if err := s.readStart(stdout); err != nil {
		return nil, errors.Join(fmt.Errorf("%s serve: %w: %s", binary, err, s.tail()), s.close())
	}
	s.client, err = crannog.New(crannog.URL(s.url), crannog.Key(s.key))
	return s, err
}

// readStart parses the address and the key from the printed lines, which a shell could evaluate.
func (s *server) readStart(stdout io.Reader) error {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		name, value, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "export "), "=")
		switch name {
		case "E2B_API_URL":
			s.url = value
		case "E2B_API_KEY":
			s.key = value
		}
		if s.url != "" && s.key != "" {
			return nil
		}
	}
	return errors.Join(errors.New("the server printed no address"), lines.Err())
}

// tail returns the end of the server's log.
func (s *server) tail() string {
	data, err := os.ReadFile(s.logs.Name())
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

// close removes the server's sandboxes and ends the server.
func (s *server) close() error {
	var errs []error
	if s.client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		left, err := s.client.List(ctx, crannog.ListOptions{})
		errs = append(errs, err)
		for _, one := range left {
			sb, err := s.client.Get(ctx, one.ID)
			if err == nil {
				err = sb.Kill(ctx)
			}
			errs = append(errs, err)
		}
		errs = append(errs, s.client.Close())
	}
	errs = append(errs, s.cmd.Process.Signal(syscall.SIGTERM), s.cmd.Wait(), s.logs.Close())
	return errors.Join(errs...)
}

// execTimed runs a program in a live sandbox and returns how long it took.
func execTimed(ctx context.Context, sb *crannog.Sandbox, argv ...string) (time.Duration, error) {
	began := time.Now()
	err := sb.CommandContext(ctx, argv[0], argv[1:]...).Run()
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	return time.Since(began), err
}
