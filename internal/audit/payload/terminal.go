package payload

// Control is the data of terminal.control.
type Control struct {
	PID int `json:"pid"` // of the terminal's program
	// Do is take or release.
	Do string `json:"do"`
	// Displaced is who had control until then, as an actor.
	Displaced string `json:"displaced,omitempty"`
	// Left is set if the holder of control disconnected without giving it up.
	Left bool `json:"left,omitempty"`
}
