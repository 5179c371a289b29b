// Command speed reports to scripts how slow this machine is: it prints the factor by which the
// deadlines of tests are scaled.
package main

import (
	"fmt"
	"math"
	"os"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// It is a whole number, because timers of JavaScript take whole milliseconds:
// AbortSignal.timeout throws for a fraction.
func main() { fmt.Fprintf(os.Stdout, "%.0f\n", math.Ceil(hosttest.Slowness())) }
