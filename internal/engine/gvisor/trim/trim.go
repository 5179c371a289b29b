// Package trim owns the giving back of memory that the programs of a sandbox have
// reserved and never touched: it runs in gVisor's kernel process, when it is
// asked to before the sandbox's state is saved.
package trim

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/metric"
	metricpb "gvisor.dev/gvisor/pkg/metric/metric_go_proto"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	gsync "gvisor.dev/gvisor/pkg/sync"
)

// gVisor reserves memory for programs in pieces of 2 MB, and a save reads each page of them to find
// out which hold something. Reading a page makes it exist, so the pages of a sandbox that holds
// nothing are made, compared and given back: half of the time of a save. A program could declare
// with madvise that it has no use for them. Here that is done on its behalf, for pages that the
// memory file does not have.

// Metric is the name of our metric in gVisor. gVisor offers no call of our own, but it computes a
// metric when it is asked for it. So asking for this one gives the memory back, and the answer is
// the number of bytes so far, or Failed.
const Metric = "crannog_trimmed_bytes"

// Failed is the result of a kernel in which something was not as expected. The
// kernel's own log has the details.
const Failed = -1

var (
	kernel atomic.Pointer[sentry.Kernel]
	total  atomic.Uint64
	// trimming is held while memory is given back: two callers at once would find the same memory.
	trimming sync.Mutex
)

// Install makes a kernel that starts able to give memory back.
func Install() error {
	return metric.RegisterCustomUint64Metric("/crannog/trimmed_bytes", metric.Uint64Metadata{
		Cumulative: true, Sync: true, Unit: metricpb.MetricMetadata_UNITS_NONE,
		Description: "Bytes that programs had reserved and not touched, given back. To ask for it gives back what there is now.",
	}, func(...*metric.FieldValue) uint64 { return now() })
}

// Of sets the kernel whose memory it is, once programs run in it.
func Of(k *sentry.Kernel) { kernel.Store(k) }

func now() uint64 {
	k := kernel.Load()
	if k == nil {
		return 0
	}
	trimming.Lock()
	defer trimming.Unlock()
	bytes, err := trim(k)
	all := total.Add(bytes)
	if err != nil {
		log.Warningf("memory that was not touched is not given back: %v", err)
		return math.MaxUint64 // Failed, once it is read as a signed number
	}
	return all
}

// trim gives back what no program of a kernel has touched.
func trim(k *sentry.Kernel) (uint64, error) {
	file, err := memoryFile(k.MemoryFile())
	if err != nil {
		return 0, err
	}
	outside, err := private[gsync.Mutex](k, "extMu")
	if err != nil {
		return 0, err
	}
	// A page that is still to be read from a state is a hole until then.
	if err := k.MemoryFile().AwaitLoadAll(); err != nil {
		return 0, err
	}
	// No program may write to a page between the check and its release.
	k.Pause()
	defer k.Unpause()
	// A save holds this lock from its beginning to its end, and so does everything that changes a
	// kernel from outside. It comes before all other locks of the kernel. Pause also takes it, and
	// releases it before this.
	outside.Lock()
	defer outside.Unlock()
	var bytes uint64
	var errs []error
	for m := range managers(k) {
		if !m.IncUsers() {
			continue // its last program ends
		}
		spans, err := untouched(m, k.MemoryFile(), int(file.Fd()))
		errs = append(errs, err)
		for _, s := range spans {
			if err := m.Decommit(s.Start, uint64(s.Length())); err != nil {
				errs = append(errs, err)
				continue
			}
			bytes += uint64(s.Length())
		}
		m.DecUsers(k.SupervisorContext())
	}
	return bytes, errors.Join(errs...)
}

// managers are the memories of a kernel's programs; threads share one.
func managers(k *sentry.Kernel) map[*mm.MemoryManager]bool {
	all := map[*mm.MemoryManager]bool{}
	for _, t := range k.RootPIDNamespace().Tasks() {
		t.WithMuLocked(func(t *sentry.Task) {
			if m := t.MemoryManager(); m != nil {
				all[m] = true
			}
		})
	}
	return all
}
