package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/durable/internal/store"
	"github.com/tickslot/tickslot/internal/sqlkit"
	"github.com/tickslot/tickslot/internal/startlog"
)

// Claim implements store.Worker.
func (s *Store) Claim(ctx context.Context, request store.ClaimRequest) (store.Claimed, error) {
	names := make([]string, len(request.Handlers))
	handlers := make(map[string]store.Handler, len(request.Handlers))
	for i, h := range request.Handlers {
		names[i], handlers[h.Name] = h.Name, h
	}
	wanted, err := json.Marshal(names)
	if err != nil {
		return store.Claimed{}, err
	}
	return sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (claimed store.Claimed, _ error) {
		looks, all, err := s.look(conn, string(wanted), max(0, request.Limit), request.Worker)
		if err != nil {
			return claimed, err
		}
		claimed.Now, claimed.Next = looks.now, looks.next()
		shares := looks.shares(handlers, request)
		if looks.each, err = s.lookAtPartitions(conn, looks, handlers, max(0, request.Limit)); err != nil {
			return claimed, err
		}
		rates, err := looks.rates(handlers)
		if err != nil {
			return claimed, err
		}
		chosen, err := looks.choose(handlers, rates, shares, min(request.Limit, all.room(request.MaxActive)))
		if err != nil {
			return claimed, err
		}
		claim := prepare(conn, s.texts["claim"])
		defer claim.close()
		start, value, bytes := looks.now.UnixMicro(), store.NewClaim(), 0
		for i, c := range chosen {
			var r store.Run
			_, err := claim.found([]any{c.id, request.Worker, start, start + roundUp(request.TTL),
				handlers[c.handler].MaxAttempts, value}, append(columns(&r), &r.Payload)...)
			if err != nil {
				return claimed, err
			}
			claimed.Runs = append(claimed.Runs, r)
			if bytes += len(r.Payload); bytes >= store.MaxClaimedBytes && i < len(chosen)-1 {
				claimed.More = true
				break
			}
		}
		for _, r := range claimed.Runs {
			rates.add(handlers[r.Handler], looks.now)
		}
		claimed.Next = earlier(claimed.Next, rates.next(handlers, looks))
		if claimed.Held, err = s.notePeers(conn, looks, shares, handlers, request, claimed.Runs); err != nil {
			return claimed, err
		}
		return claimed, s.noteStarts(conn, claimed.Runs, rates)
	})
}

// rates maps the names of handlers with a Rate to their latest starts.
type rates map[string]startlog.Log

// grain is the resolution of SQLite's clock, in µs.
const grain = 1000

// rates returns the noted starts of the handlers that have a Rate.
func (l looked) rates(handlers map[string]store.Handler) (rates, error) {
	r := rates{}
	for _, p := range l.each {
		if h := handlers[p.handler]; h.Rate > 0 && r[p.handler] == nil {
			log, err := startlog.Parse(p.starts)
			if err != nil {
				return nil, fmt.Errorf("handler %q: %w", p.handler, err)
			}
			r[p.handler], _ = log.Disbelieve(l.now.UnixMicro(), startlog.Micros(h.Per), store.MaxAhead.Microseconds())
		}
	}
	return r, nil
}

// left returns how many more runs of a handler its rate allows to start now.
func (r rates) left(h store.Handler, now time.Time) int {
	if h.Rate == 0 {
		return math.MaxInt
	}
	return r[h.Name].Left(now.UnixMicro(), h.Rate, startlog.Micros(h.Per))
}

// add records a start.
func (r rates) add(h store.Handler, now time.Time) {
	if h.Rate > 0 {
		r[h.Name] = r[h.Name].Add(now.UnixMicro(), h.Rate, startlog.Micros(h.Per), grain)
	}
}

// next considers the handlers that have due runs and have reached their rate. It returns when the
// next of their runs may start, or zero if there is no such handler.
func (r rates) next(handlers map[string]store.Handler, l looked) (next time.Time) {
	for _, p := range l.each {
		h := handlers[p.handler]
		wait := r[p.handler].Wait(l.now.UnixMicro(), h.Rate, startlog.Micros(h.Per))
		if h.Rate > 0 && wait > 0 && !p.paused && p.due != "[]" {
			next = earlier(next, l.now.Add(time.Duration(wait)*time.Microsecond))
		}
	}
	return next
}

