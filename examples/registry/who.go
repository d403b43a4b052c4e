package main

import (
	"encoding/json"
	"net/http"

	"github.com/tickslot/tickslot/cluster"
)

// An answer is the fleet as one host knows it.
type answer struct {
	Node    string  `json:"node"`     // the node that answers
	Hosts   int     `json:"hosts"`    // that are alive
	Leases  int     `json:"leases"`   // that are held, of all kinds
	ReadAge float64 `json:"read_age"` // of the fields from the store, in seconds
	Err     string  `json:"err,omitempty"`
	Held    []lease `json:"held"` // of the kind that was asked for
}

type lease struct {
	Name   string `json:"name"`
	Holder string `json:"holder"` // host/pid/id
	Host   string `json:"host"`
	Own    bool   `json:"own"` // it is the node that answers
}

// who answers GET /who?kind=leader, from the snapshot that all viewers of this host share.
func who(registry *cluster.Registry) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, err := registry.Snapshot(r.Context())
		a := answer{Node: s.Self.Holder.String(), ReadAge: s.ReadAge.Seconds(), Held: []lease{}}
		if err != nil {
			a.Err = err.Error() // the rest is as old as ReadAge says
		}
		for _, h := range s.Hosts {
			if h.State == cluster.HostAlive {
				a.Hosts++
			}
		}
		for _, l := range s.Leases {
			if l.State == cluster.LeaseHeld {
				a.Leases++
			}
		}
		for _, l := range s.HeldLeases(r.URL.Query().Get("kind")) {
			a.Held = append(a.Held, lease{l.Name, l.Holder.String(), l.Holder.Host, l.Own})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a)
	}
}
