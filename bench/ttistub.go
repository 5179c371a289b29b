package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"time"
)

// stubServer implements just enough of E2B's protocol for a client to create a sandbox, run
// commands and kill it. It has no sandboxes, so the measured time is the client's own.
type stubServer struct {
	url  string
	http *http.Server
	// wrapCommand returns the command line that runs a command. If it is nil, no command runs.
	wrapCommand func(argv ...string) []string
}

// stubKey has the form that the SDK requires of a key.
const stubKey = "e2b_0000000000000000000000000000000000000000"

func newStubServer(wrapCommand func(argv ...string) []string) (*stubServer, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &stubServer{url: "http://" + listener.Addr().String(), wrapCommand: wrapCommand}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v2/sandboxes", a.create)
	mux.HandleFunc("DELETE /sandboxes/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /process.Process/Start", a.start)
	a.http = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = a.http.Serve(listener) }() // ends with close
	return a, nil
}

func (a *stubServer) close() error { return a.http.Close() }

func (a *stubServer) create(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"sandboxID":"i0000000000000000000","templateID":"base","clientID":"bench","envdVersion":"0.6.13","envdAccessToken":"none"}`)
}

// start answers with the event stream of one command.
func (a *stubServer) start(w http.ResponseWriter, r *http.Request) {
	argv, err := startedCommand(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/connect+json")
	writeMessage(w, 0, `{"event":{"start":{"pid":2}}}`)
	output, code := []byte("nothing ran\n"), 0
	if a.wrapCommand != nil {
		output, code = a.run(r.Context(), argv)
	}
	data, err := json.Marshal(output) // bytes become base64, as in the protocol
	if err != nil {
		return
	}
	writeMessage(w, 0, fmt.Sprintf(`{"event":{"data":{"stdout":%s}}}`, data))
	writeMessage(w, 0, fmt.Sprintf(`{"event":{"end":{"exitCode":%d,"exited":true,"status":"exit status %d"}}}`, code, code))
	writeMessage(w, endOfStream, `{}`)
}

// run runs a command and returns its output and exit code.
func (a *stubServer) run(ctx context.Context, argv []string) ([]byte, int) {
	argv = a.wrapCommand(argv...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.Bytes(), exit.ExitCode()
	}
	if err != nil {
		return []byte(err.Error()), 127
	}
	return out.Bytes(), 0
}

// startedCommand returns the command that a request starts.
func startedCommand(body io.Reader) ([]string, error) {
	var head [5]byte // a byte of flags, and the length of the message
	if _, err := io.ReadFull(body, head[:]); err != nil {
		return nil, err
	}
	message, err := io.ReadAll(io.LimitReader(body, int64(binary.BigEndian.Uint32(head[1:]))))
	if err != nil {
		return nil, err
	}
	var request struct {
		Process struct {
			Cmd  string   `json:"cmd"`
			Args []string `json:"args"`
		} `json:"process"`
	}
	if err := json.Unmarshal(message, &request); err != nil {
		return nil, err
	}
	if request.Process.Cmd == "" {
		return nil, errors.New("no command")
	}
	return append([]string{request.Process.Cmd}, request.Process.Args...), nil
}

// endOfStream marks the last message.
const endOfStream = 2

// writeMessage sends one message of a stream immediately. If the client disconnects, the request
// ends by itself.
func writeMessage(w http.ResponseWriter, mark byte, message string) {
	head := []byte{mark, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[1:], uint32(len(message)))
	if _, err := w.Write(append(head, message...)); err != nil {
		return
	}
	_ = http.NewResponseController(w).Flush()
}
