package cluster

// Defaults of settings, by which tests reckon.
const (
	DefaultStoreTimeout = defaultStoreTimeout
	DefaultSnapshotAge  = defaultSnapshotAge
)
