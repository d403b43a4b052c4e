package torture

// An Op is one store call of a client, for the check that the store is linearizable.
type Op struct {
	Client int    `json:"client"`
	ID     int64  `json:"id"` // unique
	Op     string `json:"op"` // acquire, extend, release
	Name   string `json:"name"`
	Slots  int    `json:"slots"`
	Token  string `json:"token"`
	Result string `json:"result"` // ok, no, lost, unknown
	Slot   int    `json:"slot"`   // of an acquire with the result ok
	Call   int64  `json:"call"`
	Return int64  `json:"return"`

	// Repeats says that the driver repeats a call if its connection breaks, as for a Cluster. The
	// answer is then that of the second call.
	Repeats bool `json:"repeats,omitempty"`

	// Until is the time after which a call with an unknown result cannot be executed any more, or 0
	// if unknown.
	Until int64 `json:"-"`
}
