package v1

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
)

// largestWrite remembers the longest write.
type largestWrite struct {
	bytes.Buffer
	n int
}

func (l *largestWrite) Write(p []byte) (int, error) {
	l.n = max(l.n, len(p))
	return l.Buffer.Write(p)
}

// P45: a response is the same text as encoding/json makes, but is written in pieces, so that output
// that takes six bytes per character does not use more memory.
func TestLongAnswersAreWrittenInPieces(t *testing.T) {
	long := strings.Repeat("\x00\u20ac\u2028<&\"\\", 100_000)
	lists := map[int][]api.Change{0: {}, 1: {{Path: "a"}}}
	for i := range 200 {
		lists[200] = append(lists[200], api.Change{Path: fmt.Sprint(i), Text: strings.Repeat("\x01", 20_000)})
	}
	answers := []any{
		api.ExecResult{},
		api.ExecResult{Stdout: `"stderr":"" "stdout":""`, Stderr: `","stderr":"`, Checkpoint: &api.Checkpoint{}},
		api.ExecResult{Stdout: long, Stderr: long[1:], ExitCode: 3, Truncated: true, Hit: api.HitOutput},
		// Invalid UTF-8, in which the end of a character is searched.
		api.ExecResult{Stdout: strings.Repeat("\x80", 3*stringPiece)},
	}
	for cut := range 6 { // a character lies across each end of a piece
		answers = append(answers, api.ExecResult{Stdout: strings.Repeat("x", stringPiece-cut) + "\U0001f3dd\u20acy"})
	}
	for _, list := range lists {
		answers = append(answers, api.Changes{Sandbox: `"changes":[]`, TakenAt: time.Unix(1, 2), Changes: list, Digest: "d"})
	}
	formats := apiConfig("1").Formats
	for name, format := range map[string]huma.Format{"type": formats["application/json"], "suffix": formats["json"]} {
		for i, v := range answers {
			var want bytes.Buffer
			var got largestWrite
			if err := huma.DefaultJSONFormat.Marshal(&want, v); err != nil {
				t.Fatal(err)
			}
			if err := format.Marshal(&got, v); err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("%s, answer %d: %v, %d bytes in place of %d", name, i, err, got.Len(), want.Len())
			}
			if got.n > 6*stringPiece {
				t.Errorf("%s, answer %d: %d bytes at once", name, i, got.n)
			}
		}
	}
	// Control: the writer detects a response that is written as a whole.
	var whole largestWrite
	if err := huma.DefaultJSONFormat.Marshal(&whole, answers[2]); err != nil || whole.n < len(long) {
		t.Errorf("%v, %d bytes at once", err, whole.n)
	}
}