// noteStarts writes the starts of the handlers of these runs to the database.
func (s *Store) noteStarts(conn *sql.Conn, runs []store.Run, rates rates) error {
	noted := map[string]bool{}
	for _, r := range runs {
		log, ok := rates[r.Handler]
		if !ok || noted[r.Handler] {
			continue
		}
		noted[r.Handler] = true
		if _, err := exec(conn, s.texts["note_starts"], r.Handler, log.String()); err != nil {
			return err
		}
	}
	return nil
}

// A share is the part of a handler's limit that a worker may use.
type share struct {
	peers store.Peers
	room  int // how many more runs the worker may claim
}

// shares returns the shares of handlers that have a limit, by name.
func (l looked) shares(handlers map[string]store.Handler, r store.ClaimRequest) map[string]share {
	shares := map[string]share{}
	waits := map[string]bool{}
	for _, p := range l.each {
		var due [][3]int64
		_ = json.Unmarshal([]byte(p.due), &due) // choose returns the error
		waits[p.handler] = waits[p.handler] || len(due) > 0 && due[0][1] <= l.now.Add(-r.Patience).UnixMicro()
	}
	for _, p := range l.each {
		if limit := p.limit(handlers[p.handler].MaxConcurrency); limit > 1 && limit < math.MaxInt {
			peers := store.ParsePeers(p.peers)
			most := peers.Share(limit, store.WorkerKey(r.Worker), waits[p.handler], l.now.UnixMicro(), r.Patience)
			shares[p.handler] = share{peers, max(0, most-p.mine)}
		}
	}
	return shares
}

// notePeers records that the worker has searched for runs. It reports whether the worker has left
// runs to other workers.
func (s *Store) notePeers(conn *sql.Conn, l looked, shares map[string]share, handlers map[string]store.Handler,
	r store.ClaimRequest, runs []store.Run) (held bool, err error) {
	claimed, due := map[string]int{}, map[string]int{}
	for _, run := range runs {
		claimed[run.Handler]++
	}
	for _, p := range l.each {
		if p.due != "[]" && !p.paused {
			due[p.handler] += strings.Count(p.due, "[") - 1
		}
	}
	noted := map[string]bool{}
	for _, p := range l.each {
		share, ok := shares[p.handler]
		if !ok || noted[p.handler] {
			continue
		}
		noted[p.handler] = true
		n := claimed[p.handler]
		held = held || n == share.room && due[p.handler] > n && p.room(handlers[p.handler].MaxConcurrency) > n
		if share.peers.Ask(store.WorkerKey(r.Worker), len(runs) >= r.Limit, due[p.handler] > 0, l.now.UnixMicro(),
			r.Patience) {
			if _, err := exec(conn, s.texts["note_peers"], p.handler, share.peers.String()); err != nil {
				return held, err
			}
		}
	}
	return held, nil
}

// looked is the answer of the statement look: the state of the handlers of a worker.
type looked struct {
	now  time.Time
	each []part
}

// A part contains the due runs of one handler and one priority, and the limits that apply to them.
type part struct {
	handler string
	paused  bool
	starts  string // of the handler: see package startlog
	peers   string // of its workers: see store.Peers
	mine    int    // running runs of this worker
	usage
	// With MaxPerPartition: the partition ("" if none) and how many of its runs are running.
	partition         string
	n, runningOfThese int
	due               string    // [[priority, run_at, id], …]
	next              time.Time // when the next run becomes due; zero if none waits
}

// usage has the override of a limit (-1 if none) and the number of runs that count towards the
// limit.
type usage struct{ override, running int }

// limit returns the limit in force. The parameter is the limit from the code, where 0 means any
// number.
func (u usage) limit(limit int) int {
	switch {
	case u.override >= 0:
		return u.override
	case limit <= 0:
		return math.MaxInt
	}
	return limit
}

// room returns how many more runs may start.
func (u usage) room(limit int) int {
	return max(0, u.limit(limit)-u.running)
}

// look reads the data that a claim of up to limit runs needs for its decision.
func (s *Store) look(conn *sql.Conn, wanted string, limit int, worker string) (l looked, all usage, err error) {
	if _, err := found(conn, s.texts["look_all"], nil, at{&l.now}, &all.override, &all.running); err != nil {
		return l, all, err
	}
	l.each, err = rows(conn, s.texts["look"], func(p *part) []any {
		return []any{&p.handler, &p.override, &p.paused, &p.starts, &p.peers, &p.running, &p.mine, &p.due, at{&p.next}}
	}, wanted, limit, l.now.UnixMicro(), worker)
	return l, all, err
}

