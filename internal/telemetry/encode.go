package telemetry

import (
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/crannog/crannog/internal/telemetry/metrics"
)

// The types below are OTLP's messages in its JSON encoding: names in lowerCamelCase, 64-bit numbers
// as text, IDs in hexadecimal digits. The generated Protobuf types would add their initialisation to
// each start of the program, also in sandboxes.
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
type (
	traceMessage struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resourceJSON `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	scopeSpans struct {
		Scope scopeJSON  `json:"scope"`
		Spans []spanJSON `json:"spans"`
	}
	metricMessage struct {
		ResourceMetrics []resourceMetrics `json:"resourceMetrics"`
	}
	resourceMetrics struct {
		Resource     resourceJSON   `json:"resource"`
		ScopeMetrics []scopeMetrics `json:"scopeMetrics"`
	}
	scopeMetrics struct {
		Scope   scopeJSON    `json:"scope"`
		Metrics []metricJSON `json:"metrics"`
	}
	scopeJSON struct {
		Name string `json:"name"`
	}
	resourceJSON struct {
		Attributes []attributeJSON `json:"attributes"`
	}
	attributeJSON struct {
		Key   string    `json:"key"`
		Value valueJSON `json:"value"`
	}
	valueJSON struct {
		String *string  `json:"stringValue,omitempty"`
		Bool   *bool    `json:"boolValue,omitempty"`
		Int    *string  `json:"intValue,omitempty"`
		Double *float64 `json:"doubleValue,omitempty"`
	}
	spanJSON struct {
		TraceID    string          `json:"traceId"`
		SpanID     string          `json:"spanId"`
		Parent     string          `json:"parentSpanId,omitempty"`
		TraceState string          `json:"traceState,omitempty"`
		Flags      uint32          `json:"flags,omitempty"`
		Name       string          `json:"name"`
		Kind       int             `json:"kind"`
		Start      string          `json:"startTimeUnixNano"`
		End        string          `json:"endTimeUnixNano"`
		Attributes []attributeJSON `json:"attributes,omitempty"`
		Links      []linkJSON      `json:"links,omitempty"`
		Status     statusJSON      `json:"status"`
	}
	linkJSON struct {
		TraceID string `json:"traceId"`
		SpanID  string `json:"spanId"`
	}
	statusJSON struct {
		Message string `json:"message,omitempty"`
		Code    int    `json:"code,omitempty"`
	}
	metricJSON struct {
		Name        string         `json:"name"`
		Description string         `json:"description,omitempty"`
		Unit        string         `json:"unit,omitempty"`
		Gauge       *pointsJSON    `json:"gauge,omitempty"`
		Sum         *sumJSON       `json:"sum,omitempty"`
		Histogram   *histogramJSON `json:"histogram,omitempty"`
	}
	pointsJSON struct {
		Points []pointJSON `json:"dataPoints"`
	}
	sumJSON struct {
		Points      []pointJSON `json:"dataPoints"`
		Temporality int         `json:"aggregationTemporality"`
		Monotonic   bool        `json:"isMonotonic"`
	}
	histogramJSON struct {
		Points      []pointJSON `json:"dataPoints"`
		Temporality int         `json:"aggregationTemporality"`
	}
	pointJSON struct {
		Attributes []attributeJSON `json:"attributes,omitempty"`
		Start      string          `json:"startTimeUnixNano,omitempty"`
		Time       string          `json:"timeUnixNano"`
		Double     *float64        `json:"asDouble,omitempty"`
		Count      string          `json:"count,omitempty"`
		Sum        *float64        `json:"sum,omitempty"`
		Buckets    []string        `json:"bucketCounts,omitempty"`
		Bounds     []float64       `json:"explicitBounds,omitempty"`
	}
)

// cumulative is OTLP's temporality of totals since the start of the process.
const cumulative = 2

func encodeSpans(spans []sdk.ReadOnlySpan) traceMessage {
	list := make([]spanJSON, 0, len(spans))
	for _, s := range spans {
		list = append(list, encodeSpan(s))
	}
	return traceMessage{[]resourceSpans{{encodeResource(spans[0].Resource()), []scopeSpans{{scopeJSON{scope}, list}}}}}
}

func encodeSpan(s sdk.ReadOnlySpan) spanJSON {
	c := s.SpanContext()
	out := spanJSON{
		TraceID: c.TraceID().String(), SpanID: c.SpanID().String(), TraceState: c.TraceState().String(), Flags: uint32(c.TraceFlags()),
		// OTLP numbers the kinds as the API does: 1 is internal, 2 a server.
		Name: s.Name(), Kind: int(s.SpanKind()), Start: nanoseconds(s.StartTime()), End: nanoseconds(s.EndTime()),
		Attributes: encodeAttributes(s.Attributes()), Status: encodeStatus(s.Status()),
	}
	if p := s.Parent(); p.HasSpanID() {
		out.Parent = p.SpanID().String()
	}
	for _, l := range s.Links() {
		out.Links = append(out.Links, encodeLink(l.SpanContext))
	}
	return out
}

func encodeLink(c trace.SpanContext) linkJSON {
	return linkJSON{c.TraceID().String(), c.SpanID().String()}
}

func encodeStatus(s sdk.Status) statusJSON {
	switch s.Code {
	case codes.Ok:
		return statusJSON{Code: 1}
	case codes.Error:
		return statusJSON{s.Description, 2}
	case codes.Unset:
	}
	return statusJSON{}
}

func encodeResource(r *resource.Resource) resourceJSON {
	return resourceJSON{encodeAttributes(r.Attributes())}
}

func encodeAttributes(list []attribute.KeyValue) []attributeJSON {
	out := make([]attributeJSON, 0, len(list))
	for _, a := range list {
		v := valueJSON{}
		switch a.Value.Type() {
		case attribute.BOOL:
			b := a.Value.AsBool()
			v.Bool = &b
		case attribute.INT64:
			n := strconv.FormatInt(a.Value.AsInt64(), 10)
			v.Int = &n
		case attribute.FLOAT64:
			f := a.Value.AsFloat64()
			v.Double = &f
		default:
			text := a.Value.Emit()
			v.String = &text
		}
		out = append(out, attributeJSON{string(a.Key), v})
	}
	return out
}

func nanoseconds(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// encodeMetrics encodes figures that were counted from started to now.
func encodeMetrics(r *resource.Resource, families []metrics.Family, started, now time.Time) metricMessage {
	list := make([]metricJSON, 0, len(families))
	for _, f := range families {
		if len(f.Samples) == 0 {
			continue // OTLP has no metric without a point
		}
		list = append(list, encodeFamily(f, started, now))
	}
	return metricMessage{[]resourceMetrics{{encodeResource(r), []scopeMetrics{{scopeJSON{scope}, list}}}}}
}

func encodeFamily(f metrics.Family, started, now time.Time) metricJSON {
	out := metricJSON{Name: f.Name, Description: f.Help}
	points := make([]pointJSON, 0, len(f.Samples))
	for _, s := range f.Samples {
		p := pointJSON{Time: nanoseconds(now)}
		for _, l := range s.Labels {
			value := l.Value
			p.Attributes = append(p.Attributes, attributeJSON{l.Name, valueJSON{String: &value}})
		}
		if f.Kind != metrics.Gauge {
			p.Start = nanoseconds(started)
		}
		if f.Kind == metrics.Histogram {
			p.Count, p.Sum, p.Bounds = strconv.FormatUint(s.Count, 10), &s.Sum, f.Bounds
			for _, n := range s.Buckets {
				p.Buckets = append(p.Buckets, strconv.FormatUint(n, 10))
			}
		} else {
			p.Double = &s.Value
		}
		points = append(points, p)
	}
	switch f.Kind {
	case metrics.Counter:
		out.Sum = &sumJSON{points, cumulative, true}
	case metrics.Gauge:
		out.Gauge = &pointsJSON{points}
	case metrics.Histogram:
		out.Unit, out.Histogram = "s", &histogramJSON{points, cumulative}
	}
	return out
}
