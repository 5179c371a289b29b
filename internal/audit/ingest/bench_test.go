package ingest_test

import (
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit/events"
)

// BenchmarkLine measures the cost of ingesting one line, without the work of the audit log.
// Programs in a sandbox do not wait for this.
func BenchmarkLine(b *testing.B) {
	lines := make([]any, 0, 1000)
	for i := range uint64(1000) {
		lines = append(lines, events.Event{
			Seq: i + 1, Time: time.Unix(int64(i), 0), Kind: events.Exec, PID: 12, Parent: 3, UID: 1000, Command: 3, Program: "/usr/bin/dash",
			Argv: []string{"sh", "-c", "for i in 1 2 3; do /bin/true; done; echo hi > /tmp/x"}, Cwd: "/workspace",
			Env: []string{"E2B_SANDBOX", "E2B_TEMPLATE_ID", "E2B_SANDBOX_ID", "USER", "HOME", "LOGNAME", "PATH", "LANG", "PWD"},
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		r := newFixture(b)
		s := r.open()
		r.write("events", lines...)
		b.StartTimer()
		r.drain(s, false)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/line")
}
