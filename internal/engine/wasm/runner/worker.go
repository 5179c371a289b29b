package runner

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/crannog/crannog/internal/engine/wasm/quickjs"
)

// Descriptors of the worker, as package interpreter sets them.
const (
	requestsFD = 3
	messagesFD = 4
	acksFD     = 5
)

// maxRequest limits a line of requests. The guest accepts code of at most 16 MiB, which JSON can
// make several times as long.
const maxRequest = 128 << 20

// maxProgram limits the worker's source.
const maxProgram = 4 << 20

// worker runs the code of one context. Its own code is the program that it reads first.
type worker struct {
	vm         *quickjs.VM
	host       *workerHost
	functions  map[string]quickjs.Function
	requests   *bufio.Reader
	lines      chan string
	interrupts chan os.Signal
	interrupt  chan struct{}
	// skip, unless it is nil, replaces waiting for a timer by advancing a deterministic clock.
	skip func(time.Duration)
}

// serve runs the worker until its requests end.
func (r request) serve() int {
	if err := r.serveWorker(withLinearMemory(context.Background())); err != nil {
		return printError(CodeInvalid, err)
	}
	return 0
}

func (r request) serveWorker(ctx context.Context) error {
	// An interrupt that arrives before the first request must not end the worker.
	w := &worker{
		lines: make(chan string), interrupts: make(chan os.Signal, 1), interrupt: make(chan struct{}, 1),
		requests: bufio.NewReaderSize(os.NewFile(requestsFD, "requests"), 64<<10),
	}
	signal.Notify(w.interrupts, syscall.SIGINT)
	tree, err := openTree(r.deterministic)
	if err != nil {
		return err
	}
	if err := confine(tree.paths()); err != nil {
		return err
	}
	program, parts, err := readProgram(w.requests)
	if err != nil {
		return fmt.Errorf("read the worker's program: %w", err)
	}
	if err := w.start(ctx, r, tree); err != nil {
		return err
	}
	if w.functions, err = w.vm.Load(program, "<crannog>", "start", "feed", "poll", "interrupted"); err != nil {
		return fmt.Errorf("the worker's program: %w", err)
	}
	env, err := json.Marshal(os.Environ())
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := w.run("start", parts, string(env), dir, strconv.FormatBool(r.deterministic)); err != nil {
		return err
	}
	go w.read()
	go w.passInterrupts()
	return w.loop()
}

// start starts the instance of QuickJS.
func (w *worker) start(ctx context.Context, r request, tree *tree) error {
	runtime, compiled, small, err := r.load(ctx)
	if err != nil {
		return fmt.Errorf("QuickJS: %w", err)
	}
	w.host = &workerHost{tree: tree, messages: os.NewFile(messagesFD, "messages"), acks: os.NewFile(acksFD, "acknowledgements")}
	if w.vm, err = quickjs.Define(ctx, runtime, w.host); err != nil {
		return err
	}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions().WithStdout(os.Stderr).WithStderr(os.Stderr)
	if r.deterministic {
		c := &clock{}
		w.skip = func(d time.Duration) { c.passed += int64(max(d, 0)) }
		config = c.fix(config)
	} else {
		config = config.WithSysWalltime().WithSysNanotime().WithRandSource(rand.Reader)
	}
	endLoad(small)
	// From here on, the code of the context can run.
	if err := refuseNewCode(); err != nil {
		return err
	}
	module, err := runtime.InstantiateModule(ctx, compiled, config)
	if err != nil {
		return fmt.Errorf("QuickJS: %w", err)
	}
	if err := w.vm.Start(module, int64(pages(r.memory))*pageBytes); err != nil {
		return err
	}
	return w.vm.Expose()
}

// readProgram reads what every worker reads first: the length of its program, the program, and a
// line of JSON with the parts that it can load.
func readProgram(from *bufio.Reader) (program, parts string, err error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return "", "", err
	}
	size, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
	if err != nil || size < 0 || size > maxProgram {
		return "", "", fmt.Errorf("%q is no length", line)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(from, text); err != nil {
		return "", "", err
	}
	parts, err = readLine(from, maxProgram)
	return string(text), parts, err
}

// readLine reads a line of at most limit bytes.
func readLine(from *bufio.Reader, limit int) (string, error) {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		if line = append(line, part...); len(line) > limit {
			return "", fmt.Errorf("a line is longer than %d bytes", limit)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return strings.TrimSuffix(string(line), "\n"), err
		}
	}
}

// read passes on requests until there are no more.
func (w *worker) read() {
	defer close(w.lines)
	for {
		line, err := readLine(w.requests, maxRequest)
		if err != nil {
			return // the guest has ended the worker
		}
		w.lines <- line
	}
}

// passInterrupts ends the running code at each SIGINT.
func (w *worker) passInterrupts() {
	for range w.interrupts {
		w.vm.Interrupt()
		select {
		case w.interrupt <- struct{}{}:
		default:
		}
	}
}
