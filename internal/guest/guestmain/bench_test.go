package guestmain

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/crannog/crannog/internal/guest"
)

// BenchmarkNameFiles measures writing the files that contain the machine's name, in a copy.
func BenchmarkNameFiles(b *testing.B) {
	root, log := b.TempDir(), slog.New(slog.DiscardHandler)
	for i := range b.N {
		nameFiles(root, guest.Config{Hostname: fmt.Sprintf("box%d", i), Renew: guest.Copied}, log)
	}
}

// BenchmarkWriteFiles measures writing the network's files in a claim: an unchanged name server,
// and a new certificate at the end of the bundle of public certificates.
func BenchmarkWriteFiles(b *testing.B) {
	root := b.TempDir()
	bundle := guest.File{Path: "/bundle", Mode: 0o644, Data: make([]byte, 220<<10)}
	if err := writeFiles(root, []guest.File{bundle}, true); err != nil {
		b.Fatal(err)
	}
	for i := range b.N {
		err := writeFiles(root, []guest.File{
			{Path: "/etc/resolv.conf", Mode: 0o644, Data: []byte("nameserver 10.0.0.1\n")},
			{Path: "/bundle", Mode: 0o644, Data: fmt.Appendf(nil, "certificate %d\n", i), Append: true},
		}, false)
		if err != nil {
			b.Fatal(err)
		}
	}
}
