package sqllock

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tickslot/tickslot/dlock/driver"
)

type mssqlRefusal int32

func (r mssqlRefusal) Error() string         { return fmt.Sprintf("mssql: %d", int32(r)) }
func (r mssqlRefusal) SQLErrorNumber() int32 { return int32(r) }

// means reports an error unless told matches the expected driver.ErrSetup or driver.ErrFault, or
// neither if want is nil.
func means(t *testing.T, what string, told, want error) {
	t.Helper()
	for _, meaning := range []error{driver.ErrSetup, driver.ErrFault} {
		if errors.Is(told, meaning) != (want == meaning) {
			t.Errorf("%s: %v: matches %q: %t", what, told, meaning, errors.Is(told, meaning))
		}
	}
}

// Fails when an account that may not log in, or a missing privilege, counts as a server that does
// not answer. With StoreDownRunLocal, every host would then run.
func TestMeaningOfErrorsMySQL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"1044 (42000): Access denied for user to database":                        driver.ErrSetup,
		"1045 (28000): Access denied for user":                                    driver.ErrSetup,
		"1046 (3D000): No database selected":                                      driver.ErrSetup,
		"1049 (42000): Unknown database":                                          driver.ErrSetup,
		"1129 (HY000): Host is blocked":                                           driver.ErrSetup,
		"1130 (HY000): Host is not allowed to connect":                            driver.ErrSetup,
		"1142 (42000): SELECT command denied":                                     driver.ErrSetup,
		"1143 (42000): SELECT command denied for column":                          driver.ErrSetup,
		"1146 (42S02): Table doesn't exist":                                       driver.ErrSetup,
		"1054 (42S22): Unknown column":                                            driver.ErrSetup,
		"1235 (42000): This version doesn't yet support":                          driver.ErrSetup,
		"1251 (08004): Client does not support authentication":                    driver.ErrSetup,
		"1305 (42000): PROCEDURE does not exist":                                  driver.ErrSetup,
		"1305 (42000): FUNCTION app.SHA1 does not exist":                          driver.ErrSetup,
		"3569 (HY000): Table x appears in multiple locking clauses":               driver.ErrSetup,
		"1318 (42000): Incorrect number of arguments":                             driver.ErrSetup,
		"1370 (42000): execute command denied":                                    driver.ErrSetup,
		"1524 (HY000): Plugin is not loaded":                                      driver.ErrSetup,
		"1665 (HY000): impossible to write to binary log":                         driver.ErrSetup,
		"1698 (28000): Access denied":                                             driver.ErrSetup,
		"1820 (HY000): You must reset your password":                              driver.ErrSetup,
		"1862 (HY000): Your password has expired":                                 driver.ErrSetup,
		"3118 (HY000): Account is locked":                                         driver.ErrSetup,
		"4151 (HY000): Account is locked":                                         driver.ErrSetup,
		"3159 (HY000): insecure transport are prohibited":                         driver.ErrSetup,
		"1062 (23000): Duplicate entry":                                           driver.ErrFault,
		"1205 (HY000): Lock wait timeout exceeded":                                driver.ErrFault,
		"1406 (22001): Data too long":                                             driver.ErrFault,
		"3819 (HY000): Check constraint is violated":                              driver.ErrFault,
		"4025 (23000): CONSTRAINT failed":                                         driver.ErrFault,
		"1021 (HY000): Disk full":                                                 nil,
		"1040 (08004): Too many connections":                                      nil,
		"1047 (08S01): WSREP has not yet prepared node":                           nil,
		"1053 (08S01): Server shutdown in progress":                               nil,
		"1114 (HY000): The table is full":                                         nil,
		"1203 (42000): User has more than max_user_connections":                   nil,
		"1213 (40001): Deadlock found":                                            nil,
		"1226 (42000): User has exceeded the max_questions resource":              nil,
		"1461 (42000): Can't create more than max_prepared_stmt_count statements": nil,
		"1290 (HY000): running with the --read-only option":                       nil,
		"1317 (70100): Query execution was interrupted":                           nil,
		"1836 (HY000): Running in read-only mode":                                 nil,
		"1969 (70100): max_statement_time exceeded":                               nil,
	} {
		means(t, text, explain(errors.New("Error "+text)), want)
	}
}

func TestMeaningOfErrorsSQLServer(t *testing.T) {
	t.Parallel()
	for number, want := range map[int32]error{
		102: driver.ErrSetup, 195: driver.ErrSetup, 207: driver.ErrSetup, 208: driver.ErrSetup, 229: driver.ErrSetup,
		230: driver.ErrSetup, 262: driver.ErrSetup,
		911: driver.ErrSetup, 916: driver.ErrSetup, 4060: driver.ErrSetup, 18452: driver.ErrSetup,
		18456: driver.ErrSetup,
		18470: driver.ErrSetup,
		18486: driver.ErrSetup, 18487: driver.ErrSetup, 18488: driver.ErrSetup, 40615: driver.ErrSetup,
		1222: driver.ErrFault, 51222: driver.ErrFault, 547: driver.ErrFault, 2601: driver.ErrFault,
		2627: driver.ErrFault,
		2628: driver.ErrFault, 8152: driver.ErrFault,
		1205: nil, 1105: nil, 3906: nil, 3908: nil, 9002: nil, 40613: nil,
	} {
		means(t, fmt.Sprint(number), explain(mssqlRefusal(number)), want)
	}
}
