package git

import (
	"strings"

	"github.com/crannog/crannog/internal/host/text"
)

const (
	// longestReason limits the text that git prints beside a ref to one line.
	longestReason = 200
	// longestBand is the maximum size of data in a side-band pkt-line.
	longestBand = longestPacket - 5

	bandData     = 1
	bandProgress = 2
	bandFatal    = 3
)

// Refusal returns the body of a response, with status 200 and type ContentType, that makes git
// print the reasons of a denied push. With status 403 git would print that the remote hung up, and
// that everything is up to date. Git reads no response before it has sent the whole pack, so the
// rest of the body must be read and discarded first, as far as byte limits allow. The reasons
// have one entry for each command, or "" for a command that is denied only because another one is.
// Git prints the note before them, each line with the prefix "remote:".
func (r *Request) Refusal(reasons []string, note string) []byte {
	var report []byte
	if r.has("report-status") || r.has("report-status-v2") {
		status := "unpack ok\n"
		if len(r.Commands) == 0 {
			status = "unpack " + oneLine(note) + "\n"
		}
		report = appendPacket(report, []byte(status))
		for i, c := range r.Commands {
			reason := "another ref of this push was refused"
			if i < len(reasons) && reasons[i] != "" {
				reason = oneLine(reasons[i])
			}
			report = appendPacket(report, []byte("ng "+c.Ref+" "+reason+"\n"))
		}
		report = appendFlush(report)
	}
	switch {
	case r.has("side-band-64k"):
		b := band(nil, bandProgress, lines(note))
		if report == nil {
			return appendFlush(band(b, bandFatal, []byte(oneLine(note)+"\n")))
		}
		return appendFlush(band(b, bandData, report))
	case report != nil:
		return report
	default:
		// A client that requests no report gets an error packet.
		return appendPacket(nil, []byte("ERR "+oneLine(note)+"\n"))
	}
}

// band wraps data in side-band packets.
func band(b []byte, number byte, data []byte) []byte {
	for len(data) > 0 {
		n := min(len(data), longestBand)
		b = appendPacket(b, append([]byte{number}, data[:n]...))
		data = data[n:]
	}
	return b
}

// lines makes each line of a note safe for display.
func lines(note string) []byte {
	var b []byte
	for line := range strings.Lines(note) {
		b = append(b, oneLine(line)...)
		b = append(b, '\n')
	}
	return b
}

// oneLine makes a text safe for a terminal, because parts of it can come from the sandbox. It
// removes characters that other functions replace visibly: no decision depends on this text, and
// refs with hidden characters have been rejected before.
func oneLine(s string) string {
	s = strings.ReplaceAll(text.Line(s, 4*longestReason), "\ufffd", "")
	s = text.Clip(strings.Join(strings.Fields(s), " "), longestReason)
	if s == "" {
		s = "refused"
	}
	return s
}
