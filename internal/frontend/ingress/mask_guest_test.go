package ingress_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/guest/codec"
	fs "github.com/crannog/crannog/internal/guest/gen/filesystempb"
	"github.com/crannog/crannog/internal/guest/gen/filesystempb/filesystempbconnect"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
)

// secretNamesGuest is a guest with a file whose name is a secret.
type secretNamesGuest struct {
	filesystempbconnect.UnimplementedFilesystemHandler
	next chan struct{}
}

func (f *secretNamesGuest) ListDir(context.Context, *connect.Request[fs.ListDirRequest]) (*connect.Response[fs.ListDirResponse], error) {
	return connect.NewResponse(&fs.ListDirResponse{Entries: []*fs.EntryInfo{{Name: "n-" + sealedValue, Path: "/x/n-" + sealedValue, Size: 7}}}), nil
}

func (f *secretNamesGuest) Stat(context.Context, *connect.Request[fs.StatRequest]) (*connect.Response[fs.StatResponse], error) {
	return nil, connect.NewError(connect.CodeNotFound, errors.New("no "+sealedValue))
}

func (f *secretNamesGuest) WatchDir(_ context.Context, _ *connect.Request[fs.WatchDirRequest], s *connect.ServerStream[fs.WatchDirResponse]) error {
	for _, name := range []string{sealedValue[:10], sealedValue, "plain"} {
		if err := s.Send(&fs.WatchDirResponse{Event: &fs.WatchDirResponse_Filesystem{Filesystem: &fs.FilesystemEvent{Name: name}}}); err != nil {
			return err
		}
		<-f.next
	}
	return nil
}

