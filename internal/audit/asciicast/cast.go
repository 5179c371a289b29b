// Package asciicast owns the format of recorded output: asciicast version 3, a header followed by
// lines of timed events. It writes this format and reads it strictly, and converts recordings to
// version 2 for older players. For replays it filters terminal sequences, so that only those that
// draw are passed on.
package asciicast

import (
	"errors"
	"time"
)

// MediaType is the media type of recordings in HTTP.
const MediaType = "application/x-asciicast"

// Codes of events. The format also has a code for input. Crannog never records input, because
// people type passwords.
const (
	Output = 'o'
	Input  = 'i'
	Marker = 'm'
	Resize = 'r'
	Exit   = 'x'
)

// Header is the first line of a recording.
type Header struct {
	Cols, Rows int
	Type       string // the terminal's type such as "xterm", or ""
	Time       time.Time
	Command    string
	Title      string
}

// Event is one line after the header.
type Event struct {
	At   time.Duration // time since the beginning of the recording
	Code byte
	Data string
}

// header is the JSON form of a Header. It accepts fields that Crannog never writes, so that
// recordings of other programs can be read.
type header struct {
	Version   int               `json:"version"`
	Term      term              `json:"term"`
	Timestamp int64             `json:"timestamp,omitempty"`
	Command   string            `json:"command,omitempty"`
	Title     string            `json:"title,omitempty"`
	IdleLimit float64           `json:"idle_time_limit,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Tags      []string          `json:"tags,omitempty"`
}

type term struct {
	Cols    int    `json:"cols"`
	Rows    int    `json:"rows"`
	Type    string `json:"type,omitempty"`
	Version string `json:"version,omitempty"`
	Theme   *theme `json:"theme,omitempty"`
}

type theme struct {
	FG      string `json:"fg,omitempty"`
	BG      string `json:"bg,omitempty"`
	Palette string `json:"palette,omitempty"`
}

// Limits for reading. A line holds one piece of output, and JSON may escape each byte as six
// characters.
const (
	maxLine = 1 << 20
	maxSide = 10_000 // maximum of columns and of rows
	maxTime = 10 * 365 * 24 * time.Hour
)

// ErrCut is returned at the end of a recording whose writer was interrupted within a line.
var ErrCut = errors.New("the recording ends in the middle of a line")
