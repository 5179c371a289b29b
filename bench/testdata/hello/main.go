// Command hello is the module that the group wasm measures.
package main

import "fmt"

func main() { fmt.Println("ok") }
