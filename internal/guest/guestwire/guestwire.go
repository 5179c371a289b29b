// Package guestwire owns how the host's side calls a guest's services and reads the answers. An
// attacker who is root inside may have replaced the guest, so an answer is limited in its bytes,
// and in the memory that it takes.
package guestwire

import (
	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/guest/gen/filesystempb/filesystempbconnect"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
)

// Bounds limit one message of a guest. Zero means nothing, never without a limit.
type Bounds struct {
	Bytes int
	// Items is the greatest number of elements in the message's own list.
	Items int
	// Within is the greatest number of elements in the lists and maps below that, all together.
	Within int
	// Cut drops the items above the limit, instead of rejecting the message.
	Cut bool
}

// The limits of a guest's list of files, and so those of a reader.
const (
	MaxEntries = 100_000
	MaxListing = 16 << 20
)

// StdinClosed is the guest's error for input to a program that accepts no more.
const StdinClosed = "stdin is closed"

var (
	// Listing is for a list of files. A file may have texts of its caller.
	Listing = Bounds{Bytes: MaxListing, Items: MaxEntries, Within: MaxEntries}
	// One is for an answer about one thing: no list, but texts of its caller.
	One = Bounds{Bytes: 1 << 20, Within: 10_000}
	// Stream is for the events of a program. Output comes in pieces of 32 KiB, which redaction may
	// make a few times longer.
	Stream = Bounds{Bytes: 1 << 20}
	// Running is for the list of running programs, each with its arguments and environment.
	Running = Bounds{Bytes: 16 << 20, Items: 10_000, Within: 250_000}
)

// Filesystem returns a client of a guest's file system service.
func Filesystem(doer connect.HTTPClient, base string, b Bounds) filesystempbconnect.FilesystemClient {
	return filesystempbconnect.NewFilesystemClient(wary{doer}, base, b.option())
}

// Process returns a client of a guest's process service.
func Process(doer connect.HTTPClient, base string, b Bounds) processpbconnect.ProcessClient {
	return processpbconnect.NewProcessClient(wary{doer}, base, b.option())
}

func (b Bounds) option() connect.ClientOption {
	return connect.WithClientOptions(
		connect.WithReadMaxBytes(max(b.Bytes, 1)), // zero is no bound there
		// A guest compresses nothing. One that root inside has replaced would make our side
		// decompress a bomb, to its end even if the bytes are limited.
		connect.WithAcceptCompression("gzip", nil, nil),
		connect.WithCodec(codec{b}),
	)
}
