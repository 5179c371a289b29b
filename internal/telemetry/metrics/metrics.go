// Package metrics owns the figures of a server: counters, gauges and histograms, and their text
// format. Label values come from fixed lists or from the server's own configuration, never from a
// sandbox: each new value would be a new time series.
package metrics

import "slices"

// Kind is the kind of a metric.
type Kind string

// Kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Label is one label of a sample.
type Label struct{ Name, Value string }

// Sample is one time series at one moment. Only a histogram has Buckets, Sum and Count.
type Sample struct {
	Labels []Label
	Value  float64
	// Buckets are the counts below each of the family's bounds, and above the last one. They are
	// not cumulative.
	Buckets []uint64
	Sum     float64
	Count   uint64
}

// Family is one metric with all its time series.
type Family struct {
	Name, Help string
	Kind       Kind
	// Bounds are the upper bounds of a histogram's buckets, without the last, infinite one.
	Bounds  []float64
	Samples []Sample
}

// One returns a family with one time series.
func One(name string, kind Kind, help string, value float64, labels ...Label) Family {
	return Family{Name: name, Kind: kind, Help: help, Samples: []Sample{{Labels: labels, Value: value}}}
}

// Labels returns labels from names and values, which alternate.
func Labels(pairs ...string) []Label {
	var labels []Label
	for pair := range slices.Chunk(pairs, 2) {
		labels = append(labels, Label{pair[0], pair[1]})
	}
	return labels
}
