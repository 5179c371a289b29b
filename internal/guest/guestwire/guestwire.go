// Package guestwire owns how the host's side calls a guest's services and
// reads what they answer. An attacker who is root inside may have taken the
// guest's place, so an answer is bounded in its bytes, and in what they become in
// memory.
package guestwire

import (
	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/guest/gen/filesystempb/filesystempbconnect"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
)

// Bounds are what one message of a guest may take. Zero is nothing, never
// without a bound.
type Bounds struct {
	Bytes int
	// Items is how many elements the message's own list may have.
	Items int
	// Within is how many elements the lists and maps below that may have, all
	// together.
	Within int
	// Cut leaves out the items above the bound, instead of refusing the
	// message.
	Cut bool
}

// What a guest keeps to in a list of files, and what a reader therefore takes.
const (
	MaxEntries = 100_000
	MaxListing = 16 << 20
)

// StdinClosed is what a guest says of input for a program that takes no more.
const StdinClosed = "stdin is closed"

var (
	// Listing is for a list of files. A file may have words of its caller's.
	Listing = Bounds{Bytes: MaxListing, Items: MaxEntries, Within: MaxEntries}
	// One is for what is said of one thing, or done to it: no list, but words
	// of its caller's.
	One = Bounds{Bytes: 1 << 20, Within: 10_000}
	// Stream is for the events of a program. What it prints comes in pieces
	// of 32 KiB, which masking may make a few times longer.
	Stream = Bounds{Bytes: 1 << 20}
	// Running is for the list of the programs that run, each with its
	// arguments and environment.
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
		// A guest compresses nothing. One that somebody has replaced would
		// make our side unpack a bomb, to its end even where the bytes are
		// bounded.
		connect.WithAcceptCompression("gzip", nil, nil),
		connect.WithCodec(codec{b}),
	)
}
