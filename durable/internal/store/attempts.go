package store

// A run keeps at most its first FirstAttempts and its latest LastAttempts attempts, because a run
// that fails for weeks has thousands. The kept attempts show how it began to fail and how it fails
// now.
const (
	FirstAttempts = 10
	LastAttempts  = 40
)
