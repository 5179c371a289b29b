// Command crannog-guest is the first process inside a sandbox. It takes its
// configuration from standard input and is of no use outside.
package main

import "github.com/crannog/crannog/internal/guest/guestmain"

func main() { guestmain.Main() }
