package gvisor

import (
	"strings"
	"time"

	"gvisor.dev/gvisor/pkg/log"

	"github.com/crannog/crannog/internal/host/prefault"
)

// startedMessage is the end of the message that gVisor logs when it has forked its kernel or its
// file server.
const startedMessage = "started, PID: %d"

// bootLog is the target of gVisor's log in the child that creates a kernel. It drops all messages.
// gVisor's fork shares the child's memory, because the forked process gets a user namespace.
// Afterwards each page would take a page fault when it is written first, so bootLog populates the
// memory again.
type bootLog struct{}

// Emit implements log.Emitter.
func (bootLog) Emit(_ int, _ log.Level, _ time.Time, format string, _ ...any) {
	if strings.HasSuffix(format, startedMessage) {
		prefault.Again()
	}
}
