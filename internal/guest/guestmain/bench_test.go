package guestmain

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/crannog/crannog/internal/guest"
)

// BenchmarkNameFiles is what a copy pays for the files that name its machine.
func BenchmarkNameFiles(b *testing.B) {
	root, log := b.TempDir(), slog.New(slog.DiscardHandler)
	for i := range b.N {
		nameFiles(root, guest.Config{Hostname: fmt.Sprintf("box%d", i), Renew: guest.Copied}, log)
	}
}

// BenchmarkPlace is what a claim pays for the files of its link: a name server
// that stays, and a certificate of its own behind the bundle of the world's.
func BenchmarkPlace(b *testing.B) {
	root := b.TempDir()
	bundle := guest.File{Path: "/bundle", Mode: 0o644, Data: make([]byte, 220<<10)}
	if err := place(root, []guest.File{bundle}, true); err != nil {
		b.Fatal(err)
	}
	for i := range b.N {
		err := place(root, []guest.File{
			{Path: "/etc/resolv.conf", Mode: 0o644, Data: []byte("nameserver 10.0.0.1\n")},
			{Path: "/bundle", Mode: 0o644, Data: fmt.Appendf(nil, "certificate %d\n", i), Append: true},
		}, false)
		if err != nil {
			b.Fatal(err)
		}
	}
}
