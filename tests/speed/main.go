// Command speed prints how slow this machine is: the factor by which the deadlines of tests are
// scaled.
package main

import (
	"fmt"
	"math"
	"os"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// main prints an integer, because timers of JavaScript take whole milliseconds: AbortSignal.timeout
// throws for a fraction.
func main() { fmt.Fprintf(os.Stdout, "%.0f\n", math.Ceil(hosttest.Slowness())) }
