// Package guestwire owns the clients of a guest's services. An attacker who is root inside may have
// replaced the guest, so each answer is limited in its size on the wire and in memory.
package guestwire

import (
	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/guest/gen/filesystempb/filesystempbconnect"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
)

// Bounds limit one message of a guest. Zero allows none, and is never "unlimited".
type Bounds struct {
	Bytes int
	// Items is the maximum number of elements in the message's own list.
	Items int
	// Within is the maximum total number of elements in the lists and maps below that.
	Within int
	// Cut discards items beyond the limit instead of rejecting the message.
	Cut bool
}

// The limits of a list of files, for the guest and for clients.
const (
	MaxEntries = 100_000
	MaxListing = 16 << 20
)

// StdinClosed is the guest's error for input to a program that no longer accepts input.
const StdinClosed = "stdin is closed"

var (
	// Listing is for a list of files. A file may have metadata of the caller.
	Listing = Bounds{Bytes: MaxListing, Items: MaxEntries, Within: MaxEntries}
	// One is for an answer about one object, which may have metadata of the caller.
	One = Bounds{Bytes: 1 << 20, Within: 10_000}
	// Stream is for the events of a program. Output comes in pieces of 32 KiB, which redaction may
	// enlarge a few times.
	Stream = Bounds{Bytes: 1 << 20}
	// Running is for the list of running programs with their arguments and environment.
	Running = Bounds{Bytes: 16 << 20, Items: 10_000, Within: 250_000}
)

// Filesystem returns a client of a guest's file system service.
func Filesystem(doer connect.HTTPClient, base string, b Bounds) filesystempbconnect.FilesystemClient {
	return filesystempbconnect.NewFilesystemClient(limitedClient{doer}, base, b.option())
}

// Process returns a client of a guest's process service.
func Process(doer connect.HTTPClient, base string, b Bounds) processpbconnect.ProcessClient {
	return processpbconnect.NewProcessClient(limitedClient{doer}, base, b.option())
}

func (b Bounds) option() connect.ClientOption {
	return connect.WithClientOptions(
		connect.WithReadMaxBytes(max(b.Bytes, 1)), // zero is no bound there
		// The guest never compresses. A replaced guest could otherwise send a decompression bomb.
		connect.WithAcceptCompression("gzip", nil, nil),
		connect.WithCodec(codec{b}),
	)
}
