package ingress

// ResumePause is how long a failed resume is not retried.
const ResumePause = resumePause

// Waiting returns the number of requests that wait for a sandbox to be resumed.
func (p *Proxy) Waiting(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.pendingResumes[id]; k != nil {
		return k.waiting
	}
	return 0
}
