package gvisor

import (
	"testing"

	"gvisor.dev/gvisor/pkg/abi/linux"
)

// S10: a program can learn only the type of a host file system and its maximum length of names.
func TestS10HostDiskIsConcealed(t *testing.T) {
	host := linux.Statfs{
		Type: linux.V9FS_MAGIC, BlockSize: 512, Blocks: 11, BlocksFree: 12, BlocksAvailable: 13, Files: 14, FilesFree: 15,
		FSID: [2]int32{16, 17}, NameLength: 255, FragmentSize: 512, Flags: 1, Spare: [4]uint64{18},
	}
	own := linux.Statfs{Type: 1, BlockSize: 4096, Blocks: 1, BlocksFree: 2, BlocksAvailable: 3, Files: 4, FilesFree: 5, NameLength: 6, FragmentSize: 4096, Flags: 7}
	want := own
	want.Type, want.NameLength, want.Flags = host.Type, 255, 1
	if got := concealed(host, own); got != want {
		t.Errorf("the concealed disk is %+v, want %+v", got, want)
	}
	want = linux.Statfs{Type: host.Type, BlockSize: 4096, NameLength: 255, FragmentSize: 4096, Flags: 1}
	if got := concealed(host, linux.Statfs{}); got != want {
		t.Errorf("without a known disk of the sandbox: got %+v, want %+v", got, want)
	}
}
