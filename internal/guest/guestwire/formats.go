package guestwire

import (
	"encoding/json"
	"maps"
)

// Forms are the known formats in which the interpreter represents a value, as fields of its result.
// Other fields are ignored, because a program that has replaced the interpreter could send
// millions.
type Forms struct {
	Text       json.RawMessage `json:"text"`
	HTML       json.RawMessage `json:"html"`
	Markdown   json.RawMessage `json:"markdown"`
	SVG        json.RawMessage `json:"svg"`
	PNG        json.RawMessage `json:"png"`
	JPEG       json.RawMessage `json:"jpeg"`
	PDF        json.RawMessage `json:"pdf"`
	LaTeX      json.RawMessage `json:"latex"`
	JSON       json.RawMessage `json:"json"`
	JavaScript json.RawMessage `json:"javascript"`
	Data       json.RawMessage `json:"data"`
	Chart      json.RawMessage `json:"chart"`
	Extra      json.RawMessage `json:"extra"`
}

// ByName returns the values by the name of their format.
func (f *Forms) ByName() map[string]json.RawMessage {
	all := map[string]json.RawMessage{
		"text": f.Text, "html": f.HTML, "markdown": f.Markdown, "svg": f.SVG, "png": f.PNG, "jpeg": f.JPEG, "pdf": f.PDF,
		"latex": f.LaTeX, "json": f.JSON, "javascript": f.JavaScript, "data": f.Data, "chart": f.Chart, "extra": f.Extra,
	}
	maps.DeleteFunc(all, func(_ string, value json.RawMessage) bool { return len(value) == 0 })
	return all
}
