package payload

// Control is the data of terminal.control.
type Control struct {
	PID int `json:"pid"` // PID of the terminal's program
	// Do is take or release.
	Do string `json:"do"`
	// Displaced is the actor that had control until then.
	Displaced string `json:"displaced,omitempty"`
	// Left is set if the holder of control disconnected without releasing it.
	Left bool `json:"left,omitempty"`
}
