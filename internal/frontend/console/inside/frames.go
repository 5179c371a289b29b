package inside

import (
	"encoding/json"

	"github.com/coder/websocket"

	"github.com/crannog/crannog/internal/fault"
)

// pageMessage is a message from a page.
type pageMessage struct {
	Type string `json:"type"`
	Cols int    `json:"cols"`
	Rows int    `json:"rows"`
}

// message is a message to a page.
type message struct {
	kind websocket.MessageType
	data []byte
}

// Types of messages to a page, besides output.
type (
	readyFrame struct {
		Type string `json:"type"`
		PID  int    `json:"pid"`
		Cols uint16 `json:"cols"`
		Rows uint16 `json:"rows"`
		controlState
		Scope string `json:"scope"`
	}
	controlFrame struct {
		Type string `json:"type"`
		controlState
	}
	// controlState names the viewer who may type, or null, and whether it is this page.
	controlState struct {
		Controller *string `json:"controller"`
		Mine       bool    `json:"mine"`
	}
	sizeFrame struct {
		Type string `json:"type"`
		Cols uint16 `json:"cols"`
		Rows uint16 `json:"rows"`
	}
	exitFrame struct {
		Type     string `json:"type"`
		ExitCode int    `json:"exit_code"`
	}
	failFrame struct {
		Type string `json:"type"`
		Code string `json:"code"`
		Text string `json:"text"`
	}
)

func textMessage(frame any) message {
	b, _ := json.Marshal(frame) // strings and numbers always marshal
	return message{websocket.MessageText, b}
}

func errorFrame(err error) message {
	return textMessage(failFrame{"error", fault.CodeOf(err), fault.PublicText(err)})
}
