package api

import (
	"encoding/json"
	"time"
)

// CreateBuild is the body of POST /v1/builds: what to build. Its context, a tar, is sent
// next, piece by piece, with PUT /v1/builds/{id}/context.
type CreateBuild struct {
	Tag        string            `json:"tag" maxLength:"512" doc:"Name of the image."`
	Dockerfile string            `json:"dockerfile" doc:"The text of the Dockerfile."`
	Target     string            `json:"target,omitempty" maxLength:"256" doc:"The stage to build; the last one if absent."`
	Platform   string            `json:"platform,omitempty" maxLength:"64" doc:"That of the server's machine if absent, and no other one."`
	Args       map[string]string `json:"args,omitempty" doc:"Values of ARG."`
	Secrets    map[string][]byte `json:"secrets,omitempty" doc:"For RUN --mount=type=secret, in base64. They are not kept."`
	NoCache    bool              `json:"no_cache,omitempty"`
	Epoch      int64             `json:"source_date_epoch,omitempty" minimum:"0" doc:"The time of the image, and the latest time of a file in its layers, in seconds since 1970."`
	Push       bool              `json:"push,omitempty" doc:"Send the image to the registry that its name says. Local callers only."`
	Provenance bool              `json:"provenance,omitempty" doc:"Sign a statement about the build; see docs/reference/provenance.md."`
	Access     *Access           `json:"access,omitempty" doc:"What RUN may reach; network dev if absent."`
	Limits     *Limits           `json:"limits,omitempty" doc:"Of each sandbox in which a RUN runs."`
}

// BuildContext is the body of PUT /v1/builds/{id}/context: a piece of a tar.
type BuildContext struct {
	Offset int64  `json:"offset" minimum:"0" doc:"How many bytes of the tar were sent before."`
	Data   []byte `json:"data" doc:"The piece, in base64."`
}

// Build is a build of an image.
type Build struct {
	ID        string         `json:"id"`
	Tag       string         `json:"tag"`
	State     string         `json:"state" enum:"waiting,running,done,failed,canceled" doc:"waiting is for its context."`
	CreatedAt time.Time      `json:"created_at"`
	EndedAt   *time.Time     `json:"ended_at,omitempty"`
	Digest    string         `json:"digest,omitempty" doc:"Of the image that was built."`
	Error     string         `json:"error,omitempty"`
	Code      string         `json:"code,omitempty" doc:"Of the error."`
	Warnings  []BuildWarning `json:"warnings,omitempty" doc:"In the answer of POST alone."`
	// Provenance is the requested DSSE envelope. Lists do not have it.
	Provenance json.RawMessage `json:"provenance,omitempty" doc:"The requested DSSE envelope, once the image is built; not in lists."`
}

// BuildWarning is a warning of the linter about a valid instruction.
type BuildWarning struct {
	Line int    `json:"line"`
	Rule string `json:"rule"`
	Text string `json:"text"`
}

// BuildList is the answer of GET /v1/builds.
type BuildList struct {
	Builds []Build `json:"builds"`
}

// BuildEvent is one line of the answer of POST /v1/builds/{id}/run: progress, and at the
// end either the image or an error.
type BuildEvent struct {
	Kind     string   `json:"kind,omitempty" enum:"started,cached,output,done,failed"`
	Step     int      `json:"step,omitempty" doc:"Counts the steps of all stages; absent for the image as a whole."`
	Title    string   `json:"title,omitempty" doc:"Of a step that starts."`
	Text     string   `json:"text,omitempty" doc:"What a step prints, or how it ended."`
	Millis   int64    `json:"took_ms,omitempty"`
	Image    *Image   `json:"image,omitempty"`
	Finished bool     `json:"finished,omitempty"`
	Problem  *Problem `json:"problem,omitempty"`
}
