package durable

import (
	"context"
	"encoding/json"
	"fmt"
)

// JSON makes a Handler of a function that takes the payload, decoded from JSON. An empty payload
// gives the zero value. A payload that cannot be decoded fails the attempt like any other error.
// The run is retried, because a worker of a newer version may understand the payload.
func JSON[T any](handle func(ctx context.Context, payload T) error) Handler {
	if handle == nil {
		return nil // Handle refuses nil
	}
	return func(ctx context.Context, run *Run) error {
		var payload T
		if len(run.Payload) > 0 {
			if err := json.Unmarshal(run.Payload, &payload); err != nil {
				return fmt.Errorf("the payload (%d bytes) is not a %T: %w", len(run.Payload), payload, err)
			}
		}
		return handle(ctx, payload)
	}
}
