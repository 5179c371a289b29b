// Command crannog is server, command line and gVisor runtime in one binary.
package main

import "gvisor.dev/gvisor/runsc/cli/maincli"

func main() { maincli.Main() }
