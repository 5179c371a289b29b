package proxy

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
)

// refusal is the reason why a connection or request is refused, with the form of the response.
type refusal struct {
	status   int
	code     string
	decision egress.Decision
	answer   *egress.ApprovalOutcome // the approver's, if there was one
	retry    time.Duration           // time after which a retry may succeed
	cause    error
	// images is set if the client reads the errors of a registry of images.
	images bool
}

// denied returns a built-in decision of the floor.
func denied(rule, reason string) egress.Decision {
	return egress.Decision{Effect: egress.Deny, Rule: rule, Layer: policy.LayerFloor, Reason: sentence(reason)}
}

// sentence formats a reason like those of the policy.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}

// floor returns a refusal that no rule can lift.
func floor(status int, code, rule, reason string) *refusal {
	return &refusal{status: status, code: code, decision: denied(rule, reason)}
}

// byPolicy returns a refusal by the policy.
func byPolicy(d egress.Decision) *refusal {
	d.Effect = egress.Deny
	status := http.StatusForbidden
	switch d.Rule {
	case policy.RulePath, policy.RuleName, policy.RulePlain:
		status = http.StatusBadRequest
	case policy.RuleMethod:
		status = http.StatusMethodNotAllowed
	}
	return &refusal{status: status, code: "denied", decision: d}
}

// unrecorded refuses a request for which no entry could be written.
func unrecorded(err error) *refusal {
	r := floor(http.StatusServiceUnavailable, "not_recorded", policy.RuleRecord, "no audit entry could be written, so the request was not sent")
	r.cause = err
	return r
}

// byUpstream returns a refusal because the upstream failed.
func byUpstream(err error) *refusal {
	if e, ok := errors.AsType[*refusedAddress](err); ok {
		return &refusal{status: http.StatusBadGateway, code: "address_denied", decision: e.decision, cause: err}
	}
	r := floor(http.StatusBadGateway, fault.CodeOf(err), policy.RuleAddress, "the host could not be reached")
	r.cause = err
	if fault.KindOf(err) != fault.Internal {
		r.decision.Reason = fault.PublicText(err)
	}
	r.decision.Fix = fault.HintOf(err)
	switch fault.KindOf(err) {
	case fault.Timeout:
		r.status = http.StatusGatewayTimeout
		r.failed()
	case fault.Denied:
	default:
		r.failed()
	}
	switch r.code {
	case "address_private":
		r.decision.Rule = policy.RulePrivate
	case "address_own":
		r.decision.Rule = policy.RuleOwn
	case "internal":
		r.code = "upstream_failed"
	}
	return r
}

// failed marks that the policy allowed the request, so that the failure does not appear as a
// decision of the policy.
func (r *refusal) failed() {
	r.decision.Effect, r.decision.Rule, r.decision.Layer = egress.Allow, "upstream", ""
}

// line returns the refusal in one line, in a form that an agent can parse.
func (r *refusal) line(method, target string) string {
	verb := "crannog: blocked "
	if r.decision.Effect == egress.Allow {
		verb = "crannog: failed "
	}
	text := verb + method + " " + target + " rule=" + r.decision.Rule
	switch {
	case r.answer != nil && r.answer.Approval != "":
		text += " approval=" + r.answer.Approval + " state=" + r.answer.State
	case r.decision.Fix != "":
		text += " allow with " + r.decision.Fix
	case strings.HasPrefix(r.decision.Rule, "packages."):
		// Package managers show nothing else of the answer.
		text += ": " + r.decision.Reason
	}
	return printable(text, longestField)
}

// body is the JSON response to a refused program. Programs parse the fields, and people read the
// error.
type body struct {
	Error     string          `json:"error"`
	Code      string          `json:"code"`
	Decision  egress.Decision `json:"decision"`
	Approval  *answered       `json:"approval,omitempty"`
	NextSteps []string        `json:"next_steps"`
	// Errors has the reason in the form of registries of images, so that their clients show it.
	Errors []registryError `json:"errors,omitempty"`
}

type registryError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type answered struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

func (r *refusal) body(method, target string) body {
	out := body{Error: r.line(method, target), Code: r.code, Decision: r.decision, NextSteps: r.steps()}
	if r.answer != nil {
		out.Approval = &answered{ID: r.answer.Approval, State: r.answer.State, Reason: r.answer.Reason}
	}
	if r.images {
		code := "DENIED"
		if r.status == http.StatusNotFound {
			code = "MANIFEST_UNKNOWN"
		}
		out.Errors = []registryError{{code, "crannog: " + r.decision.Reason}}
	}
	return out
}

// steps returns what the program or its user can do next.
func (r *refusal) steps() []string {
	var steps []string
	if r.answer != nil {
		switch r.answer.State {
		case "pending":
			steps = append(steps,
				"a person must approve: crannog approve "+r.answer.Approval,
				"send the same request again, byte for byte, to use the approval; anything else is a new request for approval")
		case "denied":
			steps = append(steps, "an approver denied it; do not send this again")
		case "expired":
			steps = append(steps, "it was not decided in time; send the same request again to ask once more")
		}
		return steps
	}
	if r.retry > 0 {
		steps = append(steps, "wait "+strconv.Itoa(seconds(r.retry))+" s and try again")
	}
	if r.decision.Fix != "" && r.decision.Effect != egress.Allow {
		steps = append(steps, "outside the sandbox, allow it with: "+r.decision.Fix)
	}
	if r.decision.Effect == egress.Allow {
		return append(steps, "the policy allows this; the host itself failed, so try again or use another")
	}
	if len(steps) == 0 {
		steps = append(steps, "do it another way: no rule allows this")
	}
	return steps
}

func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// write answers a request with the refusal: as a page if a person reads it in a browser, else as
// JSON.
func (r *refusal) write(w http.ResponseWriter, asPage bool, method, target string) {
	b := r.body(method, target)
	if asPage {
		if page := r.page(b, method, target); page != nil {
			r.writePage(w, page, b.Error)
			return
		}
	}
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		// Every field is a string, so encoding cannot fail.
		data = []byte(`{"error":"crannog: blocked"}`)
	}
	r.start(w, "application/json", len(data)+1, b.Error)
	w.WriteHeader(r.status)
	// An error means that the client has disconnected.
	_, _ = w.Write(append(data, '\n'))
}
