// Command probe makes the attempts of the escape suite and prints an answer for each. It is linked
// statically, so that it runs in every image.
package main

import (
	"fmt"
	"os"

	"github.com/crannog/crannog/tests/escape/attempts"
)

func main() {
	if err := attempts.Main(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}
