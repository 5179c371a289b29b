package v1

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/asciicast"
	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Recorded decides which recordings a caller may read, and which recordings outlive their sandbox.
type Recorded interface {
	// Recorded returns the ID of the sandbox whose recordings a caller may read: a sandbox of the
	// caller, or for local callers an ended one with retained recordings.
	Recorded(ctx context.Context, caller sandbox.Principal, ref string) (id string, err error)
	// KeepRecordings retains the recordings of a sandbox after its end, as long as changes are
	// retained. The ID is empty if there are none. Only local callers may do so.
	KeepRecordings(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.KeptRecordings, error)
	// ListRecordings returns the retained recordings of ended sandboxes, newest first.
	ListRecordings(ctx context.Context, caller sandbox.Principal) ([]sandbox.KeptRecordings, error)
	// DiscardRecordings removes the retained recordings of a sandbox.
	DiscardRecordings(ctx context.Context, caller sandbox.Principal, id string) error
}

// recordingHandlers serves recordings of commands.
type recordingHandlers struct {
	files    *recording.Store
	recorded Recorded
	log      *slog.Logger
}

func (h *recordingHandlers) register(r *registry) {
	if h.files == nil || h.recorded == nil {
		return
	}
	register(r, op("recordings-list", "GET", "/sandboxes/{id}/recordings", "List the commands of a sandbox with their results"), h.recordings)
	register(r, op("recordings-get", "GET", "/sandboxes/{id}/recordings/{n}", "Get the recording of one command, as asciicast"), h.recording)
	register(r, op("recordings-keep", "POST", "/sandboxes/{id}/recordings/keep", "Retain the recordings of a sandbox beyond its end"), h.keepRecordings)
	register(r, empty(op("recordings-discard", "DELETE", "/sandboxes/{id}/recordings", "Discard the retained recordings of an ended sandbox")), h.discardRecordings)
	register(r, op("recordings-kept", "GET", "/recordings", "List retained recordings of ended sandboxes"), h.listRecordings)
}

// maxRecordings bounds a list, which contains the newest recordings.
const maxRecordings = 10_000

type recordingsOutput struct{ Body api.RecordingList }

func (h *recordingHandlers) recordings(ctx context.Context, caller sandbox.Principal, in *Ref) (*recordingsOutput, error) {
	id, err := h.recorded.Recorded(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	infos, err := h.files.Newest(id, maxRecordings)
	if err != nil {
		return nil, err
	}
	out := &recordingsOutput{api.RecordingList{Recordings: make([]api.Recording, 0, len(infos))}}
	for _, i := range infos {
		out.Body.Recordings = append(out.Body.Recordings, toRecording(id, i))
	}
	return out, nil
}

func toRecording(sandbox string, i recording.Info) api.Recording {
	return api.Recording{
		ID: strconv.Itoa(i.N), Sandbox: sandbox, How: i.How, Command: append([]string{}, i.Command...), StartedAt: i.Started, EndedAt: i.Ended,
		ExitCode: i.Exit, Error: i.Error, Lost: i.Lost, TTY: i.TTY, Bytes: i.Bytes, Truncated: i.Truncated, Dropped: i.Dropped,
	}
}

type recordingInput struct {
	Ref
	N       int  `path:"n" minimum:"1" doc:"The command's number."`
	Version int  `query:"version" minimum:"2" maximum:"3" default:"3" doc:"Version of asciicast. Use 2 for players before asciinema 3.0."`
	Follow  bool `query:"follow" doc:"For a running command, continue until it ends. Only with version 3."`
}

type recordingOutput struct {
	ContentType string `header:"Content-Type"`
	Body        func(huma.Context)
}

// recording sends a recording. For a running command, it sends the output so far.
func (h *recordingHandlers) recording(ctx context.Context, caller sandbox.Principal, in *recordingInput) (*recordingOutput, error) {
	id, err := h.recorded.Recorded(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	if in.Follow && in.Version == 2 {
		return nil, fault.New(fault.Invalid, "follow_version", "only version 3 of asciicast can be followed")
	}
	open := func() (io.ReadCloser, error) { return h.files.Open(id, in.N) }
	if in.Follow {
		open = func() (io.ReadCloser, error) { return h.files.Follow(ctx, id, in.N) }
	}
	file, err := open()
	if err != nil {
		return nil, err
	}
	send := func(to io.Writer) error {
		if in.Follow {
			to = flushing{to}
		}
		_, err := io.Copy(to, file)
		return err
	}
	if in.Version == 2 {
		r, err := asciicast.NewReader(file)
		if err != nil {
			return nil, errors.Join(fault.Wrap(err, fault.Conflict, "recording_not_ready", "the recording is still empty"), file.Close())
		}
		send = func(to io.Writer) error { return asciicast.WriteVersion2(to, r) }
	}
	return &recordingOutput{asciicast.MediaType, func(c huma.Context) {
		c.SetHeader("Content-Type", asciicast.MediaType)
		c.SetStatus(http.StatusOK)
		if flusher, ok := c.BodyWriter().(http.Flusher); ok && in.Follow {
			flusher.Flush() // the caller need not wait for the first output
		}
		if err := errors.Join(send(c.BodyWriter()), file.Close()); err != nil {
			h.log.Debug("recording not sent", "sandbox", id, "err", err)
		}
	}}, nil
}

// flushing sends each piece at once, for clients that follow.
type flushing struct{ io.Writer }

func (f flushing) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if flusher, ok := f.Writer.(http.Flusher); ok && err == nil {
		flusher.Flush()
	}
	return n, err
}

type keptRecordingsOutput struct{ Body api.RetainedRecordings }

func (h *recordingHandlers) keepRecordings(ctx context.Context, caller sandbox.Principal, in *Ref) (*keptRecordingsOutput, error) {
	kept, err := h.recorded.KeepRecordings(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	return &keptRecordingsOutput{toKeptRecordings(kept)}, nil
}

func (h *recordingHandlers) discardRecordings(ctx context.Context, caller sandbox.Principal, in *Ref) (*struct{}, error) {
	return nil, h.recorded.DiscardRecordings(ctx, caller, in.ID)
}

type keptRecordingListOutput struct{ Body api.RetainedRecordingList }

func (h *recordingHandlers) listRecordings(ctx context.Context, caller sandbox.Principal, _ *struct{}) (*keptRecordingListOutput, error) {
	list, err := h.recorded.ListRecordings(ctx, caller)
	if err != nil {
		return nil, err
	}
	out := &keptRecordingListOutput{api.RetainedRecordingList{Recordings: make([]api.RetainedRecordings, 0, len(list))}}
	for _, k := range list {
		out.Body.Recordings = append(out.Body.Recordings, toKeptRecordings(k))
	}
	return out, nil
}

func toKeptRecordings(k sandbox.KeptRecordings) api.RetainedRecordings {
	return api.RetainedRecordings{ID: k.ID, Workspace: k.Workspace, TakenAt: k.TakenAt, ExpiresAt: k.ExpiresAt}
}
