// Package kernelevents owns the observation of processes in PID namespaces of the host's kernel: each
// process that is created, executes a program or ends. It needs root, because it loads eBPF
// programs. The programs only read, and cannot delay or refuse what they observe.
package kernelevents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
)

// Kind is what a process did.
type Kind uint32

// The kinds of events.
const (
	Forked Kind = iota + 1
	Executed
	Exited
)

// Event is one event. PIDs are those in the watched namespace, and the user is the host's.
type Event struct {
	Kind         Kind
	PID, Parent  int
	UID          uint32
	Status       uint32        // of Exited, as wait returns it
	Clock        time.Duration // the kernel's monotonic clock
	Program      string        // as the caller named it
	Args, Env    []string
	ArgsCut, Cut bool // arguments or anything else is incomplete
}

// ringSize bounds the events that were not read yet, of all namespaces together. It holds about
// 1300 executed programs.
const ringSize = 8 << 20

// maxWatched bounds the namespaces that are watched at once.
const maxWatched = 16384

// typesPath is the kernel's description of its types.
const typesPath = "/sys/kernel/btf/vmlinux"

// Available returns why this process cannot observe the kernel, as far as a quick check finds out.
func Available() error {
	if _, err := os.Stat(typesPath); err != nil {
		return fmt.Errorf("the kernel does not describe its types: %w", err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "crannog_check", Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize())})
	if err != nil {
		return fmt.Errorf("no eBPF: %w", err)
	}
	return m.Close()
}

// Stream reads events. It has one buffer for all namespaces.
type Stream struct {
	ring     *ebpf.Map
	watched  *ebpf.Map // by namespace; the value counts lost events
	reader   *ringbuf.Reader
	links    []link.Link
	programs []*ebpf.Program

	mu    sync.Mutex
	sinks map[uint32]func(Event)
	waits []chan struct{}
	done  chan struct{}
}

// Open starts to observe. Until Watch is called, no event is reported.
func Open() (*Stream, error) { return open(ringSize) }

func open(size uint32) (_ *Stream, err error) {
	types, err := os.ReadFile(typesPath)
	if err != nil {
		return nil, err
	}
	o, err := readOffsets(types)
	if err != nil {
		return nil, err
	}
	s := &Stream{sinks: map[uint32]func(Event){}, done: make(chan struct{})}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	if s.ring, err = ebpf.NewMap(&ebpf.MapSpec{Name: "crannog_events", Type: ebpf.RingBuf, MaxEntries: size}); err != nil {
		return nil, fmt.Errorf("events of the kernel: %w", err)
	}
	if s.watched, err = ebpf.NewMap(&ebpf.MapSpec{Name: "crannog_watched", Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: maxWatched, Flags: noPreallocation}); err != nil {
		return nil, fmt.Errorf("events of the kernel: %w", err)
	}
	for _, t := range tracepoints {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "crannog", Type: ebpf.RawTracepoint, License: "GPL", Instructions: o.program(t, s.ring, s.watched)})
		if err != nil {
			return nil, fmt.Errorf("events of the kernel: %s: %w", t.name, err)
		}
		s.programs = append(s.programs, p)
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: t.name, Program: p})
		if err != nil {
			return nil, fmt.Errorf("events of the kernel: %s: %w", t.name, err)
		}
		s.links = append(s.links, l)
	}
	if s.reader, err = ringbuf.NewReader(s.ring); err != nil {
		return nil, fmt.Errorf("events of the kernel: %w", err)
	}
	go s.read()
	return s, nil
}

// noPreallocation makes the kernel allocate entries of a map as they are added (BPF_F_NO_PREALLOC).
const noPreallocation = 1

// Close stops to observe. The kernel removes the programs with their last descriptor, so nothing
// remains after a crash either.
func (s *Stream) Close() {
	_ = s.reader.Close() // nothing is written to it
	<-s.done
	s.release()
}

