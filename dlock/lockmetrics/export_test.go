package lockmetrics

// DefaultMaxLabels is the default of Options.MaxLabels.
const DefaultMaxLabels = defaultMaxLabels