const (
	// maxPartitions is how many partitions of a handler a claim looks at in one statement. maxPages
	// is how many such statements it executes.
	maxPartitions = 1000
	maxPages      = 5
)

// lookAtPartitions replaces the parts of handlers with MaxPerPartition by one part for each
// partition. It does not read the runs of full partitions, which may have any number of queued
// runs.
func (s *Store) lookAtPartitions(conn *sql.Conn, known looked, handlers map[string]store.Handler, limit int) (
	each []part, err error) {
	looked := map[string]bool{}
	for _, p := range known.each {
		most := handlers[p.handler].MaxPerPartition
		if most == 0 || p.paused {
			each = append(each, p)
			continue
		}
		if looked[p.handler] {
			continue // same handler, another priority
		}
		looked[p.handler] = true
		due, seen := 0, map[string]int{} // the page of each partition
		for i := range maxPages {
			behind := s.behindPartition(p.handler)
			page, err := rows(conn, s.texts["look_partitions"], func(row *part) []any {
				row.handler, row.starts, row.usage = p.handler, p.starts, p.usage
				return []any{&row.partition, &row.n, &row.runningOfThese, &row.due}
			}, p.handler, limit, known.now.UnixMicro(), behind, maxPartitions, most)
			if err != nil {
				return nil, err
			}
			next := ""
			for _, row := range page {
				if row.n == maxPartitions {
					next = row.partition
				}
				if before, ok := seen[row.partition]; ok && before != i {
					continue
				}
				seen[row.partition] = i
				if row.due != "[]" {
					due++
				}
				each = append(each, row)
			}
			s.lookBehind(p.handler, next)
			if due >= limit || behind == "" && next == "" {
				break
			}
		}
	}
	return each, nil
}

// behindPartition returns the partition of a handler after which the next claim begins, or "" if it
// begins with the first.
func (s *Store) behindPartition(handler string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.behind[handler]
}

func (s *Store) lookBehind(handler, partition string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.behind, handler); partition != "" {
		s.behind[handler] = partition
	}
}

// next returns when the next run becomes due.
func (l looked) next() (next time.Time) {
	for _, p := range l.each {
		if !p.paused {
			next = earlier(next, p.next)
		}
	}
	return next
}

// A candidate is a run that is due.
type candidate struct {
	handler, partition  string
	priority, runAt, id int64
}

