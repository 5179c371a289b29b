package modules

import (
	"context"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// compileTimeout limits how long the guest waits for the engine to compile a module. After that,
// the runner compiles the module itself.
const compileTimeout = 2 * time.Minute

// compiled requests the compiled module from the engine. It returns nil if there is none, for
// example because the process that created the sandbox has ended.
func (r *Runner) compiled(ctx context.Context, module *os.File) *os.File {
	ctx, cancel := context.WithTimeout(ctx, compileTimeout)
	defer cancel()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(pair[0]), "answer")
	answer, err := net.FileConn(file)
	file.Close()
	if err == nil {
		defer answer.Close()
		// Do not block: an engine that does not read must not block the guest.
		err = unix.Sendmsg(r.service, []byte{0}, unix.UnixRights(int(module.Fd()), pair[1]), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	}
	unix.Close(pair[1])
	if err != nil {
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = answer.SetReadDeadline(time.Unix(1, 0)) })()
	return readDescriptor(answer.(*net.UnixConn)) //nolint:forcetypeassert // it was made as one above
}

// readDescriptor reads one message with one descriptor. It returns nil for any other message.
func readDescriptor(conn *net.UnixConn) *os.File {
	rights := make([]byte, unix.CmsgSpace(4))
	n, controls, _, _, err := conn.ReadMsgUnix(make([]byte, 1), rights)
	if err != nil || n == 0 {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(rights[:controls])
	if err != nil || len(messages) != 1 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil
	}
	return os.NewFile(uintptr(fds[0]), "compiled")
}
