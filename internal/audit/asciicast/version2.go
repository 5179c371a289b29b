package asciicast

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
)

// headerVersion2 is the first line of a recording of version 2.
type headerVersion2 struct {
	Version   int    `json:"version"`
	Width     int    `json:"width"`
	Height    int    `json:"height"`
	Timestamp int64  `json:"timestamp,omitempty"`
	Command   string `json:"command,omitempty"`
	Title     string `json:"title,omitempty"`
}

// WriteVersion2 writes a recording as version 2, for players older than asciinema 3.0. Version 2
// has no event for the exit status of a command. An incomplete recording is written up to its end.
func WriteVersion2(to io.Writer, from *Reader) error {
	out := bufio.NewWriter(to)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	h := from.Header()
	first := headerVersion2{Version: 2, Width: h.Cols, Height: h.Rows, Command: h.Command, Title: h.Title}
	if !h.Time.IsZero() {
		first.Timestamp = h.Time.Unix()
	}
	if err := lines.Encode(first); err != nil {
		return err
	}
	for {
		e, err := from.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, ErrCut) {
			return out.Flush()
		}
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		if e.Code == Exit {
			continue
		}
		if err := lines.Encode([]any{e.At.Seconds(), string(rune(e.Code)), e.Data}); err != nil {
			return err
		}
	}
}
