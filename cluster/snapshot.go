package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/dlock"
	"github.com/tickslot/tickslot/dlock/driver"
)

// A Snapshot is the fleet as one process sees it. Instants are on this host's clock, but the
// durations between them, and every state, are by the clocks of the stores. Do not modify it: it is
// shared.
//
// It can be marshaled as JSON: fields that are not known are left out, instants are in UTC,
// durations are numbers of seconds, and errors are texts.
type Snapshot struct {
	// Self is this process. Self and Runners are current; everything else was read at ReadAt.
	Self Self
	// Runners are the loops of this process, the writer of the registry included, by kind and name.
	Runners []RunnerDetail

	// ReadAt is when the hosts and leases were read, the older of the two; zero: not yet.
	ReadAt time.Time
	// ReadAge is how long ago ReadAt was.
	ReadAge time.Duration
	// Err is why the data is older than Config.SnapshotAge, or not complete: a store did not
	// answer, or has too many leases. Nil: neither.
	Err error
	// Stale: a store did not answer when it was last asked, so its data may have changed since
	// ReadAt.
	Stale bool

	Hosts []Host // also those that are gone, until their rows are deleted; by Holder
	// Leases are the leases of the whole fleet, held or ended a while ago, by name and slot.
	Leases []Lease
	// MoreLeases: there are more than were read, so that Leases and HeldLeases lack some. A
	// snapshot lists up to 40,000 leases, and stops earlier after 100 pages or four times
	// Config.StoreTimeout.
	MoreLeases bool
	Events     []HistoryEvent // newest first, up to 200
	Runs       []HistoryRun   // of all timers, newest first, up to 200
	// History summarizes the runs of each timer, by name: up to 10,000 timers, those that fail
	// first, then those that ran last. Timers that only hosts of an older version run have none.
	History []TimerHistory

	// OtherEnvironments are the environments of live hosts that differ from this process's, without
	// hosts that are refused. Empty: there are none.
	OtherEnvironments []string
}

// Self is this process.
type Self struct {
	Holder      dlock.Holder
	Environment string
	AppVersion  string
	Version     string // of tickslot
	GoVersion   string
	StartedAt   time.Time
	UpFor       time.Duration
}

// A HostState says whether a process is alive, by its last heartbeat and the store's clock.
type HostState string

const (
	HostUnknown HostState = ""        // no such process is registered
	HostAlive   HostState = "alive"   // its last heartbeat is at most one TTL old
	HostSuspect HostState = "suspect" // its last heartbeat is older than one TTL
	HostGone    HostState = "gone"    // it is older than two TTLs, or the process has stopped cleanly (Left)
	// HostRefused: the process is of another environment than the fleet, and takes no work, whether
	// it is still alive or not: see Registry.Admit.
	HostRefused HostState = "refused"
)

// Live reports whether a process of the fleet is running: HostAlive or HostSuspect.
func (h HostState) Live() bool { return h == HostAlive || h == HostSuspect }

// A Host is a process of the fleet.
type Host struct {
	Holder      dlock.Holder
	Own         bool // it is this process
	State       HostState
	Left        bool // it has stopped cleanly
	Environment string
	AppVersion  string
	Version     string
	StartedAt   time.Time
	SeenAt      time.Time // its last heartbeat
	// ClockOffset is how far its clock is ahead of the store's; negative: behind. 0 also if it is
	// not known.
	ClockOffset time.Duration
	TTL         time.Duration
	Timers      []TimerDetail
	Runners     []RunnerDetail
}

// A LeaseState says whether a lease is held.
type LeaseState string

const (
	LeaseHeld     LeaseState = "held"
	LeaseReleased LeaseState = "released" // by its holder
	LeaseEnded    LeaseState = "ended"    // it was lost, or ran out
)

// A Lease is a mutex, or a slot of a semaphore, that a process holds or held.
type Lease struct {
	Name       string
	Mutex      bool // else it is a slot of a semaphore
	Slot       int
	Kind       string
	State      LeaseState
	Holder     dlock.Holder
	Own        bool      // this process holds it
	HostState  HostState // of its holder
	Fence      dlock.Fence
	AcquiredAt time.Time
	RenewedAt  time.Time // acquired or extended last; zero: not known
	ExpiresAt  time.Time // unless it is extended; zero: it is not held
	ReleasedAt time.Time // zero: it was not
	Recorded   bool      // its holder wrote it; else the store of locks lists it
}

