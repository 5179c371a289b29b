package policy_test

import (
	"fmt"

	"github.com/crannog/crannog/internal/egress/policy"
)

func Example() {
	d, err := policy.Parse([]byte(`
policy: v1
level: standard
network:
  hosts:
    - host: api.example.com
      rules: [{id: read, methods: [GET], paths: ["/v1/**"], do: allow}]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: d})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, method := range []string{"GET", "DELETE"} {
		d, _ := p.Request(policy.Request{Host: "api.example.com", Port: 443, Method: method, Path: "/v1/items", TLS: true})
		fmt.Println(method, d.Effect, d.Rule)
	}
	// Output:
	// GET allow host:api.example.com/read
	// DELETE deny host:api.example.com
}
