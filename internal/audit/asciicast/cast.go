// Package asciicast owns the form in which printed output is kept: asciicast,
// version 3, a header and lines of timed events. It writes, reads strictly,
// turns recordings into version 2 for older players, and lets nothing reach a
// terminal in a replay but what draws.
package asciicast

import (
	"errors"
	"time"
)

// MediaType is what recordings are called on the wire.
const MediaType = "application/x-asciicast"

// Codes of events. Input has one too, but it is never written: what people
// type holds passwords.
const (
	Output = 'o'
	Input  = 'i'
	Marker = 'm'
	Resize = 'r'
	Exit   = 'x'
)

// Header is the first line.
type Header struct {
	Cols, Rows int
	Type       string // of the terminal, such as "xterm", or ""
	Time       time.Time
	Command    string
	Title      string
}

// Event is one line after the header.
type Event struct {
	At   time.Duration // since the beginning
	Code byte
	Data string
}

// header is the wire's form. The fields that we never write are known, so
// that recordings of other programs can be read.
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

// Bounds of what is read. A line holds one piece of output, of which each byte
// takes up to six letters.
const (
	maxLine = 1 << 20
	maxSide = 10_000 // columns or rows
	maxTime = 10 * 365 * 24 * time.Hour
)

// ErrCut is the end of a recording whose writer was interrupted in a line.
var ErrCut = errors.New("the recording ends in the middle of a line")
