package sqllock_test

// contentions is the number of attempts on every database. The long proofs make ten times as many
// attempts.
var contentions = []struct{ slots, workers, attempts int }{{1, 16, 200}, {5, 16, 200}, {5, 5, 280}, {16, 16, 280},
	{50, 16, 280}}
