package ingress_test

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"net/http/httptest"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/frontend/ingress"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/sandbox"
)

// BenchmarkTap measures the cost of recording a command: one that prints nothing, and one that
// prints 64 MiB; with an audit log and recordings on the disk, and without.
func BenchmarkTap(b *testing.B) {
	chunk := strings.Repeat("2026-11-21 12:00:00 INFO request served in 12 ms path=/v1/items status=200\n", 500)[:32<<10]
	const chunks = 2048
	for name, script := range map[string]func(send func(*pb.ProcessEvent) error) error{
		"true": func(send func(*pb.ProcessEvent) error) error { return errors.Join(send(startEvent(7)), send(ended())) },
		"64MiB": func(send func(*pb.ProcessEvent) error) error {
			err := send(startEvent(7))
			for range chunks {
				err = errors.Join(err, send(printed("stdout", chunk)))
			}
			return errors.Join(err, send(ended()))
		},
	} {
		for _, with := range []string{"without", "with"} {
			for _, masked := range []string{"plain", "masked"} {
				b.Run(name+"/"+masked+"/"+with, func(b *testing.B) {
					w := newTestProxy(b)
					log := slog.New(slog.DiscardHandler)
					x := &observedProxy{testProxy: w}
					if with == "with" {
						dir := b.TempDir()
						r, err := audit.Open(audit.Options{Dir: filepath.Join(dir, "record"), Log: log})
						if err != nil {
							b.Fatal(err)
						}
						x.recordings = recording.New(recording.Options{Dir: filepath.Join(dir, "recordings")})
						if x.tap, err = observe.New(observe.Deps{Audit: r, Recordings: x.recordings, Log: log}); err != nil {
							b.Fatal(err)
						}
						b.Cleanup(func() {
							x.tap.Close()
							if err := errors.Join(x.recordings.Close(), r.Close()); err != nil {
								b.Error(err)
							}
						})
					}
					w.proxy = ingress.New(ingress.Deps{Traffic: w.inside, Waker: w.inside, Log: log, Tap: x.tap})
					w.front = httptest.NewServer(w.proxy)
					b.Cleanup(func() { w.front.Close(); w.proxy.Close() })
					guest := &countingGuest{}
					guest.script = script
					x.serves(guest)
					if masked == "masked" {
						w.setRedactor(maskOf(b, sandbox.RedactorOptions{Outputs: true, Patterns: true}, sealedValue))
					}
					if name == "64MiB" {
						b.SetBytes(chunks * int64(len(chunk)))
					}
					for b.Loop() {
						if err := x.once(); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
