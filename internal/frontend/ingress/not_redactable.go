package ingress

import (
	"encoding/binary"
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	"github.com/crannog/crannog/internal/guest/guestboot"
)

const unmaskableText = "The sandbox's secrets cannot be read now. Its output cannot be redacted and is not passed on"

// rejectUnredactable answers if the values to redact are not known. The status is not 502 or 503,
// because clients take those for the end of the sandbox.
func (p *Proxy) rejectUnredactable(w http.ResponseWriter, r *http.Request, to target, err error) {
	p.Log.Debug("values to redact are unknown", "sandbox", to.id, "err", err)
	if to.port == guestboot.Port && refuseCall(w, r, http.StatusInternalServerError, "internal", unmaskableText) {
		return
	}
	(&refusal{status: http.StatusInternalServerError, id: to.id, message: unmaskableText}).write(w, r)
}

// refuseCall answers a call of the guest's services in their protocol, so that its client shows the
// text. It does not know all protocols.
func refuseCall(w http.ResponseWriter, r *http.Request, status int, code, text string) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || r.Method != http.MethodPost || r.URL.Path == filesPath {
		return false
	}
	type problem struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	message := problem{code, text}
	stream := strings.HasPrefix(kind, "application/connect+")
	var body []byte
	switch {
	case stream:
		body, err = json.Marshal(map[string]problem{"error": message})
		// the flag of the last message
		body = append(binary.BigEndian.AppendUint32([]byte{2}, uint32(len(body))), body...)
	case kind == "application/json", kind == "application/proto":
		kind = "application/json"
		body, err = json.Marshal(message)
	default:
		return false
	}
	if err != nil { // plain strings are always JSON
		panic(err)
	}
	limitUnreadBody(w)
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("Access-Control-Allow-Origin", "*")
	if !stream { // a stream has a success status and the error in its body
		w.WriteHeader(status)
	}
	_, _ = w.Write(body) // an error means that the client left
	return true
}
