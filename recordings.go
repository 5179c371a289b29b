package crannog

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/crannog/crannog/api"
)

// Recordings lists the commands, terminals and interpreter cells of the sandbox with
// their results, the oldest first.
func (s *Sandbox) Recordings(ctx context.Context) ([]api.Recording, error) {
	return s.client.RecordingsOf(ctx, s.ID())
}

// Recording returns the session recording of one command, as asciicast version 3. The caller closes
// it. Secrets are redacted in it, as they were for the caller that ran the command. For a running
// command it contains the output so far.
func (s *Sandbox) Recording(ctx context.Context, id string) (io.ReadCloser, error) {
	return s.client.RecordingOf(ctx, s.ID(), id)
}

// OldRecording is Recording in asciicast version 2, for older players.
func (s *Sandbox) OldRecording(ctx context.Context, id string) (io.ReadCloser, error) {
	return s.client.recordingOf(ctx, s.ID(), id, 2)
}

// KeepRecordings retains the sandbox's recordings for a day beyond its end. Without
// recordings nothing is retained, and ID is empty. Local callers only.
func (s *Sandbox) KeepRecordings(ctx context.Context) (api.RetainedRecordings, error) {
	var out api.RetainedRecordings
	err := s.client.call(ctx, http.MethodPost, s.path("/recordings/keep"), nil, &out)
	return out, err
}

// KeptRecordings lists the retained recordings of ended sandboxes, newest first. Local
// callers only.
func (c *Client) KeptRecordings(ctx context.Context) ([]api.RetainedRecordings, error) {
	var out api.RetainedRecordingList
	err := c.call(ctx, http.MethodGet, "/recordings", nil, &out)
	return out.Recordings, err
}

// RecordingsOf is Recordings by the ID of a sandbox. It also returns the retained
// recordings of an ended sandbox.
func (c *Client) RecordingsOf(ctx context.Context, sandbox string) ([]api.Recording, error) {
	var out api.RecordingList
	err := c.call(ctx, http.MethodGet, "/sandboxes/"+segment(sandbox)+"/recordings", nil, &out)
	return out.Recordings, err
}

// RecordingOf is Recording by the ID of a sandbox, which may have ended.
func (c *Client) RecordingOf(ctx context.Context, sandbox, id string) (io.ReadCloser, error) {
	return c.recordingOf(ctx, sandbox, id, 3)
}

// FollowRecording is like RecordingOf. For a running command it continues until
// the command has ended or ctx is done.
func (c *Client) FollowRecording(ctx context.Context, sandbox, id string) (io.ReadCloser, error) {
	return c.openRecording(ctx, sandbox, id, "?follow=true")
}

// DiscardRecordings deletes the retained recordings of an ended sandbox. Local callers
// only.
func (c *Client) DiscardRecordings(ctx context.Context, sandbox string) error {
	return c.call(ctx, http.MethodDelete, "/sandboxes/"+segment(sandbox)+"/recordings", nil, nil)
}

func (c *Client) recordingOf(ctx context.Context, sandbox, id string, version int) (io.ReadCloser, error) {
	return c.openRecording(ctx, sandbox, id, "?version="+strconv.Itoa(version))
}

func (c *Client) openRecording(ctx context.Context, sandbox, id, query string) (io.ReadCloser, error) {
	path := "/sandboxes/" + segment(sandbox) + "/recordings/" + segment(id) + query
	resp, err := c.open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