// A HistoryEvent is an Event with its instant. Its Ago is as old as the read.
type HistoryEvent struct {
	Event
	At time.Time
}

// A HistoryRun is a Run with its instants. Its EndedAgo is as old as the read.
type HistoryRun struct {
	Run
	StartedAt time.Time
	EndedAt   time.Time
}

// Succeeded reports whether the run ended as its handler wanted: its outcome is timer.OutcomeOK.
func (h *HistoryRun) Succeeded() bool { return h.succeeded() }

// Snapshot returns the state of the fleet: hosts, leases, events and runs. It works whether Run is
// running or not.
//
// All callers share one read per Config.SnapshotAge, which takes one call to the registry and one
// to the store of locks for each page: 10,000 leases, or on Redis 2,000 names and slots that were
// in use within the last hour. If a store does not answer, or ctx ends, the error says so, and the
// Snapshot has the last read, with its age. The Snapshot is never nil.
func (r *Registry) Snapshot(ctx context.Context) (*Snapshot, error) {
	r.reader.refresh(ctx, r.config.SnapshotAge, true)
	detail := r.runners.detail()
	registered, listed, leases := r.reader.view()
	now := time.Now()
	o := r.config
	s := &Snapshot{
		Self: Self{Holder: o.Holder, Environment: o.Environment, AppVersion: o.AppVersion, Version: version(),
			GoVersion: runtime.Version(), StartedAt: r.writer.startedAt.UTC().Round(0),
			UpFor: now.Sub(r.writer.startedAt)},
		Runners: detail.Runners, Hosts: registered.value.hosts, Leases: leases, MoreLeases: listed.value.more,
		Events: registered.value.events, Runs: registered.value.runs, History: registered.value.timers,
		OtherEnvironments: r.observer.environments(),
	}
	at := registered.at
	s.Err = registered.err
	if !r.listing.unsupported() {
		if listed.at.Before(at) {
			at = listed.at
		}
		s.Err = errors.Join(registered.err, listed.err)
		if s.MoreLeases {
			s.Err = errors.Join(s.Err, errMoreLeases)
		}
	}
	s.Stale = registered.err != nil || listed.err != nil && !r.listing.unsupported()
	if ended := context.Cause(ctx); ended != nil {
		s.Stale = true
		s.Err = errors.Join(s.Err, fmt.Errorf("cluster: snapshot: %w", ended))
	}
	if !at.IsZero() {
		s.ReadAt, s.ReadAge = at.UTC().Round(0), now.Sub(at)
	}
	return s, s.Err
}

// HeldLeases returns the leases of a kind that are held: which of the N nodes is it running on
// right now? It is as accurate as the leases are, by the clock of their store: if a process was
// killed, its lease is held until it expires.
func (s *Snapshot) HeldLeases(kind string) []Lease {
	var held []Lease
	for _, l := range s.Leases {
		if l.Kind == kind && l.State == LeaseHeld {
			held = append(held, l)
		}
	}
	return held
}

// Runs returns the last runs of a timer on all hosts, newest first, up to RunsPerTimer. It is a
// call to the registry.
func (r *Registry) Runs(ctx context.Context, timer string) ([]HistoryRun, error) {
	now := time.Now()
	runs, err := call(ctx, r.faults, opRead, func(ctx context.Context) ([]Run, error) {
		return r.config.Store.Runs(ctx, clean(timer, maxNameLen))
	})
	if err != nil {
		return nil, err
	}
	return runsOf(runs, now.UTC().Round(0)), nil
}

// Buckets returns how many runs of a timer ended when, how many of them failed, and how long they
// took: by five minutes (FineBucket) for the last day, then by the hour (CoarseBucket) for the last
// month, the oldest first. Buckets in which no run ended are left out. If timer is "", it returns
// the buckets of all timers of the fleet together. It is a call to the registry.
//
// A run that was written late, after an outage for instance, is in the bucket in which it ended.
// Not promised: the last seconds, which hosts have yet to write, and runs that are counted in the
// bucket next to their own because the clock of their host was off.
func (r *Registry) Buckets(ctx context.Context, timer string) ([]HistoryBucket, error) {
	now := time.Now()
	buckets, err := call(ctx, r.faults, opRead, func(ctx context.Context) ([]Bucket, error) {
		return r.config.Store.Buckets(ctx, clean(timer, maxNameLen))
	})
	if err != nil {
		return nil, err
	}
	return historyBucketsOf(buckets, now.UTC().Round(0)), nil
}

