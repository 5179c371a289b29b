package metrics

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxSeries bounds the time series of one vector. Samples with further label values are counted
// with the value Other for each label, so that no caller can fill the server's memory.
const maxSeries = 500

// Other is the label value of samples beyond the limit of time series.
const Other = "other"

// Latency are bounds in seconds for operations from a tenth of a millisecond to minutes.
var Latency = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

// Vector is a counter or a histogram with labels. It is safe for concurrent use, and a nil Vector
// counts nothing.
type Vector struct {
	family Family
	labels []string

	mu     sync.Mutex
	series map[string]*Sample
}

// NewCounter returns a counter with labels.
func NewCounter(name, help string, labels ...string) *Vector {
	return &Vector{family: Family{Name: name, Help: help, Kind: Counter}, labels: labels, series: map[string]*Sample{}}
}

// NewHistogram returns a histogram of times in seconds with labels.
func NewHistogram(name, help string, labels ...string) *Vector {
	return &Vector{family: Family{Name: name, Help: help, Kind: Histogram, Bounds: Latency}, labels: labels, series: map[string]*Sample{}}
}

// Add counts one event with one value for each label.
func (v *Vector) Add(values ...string) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at(values).Value++
}

// Observe adds a time to a histogram, with one value for each label.
func (v *Vector) Observe(took time.Duration, values ...string) {
	if v == nil {
		return
	}
	seconds := took.Seconds()
	bucket, _ := slices.BinarySearch(v.family.Bounds, seconds)
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.at(values)
	if s.Buckets == nil {
		s.Buckets = make([]uint64, len(v.family.Bounds)+1)
	}
	s.Buckets[bucket]++
	s.Sum += seconds
	s.Count++
}

// at returns the time series of label values. The caller holds the lock.
func (v *Vector) at(values []string) *Sample {
	key := strings.Join(values, "\x00")
	s := v.series[key]
	if s == nil && len(v.series) >= maxSeries {
		values = slices.Repeat([]string{Other}, len(v.labels))
		key = strings.Join(values, "\x00")
		s = v.series[key]
	}
	if s != nil {
		return s
	}
	s = &Sample{}
	for i, name := range v.labels {
		s.Labels = append(s.Labels, Label{name, values[i]})
	}
	v.series[key] = s
	return s
}

// Family returns a copy of the present figures, sorted by their labels.
func (v *Vector) Family() Family {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := v.family
	for _, s := range v.series {
		c := *s
		c.Buckets = slices.Clone(s.Buckets)
		f.Samples = append(f.Samples, c)
	}
	slices.SortFunc(f.Samples, func(a, b Sample) int {
		return slices.CompareFunc(a.Labels, b.Labels, func(x, y Label) int { return cmp.Compare(x.Value, y.Value) })
	})
	return f
}
