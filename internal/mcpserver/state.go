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

// stateKey signs what a client is to bring back. The client chooses what it
// brings: without a signature it could claim that another question was put to
// its user, or put none at all.
type stateKey struct{ secret [32]byte }

func newStateKey() *stateKey {
	var k stateKey
	// It never fails; the runtime ends the process instead.
	_, _ = rand.Read(k.secret[:])
	return &k
}

// asked is the question that a client is to put to its user.
type asked struct {
	Sandbox  string `json:"s"`
	Approval string `json:"a"`
	Target   string `json:"t"`
	Until    int64  `json:"u"` // seconds since 1970
}

// codeState says that what a client brings back is not ours.
const codeState = "invalid_state"

// maxState bounds what is looked at.
const maxState = 2048

func (k *stateKey) sign(a asked) string {
	// A struct of texts and a number always marshals.
	body, _ := json.Marshal(a)
	return base64.RawURLEncoding.EncodeToString(append(k.sum(body), body...))
}

// check reads what sign made, if its time is not over.
func (k *stateKey) check(text string, now time.Time) (asked, error) {
	wrong := fault.New(fault.Invalid, codeState, "requestState is not one of ours, or too old").
		WithHint("call the tool again without it")
	if len(text) > maxState {
		return asked{}, wrong
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(data) < sha256.Size {
		return asked{}, wrong
	}
	sum, body := data[:sha256.Size], data[sha256.Size:]
	if !hmac.Equal(sum, k.sum(body)) {
		return asked{}, wrong
	}
	var a asked
	if json.Unmarshal(body, &a) != nil || now.Unix() > a.Until {
		return asked{}, wrong
	}
	return a, nil
}

func (k *stateKey) sum(body []byte) []byte {
	mac := hmac.New(sha256.New, k.secret[:])
	_, _ = mac.Write(body) // a hash takes everything
	return mac.Sum(nil)
}