// TestFileNamesAreRedacted checks that names are redacted in every response of the file system, and
// that each event is sent at once.
func TestFileNamesAreRedacted(t *testing.T) {
	w := newTestProxy(t)
	f := &secretNamesGuest{next: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle(filesystempbconnect.NewFilesystemHandler(f, connect.WithCodec(codec.JSON{})))
	w.serve(boxID, guestboot.Port, mux)
	w.withAndWithoutRedactor(t, func(t *testing.T, shown string) {
		for name, options := range protocols {
			client := filesystempbconnect.NewFilesystemClient(&addressed{w.front.Client()}, w.front.URL, options...)
			list, err := client.ListDir(t.Context(), connect.NewRequest(&fs.ListDirRequest{}))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if e := list.Msg.GetEntries()[0]; e.GetName() != "n-"+shown || e.GetPath() != "/x/n-"+shown || e.GetSize() != 7 {
				t.Errorf("%s: %v", name, e)
			}
			_, err = client.Stat(t.Context(), connect.NewRequest(&fs.StatRequest{}))
			if connect.CodeOf(err) != connect.CodeNotFound || strings.Contains(err.Error(), sealedValue) == (shown == stars) {
				t.Errorf("%s: %v", name, err)
			}
			stream, err := client.WatchDir(t.Context(), connect.NewRequest(&fs.WatchDirRequest{}))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var names []string
			for stream.Receive() {
				names = append(names, stream.Msg().GetFilesystem().GetName())
				f.next <- struct{}{} // the next event comes only now
			}
			// The beginning of a value is redacted where a message ends with it.
			if len(names) == 3 && names[0] == stars[:10] && shown == stars {
				names[0] = sealedValue[:10]
			}
			want := []string{sealedValue[:10], shown, "plain"}
			if fmt.Sprint(names) != fmt.Sprint(want) || stream.Err() != nil {
				t.Errorf("%s: %q, %v", name, names, stream.Err())
			}
		}
	})
}

// TestInterpreterOutputIsRedacted checks that lines of the interpreter are decoded before they are
// redacted.
func TestInterpreterOutputIsRedacted(t *testing.T) {
	w := newTestProxy(t)
	picture := base64.StdEncoding.EncodeToString([]byte("\x89PNG" + sealedValue + "\x00\xff"))
	number := "1234567890123"
	var units strings.Builder
	for _, c := range sealedValue {
		fmt.Fprintf(&units, `\u%04x`, c)
	}
	escaped := units.String()
	script := []string{
		`{"type":"number_of_executions","execution_count":1}`,
		`{"type":"stdout","text":"a ` + sealedValue[:9] + `","timestamp":"T1"}`,
		`{"type":"stderr","text":"err\n","timestamp":"T2"}`,
		`{"type":"keepalive"}`,
		`{"type":"stdout","text":"` + sealedValue[9:] + ` <b>","timestamp":"T3"}`,
		`{"type":"result","text":"'` + sealedValue + `'","png":"` + picture + `","json":{"k":["` + escaped + `",` + number + `,1.5]},"is_main_result":true}`,
		`{"type":"error","name":"E","value":"` + sealedValue + `","traceback":"` + knownToken + `"}`,
		`no JSON: ` + sealedValue,
		`{"type":"stdout","text":"` + sealedValue[:12] + `","timestamp":"T4"}`,
		`{"type":"end_of_execution"}`,
	}
	seen := make(chan struct{})
	w.serve(boxID, guestboot.InterpreterPort, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/x-ndjson")
		for _, line := range script {
			_, _ = io.WriteString(rw, line+"\n")
			_ = http.NewResponseController(rw).Flush()
			if strings.Contains(line, "keepalive") {
				<-seen // the client has received the line
			}
		}
	}))
	run := func() (lines []map[string]any, all string) {
		res, err := w.front.Client().Do(w.request(t, guestboot.InterpreterPort, "POST", "/execute"))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		for s := bufio.NewScanner(res.Body); s.Scan(); {
			all += s.Text() + "\n"
			var line map[string]any
			if json.Unmarshal(s.Bytes(), &line) == nil {
				lines = append(lines, line)
			}
			if line["type"] == "keepalive" {
				seen <- struct{}{}
			}
		}
		return lines, all
	}
	printed := func(lines []map[string]any, kind string) (text string) {
		for _, l := range lines {
			if l["type"] == kind {
				text += l["text"].(string)
			}
		}
		return text
	}
	w.setRedactor(nil)
	if _, all := run(); all != strings.Join(script, "\n")+"\n" {
		t.Errorf("without a redactor: %s", all)
	}
	w.setRedactor(maskOf(t, sandbox.RedactorOptions{Outputs: true, Patterns: true}, sealedValue, number))
	lines, all := run()
	if len(lines) != len(script)-1 { // one is no JSON
		t.Errorf("%d lines", len(lines))
	}
	if got := printed(lines, "stdout"); got != "a [redacted:KEY] <b>[redacted:KEY]" {
		t.Errorf("stdout %q", got)
	}
	if got := printed(lines, "stderr"); got != "err\n" {
		t.Errorf("stderr %q", got)
	}
	for _, l := range lines {
		switch l["type"] {
		case "result":
			data, err := base64.StdEncoding.DecodeString(l["png"].(string))
			if err != nil || string(data) != "\x89PNG"+stars+"\x00\xff" {
				t.Errorf("png %q, %v", data, err)
			}
			if fmt.Sprint(l["json"]) != "map[k:[[redacted:KEY] [redacted:KEY] 1.5]]" || l["text"] != "'[redacted:KEY]'" || l["is_main_result"] != true {
				t.Errorf("result line: got %v", l)
			}
		case "error":
			if l["value"] != "[redacted:KEY]" || l["traceback"] != "[redacted:github-token]" {
				t.Errorf("error line: got %v", l)
			}
		}
	}
	if strings.Contains(all, sealedValue) || strings.Contains(all, escaped) || strings.Contains(all, number) || !strings.Contains(all, "no JSON: [redacted:KEY]\n") {
		t.Errorf("all lines: got %s", all)
	}
	if !strings.HasSuffix(all, script[len(script)-1]+"\n") || !strings.HasPrefix(all, script[0]+"\n") {
		t.Errorf("order: %s", all)
	}
}
