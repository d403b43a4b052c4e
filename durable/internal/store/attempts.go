package store

// Of the attempts that a run has had, at most the first FirstAttempts and the latest
// LastAttempts are kept: one that fails for weeks has thousands. How it began to fail and how it
// fails now can be seen.
const (
	FirstAttempts = 10
	LastAttempts  = 40
)
