package api

import "time"

// CreateConsoleLink is the body of POST /console/api/tokens.
type CreateConsoleLink struct {
	Name    string `json:"name,omitempty"`
	Scope   string `json:"scope"` // viewer, operator or admin
	Seconds int64  `json:"session_seconds,omitempty"`
}

// ConsoleLink is a one-time link for signing in to the console.
type ConsoleLink struct {
	URL       string    `json:"url"`
	Token     string    `json:"token"`
	Scope     string    `json:"scope"`
	ExpiresAt time.Time `json:"expires_at"`
	Seconds   int64     `json:"session_seconds"`
}

// ConsoleSession is the session of a person who is signed in to the console.
type ConsoleSession struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Scope     string    `json:"scope"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Mine      bool      `json:"mine"` // the session of the requesting page
}

// ConsoleSessionList is the answer of GET /console/api/sessions.
type ConsoleSessionList struct {
	Sessions []ConsoleSession `json:"sessions"`
}
