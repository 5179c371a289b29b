// Command speed owns telling scripts how slow this machine is: it prints the
// factor by which the deadlines of tests are scaled.
package main

import (
	"fmt"

	"github.com/crannog/crannog/internal/hosttest"
)

func main() { fmt.Printf("%.2f\n", hosttest.Slowness()) }
