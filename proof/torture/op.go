package torture

// An Op is one call of a client to the store, for the check that the store is linearizable.
type Op struct {
	Client int    `json:"client"`
	ID     int64  `json:"id"` // of this call, unique among all
	Op     string `json:"op"` // acquire, extend, release
	Name   string `json:"name"`
	Slots  int    `json:"slots"`
	Token  string `json:"token"`
	Result string `json:"result"` // ok, no, lost, unknown
	Slot   int    `json:"slot"`   // acquire that is ok
	Call   int64  `json:"call"`
	Return int64  `json:"return"`

	// Repeats says that the driver sends a call again whose connection broke, as that of a Cluster
	// does: the answer is then that to the second.
	Repeats bool `json:"repeats,omitempty"`

	// Until is the time after which a call with an unknown result cannot be carried out any more.
	// 0: unknown.
	Until int64 `json:"-"`
}
