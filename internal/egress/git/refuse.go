package git

import (
	"strings"

	"github.com/crannog/crannog/internal/host/text"
)

const (
	// longestReason limits what git prints beside a ref to one line.
	longestReason = 200
	// longestBand is the most that fits into a side-band pkt-line.
	longestBand = longestPacket - 5

	bandData     = 1
	bandProgress = 2
	bandFatal    = 3
)

// Refusal returns the body of a response with status 200 and type ContentType that makes git print
// why nothing was pushed. With status 403 git would print that the remote hung up, and that
// everything is up to date. Git reads no response before it has sent the whole pack, so the rest of
// the body must be read and dropped first, as far as byte limits allow.
// There is a reason for each command; "" is for a command that is only refused because another one
// is. The note is printed line by line before them, with "remote:" in front.
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
		// A client that wants no report gets the packet that ends it.
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

// lines keeps the lines of a note and makes each harmless.
func lines(note string) []byte {
	var b []byte
	for line := range strings.Lines(note) {
		b = append(b, oneLine(line)...)
		b = append(b, '\n')
	}
	return b
}

// oneLine makes a text harmless: it ends up on a terminal, and parts of it can come from the
// sandbox. It drops characters that other functions mark: no decision depends on it, and refs with
// hidden characters are rejected before.
func oneLine(s string) string {
	s = strings.ReplaceAll(text.Line(s, 4*longestReason), "\ufffd", "")
	s = text.Clip(strings.Join(strings.Fields(s), " "), longestReason)
	if s == "" {
		s = "refused"
	}
	return s
}
