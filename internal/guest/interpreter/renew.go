package interpreter

// Sever lets the code that runs go on without its client: the connections are
// about to be cut because the sandbox was saved and goes on elsewhere, and not
// because somebody has lost interest. What the code prints is dropped.
func (s *Server) Sever() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.severed)
	s.severed = make(chan struct{})
}

// severance returns what the next Sever closes.
func (s *Server) severance() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.severed
}
