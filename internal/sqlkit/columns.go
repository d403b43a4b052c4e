package sqlkit

import (
	"fmt"
	"strings"
)

// Column is a column of a table, with its type as the database's catalogue has it.
type Column struct{ Name, Type string }

// CheckColumns compares the columns of a table, by name, with those that are needed. Additional
// columns are ignored.
func CheckColumns(table string, has map[string]string, want []Column) (faults []error) {
	for _, c := range want {
		switch typ := has[c.Name]; {
		case typ == "":
			faults = append(faults, fmt.Errorf("%s has no column %s", table, c.Name))
		case !strings.EqualFold(typ, c.Type):
			faults = append(faults, fmt.Errorf("column %s of %s is %s, and has to be %s", c.Name, table, typ, c.Type))
		}
	}
	return faults
}
