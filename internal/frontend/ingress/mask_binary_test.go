package ingress_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestwire"
)

// askBinary asks for output that a program reads.
type askBinary struct{}

func (askBinary) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

func (askBinary) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (askBinary) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		guestwire.SetBinary(conn.RequestHeader(), true)
		return conn
	}
}

// In output that a program reads, a value is replaced by as many bytes, and what only looks like a
// token stays: a protocol would otherwise lose its framing, and a file its content.
func TestBinaryOutputKeepsItsLength(t *testing.T) {
	w := newTestProxy(t)
	text := "a " + sealedValue + " b " + knownToken + " c"
	p := &scriptedGuest{script: func(send func(*pb.ProcessEvent) error) error {
		return errors.Join(send(printed("stdout", text[:13])), send(printed("stdout", text[13:])), send(ended()))
	}}
	w.guestPlays(p)
	w.setRedactor(valueMask(t))
	for name, options := range protocols {
		got := w.play(t, p, false, append(options, connect.WithInterceptors(askBinary{}))...).text["stdout"]
		if len(got) != len(text) || strings.Contains(got, sealedValue) || !strings.HasSuffix(got, " b "+knownToken+" c") {
			t.Errorf("%s: %q", name, got)
		}
		if plain := w.play(t, p, false, options...).text["stdout"]; len(plain) == len(text) {
			t.Errorf("%s: the control kept its length: %q", name, plain)
		}
	}
}
