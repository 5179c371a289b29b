package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/host/embedded/guestbin"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/server/standard"
)

const (
	unobserved = "a sandbox that is not watched"
	observed   = "all of it written down"
	// sandboxTime is the suffix of scores of the sandbox's processor time, which other programs of
	// a busy machine affect less.
	sandboxTime = ", processor time"
)

// recordLoads are the loads of both sandboxes, each with its number of operations.
var recordLoads = []struct {
	title string
	line  string
	count float64
	unit  string
	goal  string
	limit func(base float64) float64
}{
	{
		"a program executed, one of 500 of a shell's loop", "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done", 500, "µs",
		"≤ + 100 µs", func(base float64) float64 { return base + 100 },
	},
	{
		"a small file made, one of 2,000", `python3 -c '
import os
os.mkdir("d")
for i in range(2000):
    with open("d/%d" % i, "w") as f: f.write("x" * 200)
'; rm -r d`, 2000, "µs", "", nil,
	},
	{
		"a file opened and read, one of 10,000", `python3 -c '
for i in range(10000):
    with open("/etc/passwd") as f: f.read()
'`, 10000, "µs", "", nil,
	},
	{
		"a build: 60 files of C, and Python's own modules to byte code",
		`mkdir b; cd b; cp -r /usr/lib/python3*/json /usr/lib/python3*/email /usr/lib/python3*/asyncio . ; python3 -m compileall -q . ;
if command -v gcc >/dev/null; then i=0; while [ $i -lt 60 ]; do
printf '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\nint f%d(int x) { char b[64]; snprintf(b, 64, "%%d", x); return strlen(b); }\n' $i > $i.c; gcc -O1 -c $i.c || exit 1; i=$((i+1)); done; ar rc all.a *.o; fi; cd; rm -r b`, 1, "µs",
		"≤ 1.03×", func(base float64) float64 { return base * 1.03 },
	},
}

// recordFigures measures the cost of observation, in which a sandbox's kernel writes events of its
// programs. The same load runs in two sandboxes, one of which is observed.
func recordFigures(ctx context.Context, b *bench) (err error) {
	state := filepath.Join(b.dir, "record")
	engines, err := standard.Engines(standard.Options{State: state, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	eng := engines.Default()
	if closer, ok := eng.(io.Closer); ok {
		defer func() { err = errors.Join(err, closer.Close()) }()
	}
	program, err := guestbin.Path(filepath.Join(state, "guest"))
	if err != nil {
		return err
	}
	image, err := template.NewHost(filepath.Join(state, "templates"), program).Image()
	if err != nil {
		return err
	}
	events, err := os.OpenFile(filepath.Join(state, "events"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	plain, err := newRecordSandbox(ctx, eng, engine.Spec{ID: "plain", Image: image})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.remove()) }()
	observedSandbox, err := newRecordSandbox(ctx, eng, engine.Spec{ID: "seen", Image: image, Events: events, EventBytes: 8 << 30})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, observedSandbox.remove()) }()
	for _, load := range recordLoads {
		s, err := race(ctx, b.n, plain.load(unobserved, load.line, load.count), observedSandbox.load(observed, load.line, load.count))
		if err != nil {
			return fmt.Errorf("%s: %w", load.title, err)
		}
		sec := table("record", load.title, load.unit, s, unobserved, observed, unobserved+sandboxTime, observed+sandboxTime)
		sec.against(unobserved, observed)
		sec.against(unobserved+sandboxTime, observed+sandboxTime)
		if base := sec.find(unobserved); base != nil && load.limit != nil {
			sec.target(observed, load.goal, func(r row) bool { return r.P50 <= load.limit(base.P50) })
		}
		b.report.add(sec)
	}
	return nil
}

// recordSandbox is a sandbox that the engine created without a server, because a server does not
// let callers choose whether it is observed.
type recordSandbox struct {
	eng    engine.Engine
	id     string
	client *http.Client
}

const recordToken = "bench"

func newRecordSandbox(ctx context.Context, eng engine.Engine, spec engine.Spec) (*recordSandbox, error) {
	limits := engine.DefaultLimits
	config, err := json.Marshal(guest.Config{
		SandboxID: spec.ID, TemplateID: "base", Hostname: "box", AccessToken: recordToken, ControlToken: recordToken,
		DefaultUser: "user", MemoryBytes: limits.MemoryBytes, MilliCPU: limits.MilliCPU, DiskBytes: limits.DiskBytes, PIDs: limits.PIDs,
	})
	if err != nil {
		return nil, err
	}
	spec.Hostname, spec.Boot.Config = "box", config
	if err := eng.Create(ctx, spec); err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return eng.Dial(ctx, spec.ID, guestboot.Port)
	}
	return &recordSandbox{eng, spec.ID, &http.Client{Transport: &http.Transport{DialContext: dial}}}, nil
}

// load returns a contender that runs a shell line with count operations, until all its changes are
// on the disk.
func (r *recordSandbox) load(name, line string, count float64) contender {
	return contender{name, func(ctx context.Context, s *scores) error {
		before, err := r.eng.(engine.Meter).Usage(ctx, r.id)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := r.sh(ctx, line); err != nil {
			return err
		}
		if name == observed {
			if err := r.eng.(engine.Observer).Survey(ctx, r.id); err != nil {
				return err
			}
		}
		s.add(name, micros(time.Since(began))/count)
		after, err := r.eng.(engine.Meter).Usage(ctx, r.id)
		s.add(name+sandboxTime, micros(after.CPUTime-before.CPUTime)/count)
		return err
	}}
}

func (r *recordSandbox) remove() error {
	r.client.CloseIdleConnections()
	return r.eng.Remove(context.Background(), r.id)
}

// sh runs a shell line that must succeed.
func (r *recordSandbox) sh(ctx context.Context, line string) error {
	stdin := false
	req := connect.NewRequest(&processpb.StartRequest{
		Process: &processpb.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", line}}, Stdin: &stdin,
	})
	req.Header().Set("X-Access-Token", recordToken)
	req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("user:")))
	stream, err := processpbconnect.NewProcessClient(r.client, "http://guest", connect.WithProtoJSON()).Start(ctx, req)
	if err != nil {
		return err
	}
	defer stream.Close()
	var stderr []byte
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().GetEvent().(type) {
		case *processpb.ProcessEvent_Data:
			stderr = append(stderr, e.Data.GetStderr()...)
		case *processpb.ProcessEvent_End:
			if code := e.End.GetExitCode(); code != 0 {
				return fmt.Errorf("%s in %s: exit code %d: %s", line, r.id, code, stderr)
			}
			return nil
		}
	}
	return errors.Join(errors.New("the stream ended before the program"), stream.Err())
}
