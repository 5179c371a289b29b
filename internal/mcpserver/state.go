package mcpserver

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// stateKey signs the state that a client has to send back. Without a signature, the client could
// claim that its user had answered another prompt, or answered at all.
type stateKey struct{ secret [32]byte }

func newStateKey() *stateKey {
	var k stateKey
	// It never fails; the runtime ends the process instead.
	_, _ = rand.Read(k.secret[:])
	return &k
}

// promptState is the prompt that a client has to show to its user.
type promptState struct {
	Sandbox  string `json:"s"`
	Approval string `json:"a"`
	Target   string `json:"t"`
	Until    int64  `json:"u"` // Unix time in seconds
}

// codeState is the fault code of a state that was not signed here.
const codeState = "invalid_state"

// maxState bounds the state that is parsed.
const maxState = 2048

func (k *stateKey) sign(a promptState) string {
	// a struct of strings and a number always marshals
	body, _ := json.Marshal(a)
	return base64.RawURLEncoding.EncodeToString(append(k.sum(body), body...))
}

// check parses a state of sign. It returns an error for one that has expired.
func (k *stateKey) check(text string, now time.Time) (promptState, error) {
	wrong := fault.New(fault.Invalid, codeState, "requestState was not issued by this server, or has expired").
		WithHint("call the tool again without it")
	if len(text) > maxState {
		return promptState{}, wrong
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(data) < sha256.Size {
		return promptState{}, wrong
	}
	sum, body := data[:sha256.Size], data[sha256.Size:]
	if !hmac.Equal(sum, k.sum(body)) {
		return promptState{}, wrong
	}
	var a promptState
	if json.Unmarshal(body, &a) != nil || now.Unix() > a.Until {
		return promptState{}, wrong
	}
	return a, nil
}

func (k *stateKey) sum(body []byte) []byte {
	mac := hmac.New(sha256.New, k.secret[:])
	_, _ = mac.Write(body) // a hash accepts all writes
	return mac.Sum(nil)
}