// choose returns the runs to claim, in order, at most limit of them.
func (l looked) choose(handlers map[string]store.Handler, rates rates, shares map[string]share, limit int) (
	chosen []candidate, err error) {
	var candidates []candidate
	room := map[string]int{} // by handler
	ofPartition := map[[2]string]int{}
	for _, p := range l.each {
		if p.paused {
			continue
		}
		var due [][3]int64
		if err := json.Unmarshal([]byte(p.due), &due); err != nil {
			return nil, err
		}
		for _, d := range due {
			candidates = append(candidates, candidate{p.handler, p.partition, d[0], d[1], d[2]})
		}
		if p.partition != "" {
			ofPartition[[2]string{p.handler, p.partition}] = handlers[p.handler].MaxPerPartition - p.runningOfThese
		}
		h := handlers[p.handler]
		room[p.handler] = min(p.room(h.MaxConcurrency), rates.left(h, l.now))
		if share, ok := shares[p.handler]; ok {
			room[p.handler] = min(room[p.handler], share.room)
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.runAt, b.runAt), cmp.Compare(a.id, b.id))
	})
	for _, c := range candidates {
		of := [2]string{c.handler, c.partition}
		if len(chosen) < limit && room[c.handler] > 0 && (c.partition == "" || ofPartition[of] > 0) {
			room[c.handler]--
			ofPartition[of]--
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// columns returns the destinations for the columns of the SQL part "columns".
func columns(r *store.Run) []any {
	return []any{&r.ID, &r.Attempt, &r.Claim, &r.Handler, text{&r.Schedule}, at{&r.DueAt}, &r.Backfill, &r.State,
		&r.Priority,
		at{&r.RunAt}, &r.MaxAttempts, &r.Uncounted, at{&r.FailingSince}, text{&r.Key}, &r.Partition, &r.Nonce,
		&r.PayloadLen,
		&r.By.By, &r.By.Note,
		text{&r.TraceParent}, text{&r.CanceledBy.By}, text{&r.CanceledBy.Note}, &r.Worker, at{&r.ClaimedAt},
		at{&r.LeaseUntil}, &r.LastError, at{&r.CreatedAt}, at{&r.FinishedAt}}
}

// Renew implements store.Worker.
func (s *Store) Renew(ctx context.Context, worker string, runs []store.RunKey, ttl time.Duration) ([]store.Renewed,
	error) {
	if len(runs) == 0 {
		return nil, ctx.Err()
	}
	keys := make([][3]int64, len(runs))
	for i, r := range runs {
		keys[i] = [3]int64{r.ID, int64(r.Attempt), r.Claim}
	}
	mine, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	return sqlkit.Write(ctx, s.file, func(conn *sql.Conn) ([]store.Renewed, error) {
		return rows(conn, s.texts["renew"], func(r *store.Renewed) []any {
			return []any{&r.ID, &r.Attempt, &r.Claim, &r.Canceled, text{&r.By.By}, text{&r.By.Note}}
		}, worker, string(mine), roundUp(ttl))
	})
}

// Finish implements store.Worker. It returns no Locked runs, because SQLite locks the whole file
// instead of rows.
func (s *Store) Finish(ctx context.Context, worker string, results []store.Result) (store.Finished, error) {
	if len(results) == 0 {
		return store.Finished{}, ctx.Err()
	}
	return sqlkit.Write(ctx, s.file, func(conn *sql.Conn) (done store.Finished, _ error) {
		end := s.prepareEnd(conn)
		written := prepare(conn, s.texts["written"])
		defer end.close()
		defer written.close()
		for _, r := range results {
			counts, err := end.attempt(worker, r, r.Took.Microseconds())
			if err == nil && !counts { // an earlier call may have written it and lost its answer
				counts, err = written.found([]any{r.ID, r.Attempt, worker, string(r.Outcome), r.Claim}, new(int))
			}
			if err != nil {
				return done, err
			}
			if counts {
				done.Counted = append(done.Counted, r.RunKey)
			}
		}
		return done, nil
	})
}

// ending has the statements that end an attempt.
type ending struct{ insert, finish, forget statement }

func (s *Store) prepareEnd(conn *sql.Conn) ending {
	return ending{prepare(conn, s.texts["attempt"]), prepare(conn, s.texts["finish"]),
		prepare(conn, s.texts["forget_attempts"])}
}

func (e ending) close() {
	e.insert.close()
	e.finish.close()
	e.forget.close()
}

// attempt ends the attempt of a worker and reports whether it was still running. took is in µs; nil
// means until now.
func (e ending) attempt(worker string, r store.Result, took any) (bool, error) {
	n, err := e.insert.exec(r.ID, r.Attempt, worker, string(r.Outcome), r.Error, took, r.Claim)
	if err != nil || n == 0 {
		return false, err
	}
	free, failed, lost := 0, false, 0
	switch r.Outcome {
	case store.OutcomeInterrupted:
		free = 1
	case store.OutcomeLeaseLost:
		failed, lost = true, 1
	case store.OutcomeFailed, store.OutcomePanicked, store.OutcomeTimedOut:
		failed = true
	}
	_, err = e.finish.exec(r.ID, string(r.State), r.Error, r.RetryIn.Microseconds(), free, failed, lost)
	if err == nil && r.Attempt > store.FirstAttempts+store.LastAttempts {
		_, err = e.forget.exec(r.ID, r.Attempt)
	}
	return true, err
}

// Reclaim implements store.Worker.
func (s *Store) Reclaim(ctx context.Context, limit, maxCrashes int) ([]store.Reclaimed, error) {
	return sqlkit.Write(ctx, s.file, func(conn *sql.Conn) ([]store.Reclaimed, error) {
		reclaimed, err := rows(conn, s.texts["expired"], func(r *store.Reclaimed) []any {
			return []any{&r.ID, &r.Attempt, &r.Claim, &r.MaxAttempts, &r.Crashes, &r.Handler, text{&r.Schedule},
				&r.Worker, &r.Dead, &r.Canceled}
		}, max(0, limit), maxCrashes)
		if err != nil || len(reclaimed) == 0 {
			return nil, err
		}
		end := s.prepareEnd(conn)
		defer end.close()
		for i := range reclaimed {
			r := &reclaimed[i]
			r.Dead = r.Dead && !r.Canceled
			state := store.StateQueued
			if r.Dead {
				state = store.StateDead
			}
			if _, err := end.attempt(r.Worker, store.Result{RunKey: r.RunKey, Outcome: store.OutcomeLeaseLost,
				State: state, Error: "the lease expired"}, nil); err != nil {
				return nil, err
			}
		}
		return reclaimed, nil
	})
}
