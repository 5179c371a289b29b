package enginebench

import (
	_ "embed"
	"encoding/json"
	"sync"
)

// escapeResults is what the escape suite (tests/escape) found on each engine. The suite writes it.
//
//go:embed escapes.json
var escapeResults []byte

// Escapes is the result of the escape suite on an engine.
type Escapes struct {
	// Attempts is the number of attempts.
	Attempts int `json:"attempts"`
	// Blocked is the number of attempts that were refused.
	Blocked int `json:"blocked"`
	// Harmless is the number of attempts that succeeded and gave nothing, because they reached only
	// the sandbox's own kernel. No other attempt succeeded.
	Harmless int `json:"harmless"`
}

var parseEscapes = sync.OnceValue(func() map[string]Escapes {
	var stored map[string]struct {
		Attempts int            `json:"attempts"`
		Blocked  map[string]int `json:"blocked"`
	}
	if err := json.Unmarshal(escapeResults, &stored); err != nil {
		panic("enginebench: escapes.json: " + err.Error()) // the file is part of the program
	}
	all := map[string]Escapes{}
	for engine, r := range stored {
		e := Escapes{Attempts: r.Attempts}
		for _, n := range r.Blocked {
			e.Blocked += n
		}
		e.Harmless = e.Attempts - e.Blocked
		all[engine] = e
	}
	return all
})

// escapesOf returns the result of an engine, or nil if the suite has not run on it.
func escapesOf(engine string) *Escapes {
	if e, ok := parseEscapes()[engine]; ok {
		return &e
	}
	return nil
}
