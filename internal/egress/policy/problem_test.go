package policy

import (
	"errors"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

func TestProblemsInError(t *testing.T) {
	for text, want := range map[string][]Problem{
		"line 3: there is no field a; line 12: b: x; y is none": {{Line: 3, Text: "there is no field a"}, {Line: 12, Text: "b: x; y is none"}},
		"the document is empty":                                 {{Text: "the document is empty"}},
		"line of text: no number":                               {{Text: "line of text: no number"}},
		"line 3: a; line of text: b":                            {{Line: 3, Text: "a"}, {Text: "line of text: b"}},
	} {
		if got := problemsIn(fault.New(fault.Invalid, "policy_invalid", text)); !slices.Equal(got, want) {
			t.Errorf("problems in %q = %+v, want %+v", text, got, want)
		}
	}
	if got := problemsIn(errors.New("other")); len(got) != 1 || got[0].Text != "other" {
		t.Errorf("problems in another error = %+v, want its text", got)
	}
}

func TestCheckReportsLines(t *testing.T) {
	if got := Check([]byte("policy: v1\nnetwork:\n  unlisted: deny\n"), LayerTask); len(got) != 0 {
		t.Errorf("Check of a valid document = %+v, want no problems", got)
	}
	got := Check([]byte("policy: v1\nnetwrk: {}\nnetwork:\n  unlisted: maybe\n"), LayerTask)
	if len(got) == 0 || got[0].Line != 2 || got[0].Warning {
		t.Errorf("Check of an unknown field = %+v, want an error in line 2", got)
	}
	if got := Check([]byte("policy: v1\nnetwork:\n  unlisted: maybe\n"), LayerTask); len(got) != 1 || got[0].Line != 3 {
		t.Errorf("Check of an invalid value = %+v, want an error in line 3", got)
	}
}
