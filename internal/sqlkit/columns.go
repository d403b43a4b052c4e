package sqlkit

import (
	"fmt"
	"strings"
)

// Column is a column of a table, with its type as named in the database's catalog.
type Column struct{ Name, Type string }

// CheckColumns compares the columns of a table, by name, with the required ones. It ignores
// additional columns, and the collation of a text column that requires only a character set.
func CheckColumns(table string, has map[string]string, want []Column) (faults []error) {
	for _, c := range want {
		switch typ := has[c.Name]; {
		case typ == "":
			faults = append(faults, fmt.Errorf("%s has no column %s", table, c.Name))
		case !c.is(typ):
			faults = append(faults, fmt.Errorf("column %s of %s is %s, and has to be %s", c.Name, table, typ, c.Type))
		}
	}
	return faults
}

func (c Column) is(typ string) bool {
	return strings.EqualFold(typ, c.Type) ||
		strings.Contains(c.Type, " ") && strings.HasPrefix(strings.ToLower(typ), strings.ToLower(c.Type)+" ")
}
