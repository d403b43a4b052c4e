package lockmetrics

// DefaultMaxLabels is the default of Options.MaxLabels, by which tests reckon.
const DefaultMaxLabels = defaultMaxLabels
