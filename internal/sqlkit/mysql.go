package sqlkit

import (
	"errors"
	"strings"
)

// MySQLSessionFaults returns the session settings that would change results. All packages whose
// statements are transactions of their own share this list. Other settings have no effect.
func MySQLSessionFaults(autocommit bool, completion string, safe bool, mode string) (faults []error) {
	if !autocommit {
		faults = append(faults, errors.New("sessions do not commit automatically: remove autocommit=0 from the "+
			"settings of the connection or the server"))
	}
	if completion != "NO_CHAIN" {
		faults = append(faults, errors.New("after a commit, sessions begin another transaction or end: remove "+
			"completion_type="+completion+" from the settings of the connection or the server"))
	}
	if safe {
		faults = append(faults, errors.New("the server refuses to change rows that are not found by a key: remove "+
			"sql_safe_updates=1 from the settings of the connection or the server"))
	}
	if strings.Contains(mode, "EMPTY_STRING_IS_NULL") {
		faults = append(faults, errors.New("the server treats an empty text as NULL, so that records with an empty "+
			"text are not found: remove EMPTY_STRING_IS_NULL from the sql_mode of the connection or the server"))
	}
	return faults
}

// mysqlStates maps MySQL errors to the SQLSTATEs of other databases. MySQL reports many of them as
// 42000 or HY000, which have no specific meaning.
var mysqlStates = map[string]string{
	"1290": ReadOnly, "1836": ReadOnly, // --read-only, --super-read-only
	"1305": "42883", "1318": "42883", // no such procedure, or one with other parameters
	"1044": "42501", "1142": "42501", "1143": "42501", "1227": "42501", "1370": "42501", // access denied
	"1129": "28000", "1130": "28000", // this host may not connect
	"1251": "28000", "1524": "28000", "3159": "28000", // not allowed to connect in this way
	// expired passwords and locked accounts
	"1820": "28000", "1862": "28000", "3118": "28000", "4151": "28000",
	"1665": "0A000", // the write cannot be logged
	"3569": "0A000", // FOR UPDATE where only other versions support it
	"3819": "23000", // a constraint
	"1049": "3D000", // no such database
	// too many connections, queries or prepared statements
	"1203": "53300", "1226": "53300", "1461": "53300",
	"1205": LockNotAvailable, // the wait for a lock timed out
}

// MySQLNumber returns the number of an error of MySQL, or "".
func MySQLNumber(err error) string {
	if err == nil {
		return ""
	}
	if m := mysqlState.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return ""
}
