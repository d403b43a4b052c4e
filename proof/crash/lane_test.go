//go:build unix

package crash

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tickslot/tickslot/internal/testkit"
)

// A lane is a separate place in which processes are killed one at a time. This process plays the
// roles that are not killed.
type lane struct {
	t *testing.T
	*matrix
	app      *app
	receiver *httptest.Server
	next     int   // number of the next order
	ordered  []int // a producer knows that they were committed
	children int

	delivering sync.WaitGroup // deliveries to a child receiver
	undone     error          // the error of these deliveries
}

func newLane(t *testing.T, m *matrix, p place) (*lane, error) {
	a, err := p.open(&killer{})
	if err != nil {
		return nil, err
	}
	t.Cleanup(a.close)
	if err := a.setup(t.Context()); err != nil {
		return nil, err
	}
	l := &lane{t: t, matrix: m, app: a, receiver: httptest.NewServer(a)}
	t.Cleanup(l.receiver.Close)
	return l, nil
}

// run runs a child that is to be killed, or that prints its statements if at is "". It reports
// whether the child was killed.
func (l *lane) run(role, at string, after bool) (killed bool, err error) {
	j := job{Role: role, Place: l.app.place, At: at, After: after, First: l.next, Orders: 5, URL: l.receiver.URL,
		Shards: 1 + l.children%2} // 5, so that the first is not always a withdrawn order
	l.children++
	if role != "producer" {
		if err := l.order(4); err != nil {
			return false, err
		}
	}
	p := j.start(l.t)
	patience := time.AfterFunc(2*testkit.Patience, func() { _ = p.Process.Kill() })
	for p.lines.Scan() {
		if err := l.hears(j, p, p.lines.Text()); err != nil {
			return false, err
		}
	}
	inTime := patience.Stop()
	p.ended()
	l.delivering.Wait()
	err = p.Wait()
	switch {
	case l.undone != nil:
		return false, l.undone
	case !inTime:
		return false, fmt.Errorf("a %s has not ended", role)
	case err == nil:
		return false, nil
	case !strings.Contains(err.Error(), "killed"):
		return false, fmt.Errorf("a %s: %w", role, err)
	}
	return true, l.expire()
}

// expire expires the locks of a killed relay, as if the other relays had waited for them.
func (l *lane) expire() error {
	_, err := l.app.db.Exec("UPDATE tickslot_outbox_locks SET expires_at = renewed_at WHERE expires_at > renewed_at")
	return err
}

// hears processes a line printed by a child. The last line may be incomplete.
func (l *lane) hears(j job, p *process, line string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "statement":
		if id, text, ok := strings.Cut(rest, " "); ok {
			l.found(j.Role, id, text, j.At != "")
		}
	case "ordered":
		var n int
		if _, err := fmt.Sscan(rest, &n); err != nil {
			return err
		}
		l.next = n + 1
		l.ordered = append(l.ordered, n)
	case "listens":
		l.delivering.Go(func() {
			l.undone = l.deliver(p.ctx, "http://"+rest)
			_ = p.in.Close() // ends it unless it was killed
		})
	default:
		return fmt.Errorf("a %s says %q", j.Role, line)
	}
	return nil
}

// order creates orders.
func (l *lane) order(n int) error {
	for range n {
		if err := l.app.order(context.Background(), l.next); err != nil {
			return err
		}
		l.ordered = append(l.ordered, l.next)
		l.next++
	}
	l.app.box.Notify()
	return nil
}

// deliver delivers until every order has its effect, or ctx ends.
func (l *lane) deliver(ctx context.Context, url string) error {
	relay, err := l.app.relay(url, 0)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	err = testkit.Poll(testkit.Patience, "every order has its effect", func() error {
		if ctx.Err() != nil {
			return nil
		}
		return l.app.settled()
	})
	cancel()
	return errors.Join(err, <-ended)
}

// settled returns an error while messages are pending.
func (a *app) settled() error {
	var pending, missing int
	err := a.db.QueryRow("SELECT (SELECT count(*) FROM tickslot_outbox WHERE state = 'pending'), (SELECT count(*) "+
		"FROM orders WHERE NOT EXISTS (SELECT 1 FROM effects WHERE effects.n = orders.n))").Scan(&pending, &missing)
	if err == nil && pending+missing > 0 {
		err = fmt.Errorf("%d messages are pending, %d orders have no effect", pending, missing)
	}
	return err
}

// A verdict is the final state of the database.
type verdict struct{ orders, lost, doubled, disordered, withdrawn int }

// verdict delivers the remaining messages and checks the database.
func (l *lane) verdict() (v verdict, err error) {
	if err := l.order(1); err != nil { // includes an order whose commit the last producer did not learn of
		return v, err
	}
	err = l.deliver(context.Background(), l.receiver.URL)
	orders := map[int]int{} // orders and their effects
	all := func(text string, row func(n, k int)) {
		rows, e := l.app.db.Query(text)
		if e != nil {
			err = errors.Join(err, e)
			return
		}
		defer rows.Close()
		for rows.Next() {
			var n, k int
			err = errors.Join(err, rows.Scan(&n, &k))
			row(n, k)
		}
		err = errors.Join(err, rows.Err())
	}
	all("SELECT n, k FROM orders", func(n, _ int) { orders[n] = 0 })
	last := map[int]int{}
	all("SELECT n, k FROM effects ORDER BY at", func(n, k int) {
		if _, ok := orders[n]; !ok {
			v.withdrawn++
		}
		if orders[n]++; orders[n] > 1 {
			v.doubled++
		} else if n < last[k] {
			v.disordered++
		}
		last[k] = max(n, last[k])
	})
	for _, effects := range orders {
		v.orders++
		if effects == 0 {
			v.lost++
		}
	}
	for _, n := range l.ordered {
		if _, ok := orders[n]; ok == isWithdrawn(n) {
			err = errors.Join(err, fmt.Errorf("order %d is there: %t", n, ok))
		}
	}
	return v, err
}
