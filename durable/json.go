package durable

import (
	"context"
	"encoding/json"
	"fmt"
)

// JSON makes a Handler of a function that takes what the payload is the JSON of. Without a payload
// it gets the zero value. A payload that does not fit is an error like others: it is retried,
// because a worker of a newer version may understand it.
func JSON[T any](handle func(ctx context.Context, payload T) error) Handler {
	if handle == nil {
		return nil // which Handle refuses
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
