package answers_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/answers"
)

// Fails when a call that was too large for its time is repeated with the same size, when an
// immediate failure shrinks batches, or when a batch grows although twice as many rows would not
// fit.
func TestBatchesThatAreTooLargeAreHalved(t *testing.T) {
	t.Parallel()
	failed := errors.New("too late")
	b := answers.NewBatch(100, 8*time.Second)
	for i, step := range []struct {
		took time.Duration
		err  error
		want int
	}{
		{8 * time.Second, failed, 50}, {8 * time.Second, failed, 25}, {4 * time.Second, failed, 12},
		{time.Millisecond, failed, 12}, {8 * time.Second, failed, 6}, {8 * time.Second, failed, 3},
		{8 * time.Second, failed, 1}, {8 * time.Second, failed, 1},
		{7 * time.Second, nil, 1}, {2 * time.Second, nil, 1}, {time.Second, nil, 2}, {0, nil, 4}, {0, nil, 8},
		{0, nil, 16}, {0, nil, 32}, {0, nil, 64}, {0, nil, 100}, {0, nil, 100},
	} {
		b.Ended(step.took, step.err)
		if got := b.Limit(); got != step.want {
			t.Errorf("step %d: %d rows, want %d", i, got, step.want)
		}
	}
	if got := answers.NewBatch(0, time.Second).Limit(); got != 1 {
		t.Errorf("a batch of %d rows, want at least one", got)
	}
}

// Fails when the rows of a call that fails repeatedly never become fewer, or when a single
// immediate failure shrinks batches.
func TestRowsThatAreRefusedAreHalved(t *testing.T) {
	t.Parallel()
	failed := errors.New("a row")
	b := answers.NewBatch(100, 8*time.Second)
	for i, step := range []struct {
		rows int
		took time.Duration
		err  error
		want int
	}{
		{20, 0, failed, 100}, {20, 0, nil, 100}, {20, 8 * time.Second, failed, 10}, {10, 0, failed, 5},
		{5, 0, failed, 2}, {2, 0, failed, 1}, {1, 0, failed, 1}, {1, 0, nil, 2}, {2, 0, failed, 2}, {2, 0, failed, 1},
	} {
		b.Wrote(step.rows, step.took, step.err)
		if got := b.Limit(); got != step.want {
			t.Errorf("step %d: %d rows, want %d", i, got, step.want)
		}
	}
}

// Fails when a link that carries 3 rows per call never transfers a queue of 40, or when most of the
// time is spent on calls that fail.
func TestABatchFindsWhatALinkCarries(t *testing.T) {
	t.Parallel()
	b := answers.NewBatch(32, 6*time.Second)
	left, spent, perRow := 40, time.Duration(0), 2*time.Second
	for calls := 0; left > 0; calls++ {
		if calls > 100 {
			t.Fatalf("%d rows are left after %d calls", left, calls)
		}
		n := min(left, b.Limit())
		if took := time.Duration(n) * perRow; took > 6*time.Second {
			spent += 6 * time.Second
			b.Ended(6*time.Second, errors.New("deadline"))
		} else {
			spent, left = spent+took, left-n
			b.Ended(took, nil)
		}
	}
	if best := 40 * perRow; spent > best*3/2 {
		t.Errorf("it took %v, want at most half more than %v", spent, best)
	}
}
