package gvisor

import (
	"testing"

	"gvisor.dev/gvisor/pkg/abi/linux"
)

// S10: about a file system of the host, a program can find out only the type and the maximum length
// of names.
func TestS10Concealed(t *testing.T) {
	host := linux.Statfs{
		Type: linux.V9FS_MAGIC, BlockSize: 512, Blocks: 11, BlocksFree: 12, BlocksAvailable: 13, Files: 14, FilesFree: 15,
		FSID: [2]int32{16, 17}, NameLength: 255, FragmentSize: 512, Flags: 1, Spare: [4]uint64{18},
	}
	own := linux.Statfs{Type: 1, BlockSize: 4096, Blocks: 1, BlocksFree: 2, BlocksAvailable: 3, Files: 4, FilesFree: 5, NameLength: 6, FragmentSize: 4096, Flags: 7}
	want := own
	want.Type, want.NameLength, want.Flags = host.Type, 255, 1
	if got := concealed(host, own); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	want = linux.Statfs{Type: host.Type, BlockSize: 4096, NameLength: 255, FragmentSize: 4096, Flags: 1}
	if got := concealed(host, linux.Statfs{}); got != want {
		t.Errorf("without its own: %+v, want %+v", got, want)
	}
}
