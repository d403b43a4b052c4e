package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tickslot/tickslot/internal/rediskit"
)

// Audit implements driver.Auditor. It warns about each server in the same way as redislock. The
// error joins the errors of servers that did not answer.
func (s *Store) Audit(ctx context.Context) ([]string, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	a := rediskit.Audit{Now: s.hostClock, Forgetful: "after a restart it votes at once for what others still hold"}
	errs := make([]error, len(s.clients))
	var wg sync.WaitGroup
	for i, client := range s.clients {
		wg.Go(func() {
			where := fmt.Sprintf("server %d of %d: ", i+1, len(s.clients))
			if err := a.Look(ctx, client, where); err != nil {
				errs[i] = fmt.Errorf("redlock: %s%w", where, err)
			}
		})
	}
	wg.Wait()
	return a.Warnings(), errors.Join(errs...)
}
