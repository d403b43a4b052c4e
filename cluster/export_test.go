package cluster

// The defaults that tests need.
const (
	DefaultStoreTimeout = defaultStoreTimeout
	DefaultSnapshotAge  = defaultSnapshotAge
)
