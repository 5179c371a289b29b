// Command speed owns telling scripts how slow this machine is: it prints the
// factor by which the deadlines of tests are scaled.
package main

import (
	"fmt"
	"os"

	"github.com/crannog/crannog/internal/hosttest"
)

func main() { fmt.Fprintf(os.Stdout, "%.2f\n", hosttest.Slowness()) }
