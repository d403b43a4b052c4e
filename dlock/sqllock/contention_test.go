package sqllock_test

// contentions is the number of attempts on every database. The long proofs make eight times as
// many.
var contentions = []struct{ slots, workers, attempts int }{{1, 16, 100}, {5, 16, 100}, {5, 5, 140}, {16, 16, 140},
	{50, 16, 140}}
