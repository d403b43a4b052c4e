package sqlkit

// mssqlStates maps errors of SQL Server to SQLSTATEs.
var mssqlStates = map[int32]string{
	207: "42703", 208: "42P01", // no such column, no such table
	102: "42000", 195: "42000", // syntax or a function that an old server does not know
	51223: "42000",                                           // ours: a later version uses the table
	229:   "42501", 230: "42501", 262: "42501", 916: "42501", // no permission
	911: "3D000", 4060: "3D000", // no such database
	3906: ReadOnly, 3908: ReadOnly,
	// login failed
	18452: "28000", 18456: "28000", 18470: "28000", 18486: "28000", 18487: "28000", 18488: "28000", 40615: "28000",
	547: "23000", 2601: "23000", 2627: "23000", // a constraint
	2628: "22001", 8152: "22001", // too long
	1222: LockNotAvailable, 51222: LockNotAvailable, // the wait for a lock timed out; the second is ours
}
