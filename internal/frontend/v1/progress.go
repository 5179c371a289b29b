package v1

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// progressLines returns an answer with a JSON line for each event of some work. The last line is
// the result of work. The context of the work ends when the client leaves.
func progressLines[T any](work func(ctx context.Context, send func(T)) T) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(c huma.Context) {
		c.SetHeader("Content-Type", "application/x-ndjson")
		c.SetHeader("Cache-Control", "no-store")
		c.SetStatus(http.StatusOK)
		ctx, cancel := context.WithCancel(c.Context())
		defer cancel()
		stream := newEventStream(c.BodyWriter())
		send := func(e T) {
			line, err := json.Marshal(e)
			if err == nil {
				err = stream.send(string(line) + "\n")
			}
			if err != nil {
				cancel() // the client has left
			}
		}
		send(work(ctx, send))
	}}
}
