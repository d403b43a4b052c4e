package main

import (
	"encoding/json"
	"net/http"

	"github.com/tickslot/tickslot/cluster"
)

// An answer is one host's view of the fleet.
type answer struct {
	Node    string  `json:"node"`     // the node that answers
	Hosts   int     `json:"hosts"`    // live hosts
	Leases  int     `json:"leases"`   // held leases of all kinds
	ReadAge float64 `json:"read_age"` // age of the data from the store, in seconds
	Err     string  `json:"err,omitempty"`
	Held    []lease `json:"held"` // leases of the requested kind
}

type lease struct {
	Name   string `json:"name"`
	Holder string `json:"holder"` // host/pid/id
	Host   string `json:"host"`
	Own    bool   `json:"own"` // true if the answering node is the holder
}

// who answers GET /who?kind=leader from the snapshot that all viewers of this host share.
func who(registry *cluster.Registry) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s, err := registry.Snapshot(r.Context())
		a := answer{Node: s.Self.Holder.String(), ReadAge: s.ReadAge.Seconds(), Held: []lease{}}
		if err != nil {
			a.Err = err.Error() // the other fields are as old as ReadAge says
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
