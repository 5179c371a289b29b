package kernelevents

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// BenchmarkExec compares programs of a process that is observed with others. The difference is the
// cost of the observation. BenchmarkOpen is the cost of loading it, once for each server.
func BenchmarkExec(b *testing.B) {
	run := func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("unobserved", run)
	s, err := Open()
	if err != nil {
		b.Skip(err)
	}
	defer s.Close()
	b.Run("of another namespace", run)
	info, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Watch(uint32(info.Sys().(*syscall.Stat_t).Ino), func(Event) {}); err != nil {
		b.Fatal(err)
	}
	b.Run("observed", run)
}

func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		s, err := Open()
		if err != nil {
			b.Skip(err)
		}
		s.Close()
	}
}
