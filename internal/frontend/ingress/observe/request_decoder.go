package observe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/codec"
	fspb "github.com/crannog/crannog/internal/guest/gen/filesystempb"
	"github.com/crannog/crannog/internal/guest/gen/filesystempb/filesystempbconnect"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/guestwire"
	"github.com/crannog/crannog/internal/guest/utf8text"
)

// maxRequest bounds a request that is decoded here. The guest accepts more, but no kernel
// runs such a command: all arguments together have at most 2 MiB. The input of a command
// is not part of the request that starts it.
const maxRequest = 2<<20 + 64<<10

// processDecoder decodes requests of the process service with the same generated code as the guest,
// for every protocol, encoding and compression. The guest runs exactly the requests that reach a
// method here, and refuses all others with the same error. A separate parser could decode a request
// differently, and an attacker could hide a command from the audit log.
type processDecoder struct {
	processpbconnect.UnimplementedProcessHandler
}

// fileDecoder is the same for the file system service.
type fileDecoder struct {
	filesystempbconnect.UnimplementedFilesystemHandler
}

func newDecoder() http.Handler {
	mux := http.NewServeMux()
	options := append(codec.Options(maxRequest), countingCodecs()...)
	mux.Handle(processpbconnect.NewProcessHandler(processDecoder{}, options...))
	mux.Handle(filesystempbconnect.NewFilesystemHandler(fileDecoder{}, options...))
	return mux
}

// decoding is a request that is being decoded.
type decoding struct {
	// take is called with the message. If it fails, the request is refused with its error.
	take func(message any, header http.Header) error
	err  error
}

type decodingKey struct{}

func deliver(ctx context.Context, message any, header http.Header) error {
	h, ok := ctx.Value(decodingKey{}).(*decoding)
	if !ok {
		return connect.NewError(connect.CodeInternal, errors.New("the context has no decoding"))
	}
	if h.err = h.take(message, header); h.err != nil {
		return connect.NewError(connect.CodeUnavailable, errors.New(fault.PublicText(h.err)))
	}
	return nil
}

func (processDecoder) Start(ctx context.Context, r *connect.Request[pb.StartRequest], _ *connect.ServerStream[pb.StartResponse]) error {
	return deliver(ctx, r.Msg, r.Header())
}

func (processDecoder) Connect(ctx context.Context, r *connect.Request[pb.ConnectRequest], _ *connect.ServerStream[pb.ConnectResponse]) error {
	return deliver(ctx, r.Msg, r.Header())
}

func (processDecoder) Update(ctx context.Context, r *connect.Request[pb.UpdateRequest]) (*connect.Response[pb.UpdateResponse], error) {
	return connect.NewResponse(&pb.UpdateResponse{}), deliver(ctx, r.Msg, r.Header())
}

func (processDecoder) SendSignal(ctx context.Context, r *connect.Request[pb.SendSignalRequest]) (*connect.Response[pb.SendSignalResponse], error) {
	return connect.NewResponse(&pb.SendSignalResponse{}), deliver(ctx, r.Msg, r.Header())
}

func (fileDecoder) MakeDir(ctx context.Context, r *connect.Request[fspb.MakeDirRequest]) (*connect.Response[fspb.MakeDirResponse], error) {
	return connect.NewResponse(&fspb.MakeDirResponse{}), deliver(ctx, r.Msg, r.Header())
}

func (fileDecoder) Move(ctx context.Context, r *connect.Request[fspb.MoveRequest]) (*connect.Response[fspb.MoveResponse], error) {
	return connect.NewResponse(&fspb.MoveResponse{}), deliver(ctx, r.Msg, r.Header())
}

func (fileDecoder) Remove(ctx context.Context, r *connect.Request[fspb.RemoveRequest]) (*connect.Response[fspb.RemoveResponse], error) {
	return connect.NewResponse(&fspb.RemoveResponse{}), deliver(ctx, r.Msg, r.Header())
}

// ignoredHeaders are headers about time limits and compression of the answer. The decoder ignores
// them.
var ignoredHeaders = []string{"Connect-Timeout-Ms", "Grpc-Timeout", "Connect-Accept-Encoding", "Grpc-Accept-Encoding", "Accept-Encoding"}

// decode decodes a request and calls take with the message. If the request is refused, the returned
// response has the error.
func (t *Tap) decode(r *http.Request, where string, h *decoding) *bufferedResponse {
	var read bytes.Buffer
	// The library reads a message to its end even if it is too large. A caller may announce 4 GiB,
	// and all of it would be held in memory.
	body := io.LimitReader(r.Body, headSize+maxRequest+1)
	header := r.Header.Clone()
	for _, name := range ignoredHeaders {
		header.Del(name)
	}
	copied := &http.Request{
		Method: r.Method, URL: &url.URL{Path: where}, Host: r.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: r.ContentLength,
		Body: io.NopCloser(io.TeeReader(body, &read)),
	}
	answer := &bufferedResponse{header: http.Header{}}
	t.decoder.ServeHTTP(answer, copied.WithContext(context.WithValue(r.Context(), decodingKey{}, h)))
	restoreBody(r, &read)
	return answer
}

// call observes a command from its start, or from the point where a caller attaches.
func (t *Tap) call(r *http.Request, c Call, where string) (*Visit, *refusal) {
	var cmd *command
	var lasts bool
	h := &decoding{take: func(message any, header http.Header) (err error) {
		switch m := message.(type) {
		case *pb.StartRequest:
			lasts = !guestwire.Hangup(header)
			if err := utf8text.UnescapeStart(header, m); err != nil {
				return fault.Wrap(err, fault.Invalid, "start_unreadable", "the escaped command cannot be read")
			}
			cmd, err = t.begin(c, startOf(c, m, userOf(header)))
		case *pb.ConnectRequest:
			cmd, err = t.begin(c, connectOf(c, m))
		}
		return err
	}}
	answer := t.decode(r, where, h)
	switch {
	case h.err != nil:
		return nil, answer.refusal(h.err)
	case cmd == nil:
		return nil, answer.refusal(fault.New(fault.Invalid, "start_unreadable", "the request to start a command cannot be read"))
	}
	// A compressed answer could not be observed.
	r.Header.Del("Connect-Accept-Encoding")
	r.Header.Del("Grpc-Accept-Encoding")
	if lasts {
		return newDetachedCommand(cmd), nil
	}
	return &Visit{answer: cmd.answer, done: cmd.finish}, nil
}

// observeAction records actions on a running command. Such a request runs nothing, so an unparsable
// one is passed on.
func (t *Tap) observeAction(r *http.Request, c Call, where string) {
	t.decode(r, where, &decoding{take: func(message any, _ http.Header) error {
		switch m := message.(type) {
		case *pb.UpdateRequest:
			size := m.GetPty().GetSize()
			t.each(c.Sandbox, m.GetProcess(), func(cmd *command) { cmd.recording.Resize(int(size.GetCols()), int(size.GetRows())) })
		case *pb.SendSignalRequest:
			t.each(c.Sandbox, m.GetProcess(), func(cmd *command) { cmd.recording.Mark("signal " + signalName(int(m.GetSignal()))) })
		}
		return nil
	}})
}

// userOf returns the user that a request names, or "".
func userOf(header http.Header) string {
	r := http.Request{Header: header}
	user, _, _ := r.BasicAuth()
	return user
}
