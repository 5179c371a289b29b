// Command wasm is a WebAssembly module for the tests. It makes requests as an ordinary Go program
// does, and prints the answers.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/crannog/crannog/wasihttp"
)

func main() {
	client := &http.Client{Transport: wasihttp.Transport{}}
	for _, url := range os.Args[1:] {
		request, err := http.NewRequest(http.MethodPost, url, strings.NewReader("from a module"))
		if err == nil {
			request.Header.Set("Authorization", "Bearer "+os.Getenv("S20"))
			var answer *http.Response
			if answer, err = client.Do(request); err == nil {
				var body []byte
				if body, err = io.ReadAll(answer.Body); err == nil {
					fmt.Printf("%s: %s %q %v\n", url, answer.Status, body, answer.Header)
				}
				answer.Body.Close()
			}
		}
		if err != nil {
			fmt.Printf("%s: error %v\n", url, err)
		}
	}
	fmt.Println(os.Environ())
}
