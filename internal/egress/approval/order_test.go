package approval_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/approval"
)

// Finding S1: what a request does must not be pushed out of a short prompt by
// facts whose names the sandbox chooses.
func TestFindingS1WhatMattersIsShownFirst(t *testing.T) {
	facts := map[string]string{"target": "", "method": "", "body_sha256": "", "host": "", "zeta": ""}
	for _, c := range "abcdefghijklmnop" {
		facts["header_a"+string(c)] = ""
	}
	names := approval.FactNames(facts)
	if got := strings.Join(names[:3], " "); got != "method target host" || names[len(names)-1] != "body_sha256" || len(names) != len(facts) {
		t.Errorf("the order is %v", names)
	}
}
