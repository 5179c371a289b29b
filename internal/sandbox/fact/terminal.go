package fact

// Control is the data of terminal.control.
type Control struct {
	PID int `json:"pid"` // of the terminal's program
	// Do is take or release.
	Do string `json:"do"`
	// Displaced is who had control until then, as an actor.
	Displaced string `json:"displaced,omitempty"`
	// Left says that control was not given up, but that whoever had it went.
	Left bool `json:"left,omitempty"`
}
