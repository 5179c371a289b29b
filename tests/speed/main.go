// Command speed tells scripts how slow this machine is: it prints the factor by which the deadlines
// of tests are scaled.
package main

import (
	"fmt"
	"math"
	"os"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// The factor is an integer, because timers of JavaScript take whole milliseconds:
// AbortSignal.timeout throws for a fraction.
func main() { fmt.Fprintf(os.Stdout, "%.0f\n", math.Ceil(hosttest.Slowness())) }
