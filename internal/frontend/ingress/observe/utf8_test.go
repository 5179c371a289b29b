package observe

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
)

// TestF10ErrorsNameTheText checks that the error about a text that is not UTF-8 names the field, in
// both codecs.
func TestF10ErrorsNameTheText(t *testing.T) {
	for _, c := range []struct{ json, want string }{
		{`{"process":{"cmd":"sh","args":["-c","` + "\xff" + `"]}}`, "process.args[1] is not UTF-8"},
		{`{"process":{"cmd":"sh","args":["\ud800"]}}`, "process.args[0] is not UTF-8"},
		{`{"process":{"cmd":"sh","envs":{"A":"` + "\xff" + `"}}}`, "process.envs.A is not UTF-8"},
		{`{"process":{"cmd":"sh","cwd":"` + "\xff" + `"}}`, "process.cwd is not UTF-8"},
	} {
		err := countedJSON{name: "json"}.Unmarshal([]byte(c.json), &pb.StartRequest{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.json, err)
		}
	}
	text := func(b []byte, field protowire.Number, text string) []byte {
		return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
	}
	for want, command := range map[string][]byte{
		"process.cmd is not":     text(nil, 1, "\xff"),
		"process.args[1] is not": text(text(nil, 2, "a"), 2, "\xff"),
		"process.envs.A is not":  text(nil, 3, string(text(text(nil, 1, "A"), 2, "\xff"))),
		"a name in it":           text(nil, 3, string(text(text(nil, 1, "\xff"), 2, "a"))),
		"process.cwd is not":     text(nil, 4, "\xff"),
	} {
		err := countedProto{}.Unmarshal(text(nil, 1, string(command)), &pb.StartRequest{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
