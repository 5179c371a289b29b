package interpreter

import (
	"context"
	"io"
	"os/exec"
	"testing"
)

// BenchmarkWorkerReady measures the time from the start of a worker's process until it can run
// code.
func BenchmarkWorkerReady(b *testing.B) {
	for _, lang := range []string{"python", "javascript", "bash"} {
		b.Run(lang, func(b *testing.B) {
			s := newTestServer(b)
			for b.Loop() {
				w, err := s.server.startWorker(context.Background(), languages[lang], s.home)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				w.kill()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkInterpreterAlone measures the start of each language's interpreter without a worker,
// which is the lower limit for the start of a worker.
func BenchmarkInterpreterAlone(b *testing.B) {
	for lang, argv := range map[string][]string{
		"python": {"/usr/bin/python3", "-c", "pass"}, "javascript": {"/usr/bin/node", "-e", "0"}, "bash": {"/bin/bash", "-c", ":"},
	} {
		b.Run(lang, func(b *testing.B) {
			for b.Loop() {
				if err := exec.Command(argv[0], argv[1:]...).Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkExecute measures a small execution in a warm context, with its HTTP request.
func BenchmarkExecute(b *testing.B) {
	for lang, code := range map[string]string{"python": "print(1 + 1)", "javascript": "console.log(1 + 1)", "bash": "echo 2"} {
		b.Run(lang, func(b *testing.B) {
			s := newTestServer(b)
			for b.Loop() {
				if o := s.run(payload{"code": code, "language": lang}); o.stdout != "2\n" {
					b.Fatalf("execution: got %+v, want the output 2", o.lines)
				}
			}
		})
	}
}

// BenchmarkOutput measures the throughput of output.
func BenchmarkOutput(b *testing.B) {
	s := newTestServer(b)
	for b.Loop() {
		resp := s.do(b.Context(), "POST", "/execute",
			payload{"code": "import sys\nfor i in range(20): sys.stdout.write('line of text\\n' * 80_000)"}, testToken)
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n < 20*80_000*13 {
			b.Fatalf("output: got %d bytes, %v", n, err)
		}
		_ = resp.Body.Close()
	}
	b.SetBytes(20 * 80_000 * 13)
}