func (s *Stream) release() {
	for _, l := range s.links {
		_ = l.Close() // nothing is written to it
	}
	for _, p := range s.programs {
		_ = p.Close() // as above
	}
	for _, m := range []*ebpf.Map{s.ring, s.watched} {
		if m != nil {
			_ = m.Close() // as above
		}
	}
}

// Watch reports the events of a PID namespace, named by its inode, to a function. The function is
// called by one goroutine and must not block.
func (s *Stream) Watch(namespace uint32, sink func(Event)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sinks[namespace] = sink
	if err := s.watched.Put(namespace, uint64(0)); err != nil {
		delete(s.sinks, namespace)
		return fmt.Errorf("watch a PID namespace: %w", err)
	}
	return nil
}

// Lost returns how many events of a namespace were lost so far because the buffer was full.
func (s *Stream) Lost(namespace uint32) (uint64, error) {
	var lost uint64
	if err := s.watched.Lookup(namespace, &lost); err != nil {
		return 0, fmt.Errorf("events of the kernel: %w", err)
	}
	return lost, nil
}

// Leave ends Watch. The function is not called again.
func (s *Stream) Leave(namespace uint32) {
	_ = s.watched.Delete(namespace) // it is not there if Watch failed
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sinks, namespace)
}

// Sync returns when all events that have happened before the call were reported.
func (s *Stream) Sync() error {
	wait := make(chan struct{})
	s.mu.Lock()
	s.waits = append(s.waits, wait)
	s.mu.Unlock()
	if err := s.reader.Flush(); err != nil {
		return fmt.Errorf("events of the kernel: %w", err)
	}
	select {
	case <-wait:
		return nil
	case <-s.done:
		return errors.New("the observation of the kernel has ended")
	}
}

// read reports events until the reader is closed. The first flush may have ended the reading of
// events that are older than a wait, so a second one, which begins after the wait, ends it.
func (s *Stream) read() {
	defer close(s.done)
	var rec ringbuf.Record
	var flushed []chan struct{}
	for {
		err := s.reader.ReadInto(&rec)
		if err == nil {
			s.report(rec.RawSample)
			continue
		}
		if !errors.Is(err, ringbuf.ErrFlushed) {
			return
		}
		for _, w := range flushed {
			close(w)
		}
		s.mu.Lock()
		flushed, s.waits = s.waits, nil
		s.mu.Unlock()
		if len(flushed) > 0 && s.reader.Flush() != nil {
			return // the reader is closed
		}
	}
}

func (s *Stream) report(data []byte) {
	if len(data) < headerSize {
		return
	}
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(data[at:]) }
	s.mu.Lock()
	sink := s.sinks[word(atNamespace)]
	s.mu.Unlock()
	if sink == nil {
		return
	}
	e := Event{
		Kind: Kind(word(atKind)), PID: int(word(atPID)), Parent: int(word(atParent)), UID: word(atUID), Status: word(atCode),
		Clock: time.Duration(binary.LittleEndian.Uint64(data[atTime:])),
	}
	if e.Kind == Executed && len(data) >= recordSize {
		if n := int32(word(atNameLength)); n > 0 && n <= maxName {
			e.Program = string(data[atName : atName+n-1]) // the length includes the final zero byte
			e.Cut = n == maxName
		}
		e.Args, e.ArgsCut = texts(data[atArgs:atArgs+maxArgs], word(atArgsLength))
		var envCut bool
		e.Env, envCut = texts(data[atEnv:atEnv+maxEnv], word(atEnvLength))
		e.Cut = e.Cut || e.ArgsCut || envCut
	}
	sink(e)
}

// texts splits an area of texts that end with a zero byte.
func texts(area []byte, length uint32) (list []string, cut bool) {
	cut = int64(length) > int64(len(area))
	if !cut {
		area = area[:length]
	}
	for start, i := 0, 0; i <= len(area); i++ {
		if i == len(area) {
			if i > start {
				list = append(list, string(area[start:]))
			}
			break
		}
		if area[i] == 0 {
			list = append(list, string(area[start:i]))
			start = i + 1
		}
	}
	return list, cut
}
