package sqltest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Documented returns the GRANT statements that a page has under a heading, which is an SQL comment
// ("registry, Postgres"). It returns one per table, with schema and role replaced.
func Documented(page, heading, schema, role string) (grants []string, err error) {
	doc, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	block := regexp.MustCompile("(?m)^-- " + regexp.QuoteMeta(heading) + "\n((?:GRANT [^;]*;\n)+)").FindSubmatch(doc)
	if block == nil {
		return nil, fmt.Errorf("%s has no grants under %q", page, heading)
	}
	text := regexp.MustCompile(`\b(locks|work|shop)([.;]| TO)`).ReplaceAllString(string(block[1]), schema+"$2")
	text = regexp.MustCompile(` TO \S+;`).ReplaceAllString(text, " TO "+role+";")
	for statement := range strings.SplitSeq(strings.TrimSpace(text), ";\n") {
		statement = strings.Join(strings.Fields(strings.TrimSuffix(statement, ";")), " ")
		parts := onTables.FindStringSubmatch(statement)
		if parts == nil {
			return nil, fmt.Errorf("%s: %q is no GRANT on tables", page, statement)
		}
		for table := range strings.SplitSeq(parts[2], ", ") {
			grants = append(grants, parts[1]+table+parts[3]+";")
		}
	}
	return grants, nil
}

// onTables splits a statement into the part before its tables, the tables, and the rest.
var onTables = regexp.MustCompile(`^(GRANT .* ON )(.*)( TO \S+)$`)

// A Right is one right of a GRANT statement: DELETE in GRANT SELECT, DELETE ON a TO b.
type Right struct {
	Name, On      string
	Grant, Revoke string // statements
}

func (r Right) String() string { return r.Name + " " + r.On }

var (
	grantStatement = regexp.MustCompile(`^GRANT (.*) (ON .*) TO (.*);$`)
	rightName      = regexp.MustCompile(`[A-Z]+(?: [A-Z]+)*(?: \([^)]*\))?`)
)

// Rights splits GRANT statements, as returned by Documented, into distinct rights.
func Rights(grants []string) (all []Right) {
	for _, grant := range grants {
		parts := grantStatement.FindStringSubmatch(grant)
		for _, name := range rightName.FindAllString(parts[1], -1) {
			r := Right{name, parts[2], "GRANT " + name + " " + parts[2] + " TO " + parts[3] + ";",
				"REVOKE " + name + " " + parts[2] + " FROM " + parts[3] + ";"}
			if !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
	}
	return all
}
