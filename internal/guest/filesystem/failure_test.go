package filesystem

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"
)

// Clients act on the code: a missing or forbidden file, an existing file, or a full disk is not an
// internal error of the guest.
func TestFailureCodes(t *testing.T) {
	connectErr := connect.NewError(connect.CodeAborted, errors.New("x"))
	for err, want := range map[error]connect.Code{
		connectErr: connect.CodeAborted, syscall.ENOENT: connect.CodeNotFound, syscall.EACCES: connect.CodePermissionDenied, syscall.EPERM: connect.CodePermissionDenied,
		syscall.EROFS: connect.CodePermissionDenied, syscall.EEXIST: connect.CodeAlreadyExists, syscall.ENOTDIR: connect.CodeInvalidArgument, syscall.EISDIR: connect.CodeInvalidArgument,
		syscall.ENAMETOOLONG: connect.CodeInvalidArgument, syscall.EINVAL: connect.CodeInvalidArgument, syscall.ELOOP: connect.CodeFailedPrecondition,
		syscall.EBUSY: connect.CodeFailedPrecondition, syscall.ENOSPC: connect.CodeResourceExhausted, syscall.EDQUOT: connect.CodeResourceExhausted,
		syscall.EMFILE: connect.CodeResourceExhausted, syscall.ENOMEM: connect.CodeResourceExhausted, syscall.EIO: connect.CodeInternal,
		&fs.PathError{Op: "open", Path: "/x", Err: syscall.EISDIR}: connect.CodeInvalidArgument,
	} {
		got := failure("the file", err)
		if connect.CodeOf(got) != want || !errors.Is(got, err) {
			t.Errorf("failure of %v: got %v, want the code %v", err, got, want)
		}
	}
	if got := failure("the parent of /a", syscall.ENOENT); !strings.Contains(got.Error(), "the parent of /a: ") {
		t.Errorf("got %v, want the missing file in the text", got)
	}
}
