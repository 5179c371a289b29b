package api

// Queue is the answer of GET /v1/queue: the number of sandboxes that are being
// started and of requests that wait.
type Queue struct {
	AtOnce         int           `json:"at_once" doc:"Sandboxes that may start at the same time now."`
	Starting       int           `json:"starting" doc:"Sandboxes that are being started for callers."`
	Background     int           `json:"background" doc:"Sandboxes that are being made ready for the warm pool."`
	Waiting        int           `json:"waiting" doc:"Requests that wait."`
	MaxWaiting     int           `json:"max_waiting" doc:"Maximum number of waiting requests. Further ones are refused with 429."`
	ServiceSeconds float64       `json:"service_seconds" doc:"Average time of one start; 0 before the first."`
	WaitSeconds    float64       `json:"wait_seconds" doc:"Expected wait of a new request; 0 if it would not wait, or before the first start."`
	Admitted       int64         `json:"admitted" doc:"Requests admitted since the server started."`
	Completed      int64         `json:"completed" doc:"Starts that succeeded since the server started."`
	Refused        int64         `json:"refused" doc:"Requests refused because too many waited, since the server started."`
	Left           int64         `json:"left" doc:"Requests whose caller left before their turn, since the server started."`
	Requests       []QueuedStart `json:"requests" doc:"The caller's waiting requests; for a local caller those of all keys."`
}

// QueuedStart is one request that waits for its sandbox to be started.
type QueuedStart struct {
	RequestID       string  `json:"request_id,omitempty" doc:"The caller's name for the request."`
	SandboxID       string  `json:"sandbox_id"`
	Place           int     `json:"place" doc:"1 is the next."`
	WaitedSeconds   float64 `json:"waited_seconds"`
	ExpectedSeconds float64 `json:"expected_seconds" doc:"Expected wait from now on; 0 before the first start."`
}
