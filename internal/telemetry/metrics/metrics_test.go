package metrics

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

func text(t *testing.T, families ...Family) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteText(&b, families); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWriteText(t *testing.T) {
	h := NewHistogram("h_seconds", "A \\ b\nc.", "how")
	h.Observe(2*time.Millisecond, "a\"\\\n")
	h.Observe(time.Hour, "a\"\\\n")
	got := text(t, h.Family(), One("g", Gauge, "G.", 1.5))
	for _, line := range []string{
		`# HELP h_seconds A \\ b\nc.`, "# TYPE h_seconds histogram",
		`h_seconds_bucket{how="a\"\\\n",le="0.001"} 0`, `h_seconds_bucket{how="a\"\\\n",le="0.0025"} 1`,
		`h_seconds_bucket{how="a\"\\\n",le="300"} 1`, `h_seconds_bucket{how="a\"\\\n",le="+Inf"} 2`,
		`h_seconds_sum{how="a\"\\\n"} 3600.002`, `h_seconds_count{how="a\"\\\n"} 2`, "g 1.5",
	} {
		if !strings.Contains("\n"+got, "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, got)
		}
	}
}

// TestBoundIsInItsBucket checks that a bucket includes its bound, as Prometheus defines it.
func TestBoundIsInItsBucket(t *testing.T) {
	h := NewHistogram("h", "H.")
	h.Observe(time.Millisecond)
	if got := text(t, h.Family()); !strings.Contains(got, `h_bucket{le="0.001"} 1`) || !strings.Contains(got, `h_bucket{le="0.0005"} 0`) {
		t.Error(got)
	}
}

func TestVectorIsBounded(t *testing.T) {
	c := NewCounter("c", "C.", "a", "b")
	for i := range 3 * maxSeries {
		c.Add(fmt.Sprint(i), "x")
	}
	f := c.Family()
	if len(f.Samples) != maxSeries+1 {
		t.Errorf("got %d series", len(f.Samples))
	}
	if got := text(t, f); !strings.Contains(got, fmt.Sprintf(`c{a="other",b="other"} %d`, 2*maxSeries)) {
		t.Error("the rest is not counted as other")
	}
}

func TestNilVectorCountsNothing(*testing.T) {
	var v *Vector
	v.Add("a")
	v.Observe(time.Second, "a")
}
