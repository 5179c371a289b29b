package main

import (
	"context"
	"fmt"
)

// contender runs one round and adds its scores.
type contender struct {
	name string
	run  func(ctx context.Context, s *scores) error
}

// race runs every contender once per round. Each round begins with another one, so that a temporary
// load of the machine affects all of them. A first round warms caches and is not counted.
func race(ctx context.Context, rounds int, all ...contender) (*scores, error) {
	counted := newScores()
	for round := -1; round < rounds; round++ {
		s := counted
		if round < 0 {
			s = newScores()
		}
		for i := range all {
			c := all[(i+max(round, 0))%len(all)]
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := c.run(ctx, s); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return counted, nil
}
