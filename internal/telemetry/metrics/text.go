package metrics

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ContentType is the media type of the text format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// WriteText writes figures in the Prometheus text format.
func WriteText(to io.Writer, families []Family) error {
	w := bufio.NewWriter(to)
	for _, f := range families {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", f.Name, escapeHelp(f.Help), f.Name, f.Kind)
		for _, s := range f.Samples {
			if f.Kind == Histogram {
				writeHistogram(w, f, s)
				continue
			}
			writeSample(w, f.Name, s.Labels, number(s.Value))
		}
	}
	return w.Flush()
}

func writeHistogram(w io.Writer, f Family, s Sample) {
	total := uint64(0)
	for i, n := range s.Buckets {
		total += n
		bound := "+Inf"
		if i < len(f.Bounds) {
			bound = number(f.Bounds[i])
		}
		labels := append(append([]Label{}, s.Labels...), Label{"le", bound})
		writeSample(w, f.Name+"_bucket", labels, strconv.FormatUint(total, 10))
	}
	writeSample(w, f.Name+"_sum", s.Labels, number(s.Sum))
	writeSample(w, f.Name+"_count", s.Labels, strconv.FormatUint(s.Count, 10))
}

func writeSample(w io.Writer, name string, labels []Label, value string) {
	var b strings.Builder
	b.WriteString(name)
	for i, l := range labels {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(l.Name + `="` + escapeValue(l.Value) + `"`)
	}
	if len(labels) > 0 {
		b.WriteByte('}')
	}
	fmt.Fprintf(w, "%s %s\n", b.String(), value)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// The format has three escapes in values and two in descriptions. All else is UTF-8 as it is.
var (
	valueEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

func escapeValue(v string) string { return valueEscapes.Replace(strings.ToValidUTF8(v, "\uFFFD")) }

func escapeHelp(v string) string { return helpEscapes.Replace(v) }