// merge returns the leases of both lists, with the states of their holders. If a lease is in both,
// the list of the store of locks wins.
func merge(listed, recorded []Lease, hosts []Host) []Lease {
	all := make([]Lease, 0, len(listed)+len(recorded))
	all = append(all, listed...)
	if len(recorded) > 0 {
		known := make(map[rowKey]bool, len(listed))
		for i := range listed {
			known[listed[i].key()] = true
		}
		for i := range recorded {
			if !known[recorded[i].key()] {
				all = append(all, recorded[i])
			}
		}
	}
	slices.SortFunc(all, func(a, b Lease) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Slot, b.Slot))
	})
	states := make(map[dlock.Holder]HostState, len(hosts))
	for i := range hosts {
		states[hosts[i].Holder] = hosts[i].State
	}
	for i := range all {
		all[i].HostState = states[all[i].Holder]
	}
	return all
}

func (l *Lease) key() rowKey { return rowKey{l.Name, l.Mutex, l.Slot} }

// leaseOf shows a lease that its store lists.
func (r *reader) leaseOf(l driver.LeaseInfo, now time.Time) Lease {
	now = now.UTC().Round(0)
	s := Lease{Name: l.Name, Mutex: l.Mutex, Slot: l.Slot, Kind: r.kinds.of(l.Name), State: LeaseHeld,
		Holder: cleanHolder(l.Holder), Fence: l.Fence, AcquiredAt: now.Add(-l.HeldFor)}
	s.Own = s.Holder == r.config.Holder
	if l.RenewedAgo > 0 {
		s.RenewedAt = now.Add(-l.RenewedAgo)
	}
	switch {
	case l.ReleasedAgo > 0:
		s.State, s.ReleasedAt = LeaseReleased, now.Add(-l.ReleasedAgo)
	case l.ExpiresIn > 0:
		s.ExpiresAt = now.Add(l.ExpiresIn)
	default:
		s.State = LeaseEnded
	}
	return s
}

// recordedOf shows a lease that its holder has recorded.
func (r *reader) recordedOf(l LeaseRecord, now time.Time) Lease {
	s := Lease{Name: l.Name, Mutex: l.Slots == 0, Slot: l.Slot, Kind: l.Kind, State: LeaseHeld, Holder: l.Holder,
		Fence: l.Fence, AcquiredAt: now.Add(-l.HeldFor), RenewedAt: now.Add(-l.RenewedAgo), Recorded: true,
		Own: l.Holder == r.config.Holder}
	switch {
	case l.Released:
		s.State, s.ReleasedAt = LeaseReleased, s.RenewedAt
	case l.ExpiresIn > 0:
		s.ExpiresAt = now.Add(l.ExpiresIn)
	default:
		s.State = LeaseEnded
	}
	return s
}

// hostOf converts the row of a process into the Host that is shown.
func hostOf(h *HostRow, d HostDetail, now time.Time) Host {
	s := Host{Holder: h.Holder, State: HostAlive, Left: h.Left, Environment: h.Environment, AppVersion: h.AppVersion,
		Version: h.Version, StartedAt: now.Add(-h.UpFor), SeenAt: now.Add(-h.SeenAgo), ClockOffset: h.ClockOffset,
		TTL: h.TTL, Timers: d.Timers, Runners: d.Runners}
	switch {
	case d.Refused:
		s.State = HostRefused
	case h.Left || h.SeenAgo > 2*h.TTL:
		s.State = HostGone
	case h.SeenAgo > h.TTL:
		s.State = HostSuspect
	}
	return s
}

func runsOf(runs []Run, now time.Time) []HistoryRun {
	shown := make([]HistoryRun, 0, len(runs))
	for _, r := range runs {
		ended := now.Add(-r.EndedAgo)
		r.Tick = cleanInstant(r.Tick)
		shown = append(shown, HistoryRun{Run: r, StartedAt: ended.Add(-r.Took), EndedAt: ended})
	}
	return shown
}
