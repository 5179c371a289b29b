package audit

import (
	"sync"
	"testing"
)

// execDraft returns the entry of an executed program.
func execDraft(i int) Draft {
	return Draft{Kind: Exec, Sandbox: "ikq3vz7w2m", Actor: "box", Source: "events/ikq3vz7w2m", At: uint64(i) + 1, Data: map[string]any{
		"pid": i, "parent": 1, "program": "/usr/bin/gcc", "argv": []string{"gcc", "-O2", "-c", "src/main.c", "-o", "build/main.o"},
		"cwd": "/work", "env": []string{"PATH", "HOME", "LANG", "CC", "CFLAGS"},
	}}
}

// BenchmarkNote measures the cost of a noted entry, up to the time when it is durable.
func BenchmarkNote(b *testing.B) {
	l := openLog(b, Options{Log: quiet(), Queue: 1 << 20})
	i := 0
	for b.Loop() {
		if err := l.Note(execDraft(i)); err != nil {
			b.Fatal(err)
		}
		if i++; i%5000 == 0 {
			if err := l.queue.flush(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := l.queue.flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkAppend measures the cost of a durable entry.
func BenchmarkAppend(b *testing.B) {
	l := openLog(b, Options{Log: quiet()})
	i := 0
	for b.Loop() {
		if err := l.Append(b.Context(), execDraft(i)); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkAppend16 measures the cost of a durable entry when 16 callers share writes.
func BenchmarkAppend16(b *testing.B) {
	l := openLog(b, Options{Log: quiet()})
	var writers sync.WaitGroup
	work := make(chan int)
	for range 16 {
		writers.Go(func() {
			for i := range work {
				if err := l.Append(b.Context(), execDraft(i)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	i := 0
	for b.Loop() {
		work <- i
		i++
	}
	close(work)
	writers.Wait()
}

// BenchmarkIndex measures the cost of adding an entry to the index when the log is read.
func BenchmarkIndex(b *testing.B) {
	l := openLog(b, Options{Log: quiet()})
	batch := make([]Draft, 1000)
	for i := range batch {
		batch[i] = execDraft(i)
	}
	n := 0
	for b.Loop() {
		if n%1000 == 0 {
			b.StopTimer()
			if err := l.Append(b.Context(), batch...); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			if _, err := l.Position(b.Context(), "x"); err != nil {
				b.Fatal(err)
			}
		}
		n++
	}
}

func BenchmarkVerify(b *testing.B) {
	l := openLog(b, Options{Log: quiet()})
	batch := make([]Draft, 1000)
	for i := range batch {
		batch[i] = execDraft(i)
	}
	for range 20 {
		if err := l.Append(b.Context(), batch...); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if v, err := l.Verify(b.Context()); err != nil || !v.OK {
			b.Fatalf("Verify: got %+v, %v, want OK", v, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/20_000, "ns/entry")
}
