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

// A Snapshot is the fleet as seen by one process. Instants are on this host's clock, but the
// durations between them, and every state, are by the clocks of the stores. Callers share a
// Snapshot, so do not modify it.
//
// It can be encoded as JSON: unknown fields are omitted, instants are in UTC, durations are in
// seconds, and errors are texts.
type Snapshot struct {
	// Self is this process. Self and Runners are current; everything else was read at ReadAt.
	Self Self
	// Runners are the loops of this process by kind and name, including the registry's writer.
	Runners []RunnerDetail

	// ReadAt is when the hosts and leases were read, the older of the two; zero if never.
	ReadAt time.Time
	// ReadAge is the time since ReadAt.
	ReadAge time.Duration
	// Err says why the data is older than Config.SnapshotAge or incomplete: a store did not answer,
	// or has too many leases. It is nil if the data is recent and complete.
	Err error
	// Stale reports that a store did not answer the last read, so its data may have changed since
	// ReadAt.
	Stale bool

	Hosts []Host // by Holder; hosts that are gone remain until their rows are deleted
	// Leases are the leases of the whole fleet, held or recently ended, by name and slot.
	Leases []Lease
	// MoreLeases reports that more leases exist than were read, so Leases and HeldLeases are
	// incomplete. A snapshot lists up to 40,000 leases, and stops earlier after 100 pages or four
	// times Config.StoreTimeout.
	MoreLeases bool
	Events     []HistoryEvent // newest first, up to 200
	Runs       []HistoryRun   // of all timers, newest first, up to 200
	// History summarizes the runs of each timer, by name. It has up to 10,000 timers: failing ones
	// first, then those that ran last. A timer that runs only on hosts of an older version has no
	// summary.
	History []TimerHistory

	// OtherEnvironments are the environments of live hosts that differ from this process's
	// environment, not counting refused hosts.
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

// A HostState says whether a process is alive, judged by its last heartbeat and the store's clock.
type HostState string

const (
	HostUnknown HostState = ""        // no such process is registered
	HostAlive   HostState = "alive"   // its last heartbeat is at most one TTL old
	HostSuspect HostState = "suspect" // its last heartbeat is older than one TTL
	HostGone    HostState = "gone"    // its last heartbeat is older than two TTLs, or it has stopped cleanly (Left)
	// HostRefused is the state of a process that belongs to another environment and takes no work,
	// whether it is still alive or not: see Registry.Admit.
	HostRefused HostState = "refused"
)

// Live reports whether a process of the fleet is running: its state is HostAlive or HostSuspect.
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
	SeenAt      time.Time // last heartbeat
	// ClockOffset is how far the host's clock is ahead of the store's, negative if it is behind. 0
	// if equal or unknown.
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
	LeaseEnded    LeaseState = "ended"    // it was lost or has expired
)

// A Lease is a mutex or a slot of a semaphore that a process holds or held.
type Lease struct {
	Name       string
	Mutex      bool // false for a slot of a semaphore
	Slot       int
	Kind       string
	State      LeaseState
	Holder     dlock.Holder
	Own        bool      // this process holds it
	HostState  HostState // state of the holder
	Fence      dlock.Fence
	AcquiredAt time.Time
	RenewedAt  time.Time // last acquired or extended; zero if unknown
	ExpiresAt  time.Time // unless extended; zero if not held
	ReleasedAt time.Time // zero if not released
	Recorded   bool      // written by its holder; otherwise listed by the store of locks
}

// A HistoryEvent is an Event with its instant. Its Ago is relative to the time of the read.
type HistoryEvent struct {
	Event
	At time.Time
}

// A HistoryRun is a Run with its instants. Its EndedAgo is relative to the time of the read.
type HistoryRun struct {
	Run
	StartedAt time.Time
	EndedAt   time.Time
}

// Succeeded reports whether the handler succeeded: the outcome is timer.OutcomeOK.
func (h *HistoryRun) Succeeded() bool { return h.succeeded() }

// Snapshot returns the state of the fleet: hosts, leases, events and runs. It works whether or not
// Run is running.
//
// All callers share one read per Config.SnapshotAge. A read takes one call to the registry, and one
// call to the store of locks for each page: 10,000 leases, or on Redis 2,000 names and slots that
// were in use within the last hour. If a store does not answer, or ctx ends, the error says so, and
// the Snapshot contains the last read and its age. The Snapshot is never nil.
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

// HeldLeases returns the held leases of a kind. It answers the question: which of the N nodes is it
// running on right now? Whether a lease is held is decided by the clock of its store: the lease of
// a killed process counts as held until it expires.
func (s *Snapshot) HeldLeases(kind string) []Lease {
	var held []Lease
	for _, l := range s.Leases {
		if l.Kind == kind && l.State == LeaseHeld {
			held = append(held, l)
		}
	}
	return held
}

// Runs returns the last runs of a timer on all hosts, newest first, up to RunsPerTimer. It makes
// one call to the registry.
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

// Buckets returns how many runs of a timer ended in each interval, how many of them failed, and how
// long they took: per five minutes (FineBucket) for the last day, and per hour (CoarseBucket) for
// the last month, oldest first. Intervals in which no run ended are left out. If timer is "", it
// returns the buckets for all timers of the fleet together. It makes one call to the registry.
//
// A run that was written late, for example after an outage, is in the bucket of the time at which
// it ended. Two inaccuracies are possible: runs of the last seconds may be missing because hosts
// have not written them yet, and a run may be in a neighboring bucket if the clock of its host was
// off.
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

// merge combines both lists of leases and adds the states of the holders. If a lease is in both
// lists, the entry from the store of locks wins.
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

// leaseOf converts a lease that its store lists.
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

// recordedOf converts a lease that its holder has recorded.
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

// hostOf converts the row of a process.
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
