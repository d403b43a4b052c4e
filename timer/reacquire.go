package timer

// reacquire acquires a slot, without a tick, for each run that has none. It stops when the store
// does not answer, or when until is closed.
func (a *acquirer) reacquire(until <-chan struct{}) {
	for _, s := range a.runner.timersWithoutSlots() {
		for {
			select {
			case <-until:
				return
			default:
			}
			if !a.runner.rejoining(s) {
				break
			}
			lease, err := a.acquire(a.runner.base, tick{s: s})
			if lease != nil || refusal(err) != nil {
				a.store.recordAnswer(tick{s: s}, lease, err)
			}
			given := a.runner.handOver(s, lease)
			a.log.flush()
			if lease != nil && !given { // the run has ended meanwhile
				a.runner.release(s, lease)
			}
			if lease == nil { // none is free, or the store fails again
				break
			}
		}
	}
}
