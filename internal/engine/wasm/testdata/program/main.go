// Command program is a WebAssembly module for the tests. Under the name sh it is a small shell.
// Under other names, its first argument selects one of several small programs.
package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	name := filepath.Base(os.Args[0])
	if name == "sh" && len(os.Args) == 3 && os.Args[1] == "-c" {
		s := &shell{vars: map[string]string{}}
		os.Exit(s.line(os.Args[2]))
	}
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	run, ok := programs[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "unknown program", name)
		os.Exit(2)
	}
	run(os.Args[2:])
}

// programs holds the programs by name.
var programs = map[string]func(args []string){
	"args": func(args []string) { fmt.Println(strings.Join(args, "|")) },
	"env":  func(args []string) { fmt.Println(os.Getenv(args[0])) },
	"exit": func(args []string) {
		var code int
		fmt.Sscan(args[0], &code)
		os.Exit(code)
	},
	"trap": func([]string) {
		var p *int
		*p = 1
	},
	"upper": func([]string) {
		data, err := io.ReadAll(os.Stdin)
		check(err)
		fmt.Print(strings.ToUpper(string(data)))
	},
	"err": func(args []string) { fmt.Fprintln(os.Stderr, strings.Join(args, " ")) },
	"loop": func([]string) {
		fmt.Println("looping")
		for {
		}
	},
	"grow": func(args []string) {
		var bytes int
		fmt.Sscan(args[0], &bytes)
		for allocated := 0; allocated < bytes; allocated += 1 << 20 {
			piece := make([]byte, 1<<20)
			for i := 0; i < len(piece); i += 4096 {
				piece[i] = 1
			}
			retained = append(retained, piece)
		}
		fmt.Println("grown")
	},
	"flood": func(args []string) {
		var bytes int
		fmt.Sscan(args[0], &bytes)
		piece := []byte(strings.Repeat("x", 1<<16))
		for ; bytes > 0; bytes -= len(piece) {
			_, err := os.Stdout.Write(piece[:min(len(piece), bytes)])
			check(err)
		}
	},
	"read": func(args []string) { // FILE: prints its content, or the error
		data, err := os.ReadFile(args[0])
		show(string(data), err)
	},
	"write": func(args []string) { show("written", os.WriteFile(args[0], []byte(args[1]), 0o644)) },
	"link":  func(args []string) { show("linked", os.Symlink(args[0], args[1])) },
	"list": func(args []string) {
		entries, err := os.ReadDir(args[0])
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		show(strings.Join(names, " "), err)
	},
	"dial": func(args []string) {
		_, err := net.DialTimeout("tcp", args[0], time.Second)
		show("connected", err)
	},
	"exec": func(args []string) { show("executed", exec.Command(args[0]).Run()) },
	"same": same,
	"random": func([]string) {
		number := make([]byte, 8)
		_, err := rand.Read(number)
		check(err)
		fmt.Printf("%x\n", number)
	},
}

// retained keeps allocated memory reachable.
var retained [][]byte

// same prints values that differ between runs, unless the run is deterministic.
func same([]string) {
	began := time.Now()
	fmt.Println(began.UTC().Format(time.RFC3339Nano))
	time.Sleep(90 * time.Second)
	fmt.Println(time.Since(began))
	number := make([]byte, 8)
	_, err := rand.Read(number)
	check(err)
	fmt.Printf("%x\n", number)
	for i := range map[int]int{1: 0, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0, 8: 0} {
		fmt.Print(i, " ")
	}
	check(os.WriteFile("new", []byte("x"), 0o644))
	info, err := os.Stat("new")
	check(err)
	fmt.Println(info.ModTime().UTC(), info.Size())
	data, err := io.ReadAll(os.Stdin)
	check(err)
	fmt.Printf("%s\n", data)
}

// check exits if there is an error.
func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// show prints a result, or exits with the error.
func show(text string, err error) {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		err = path.Err
	}
	check(err)
	fmt.Println(text)
}
