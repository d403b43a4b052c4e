package sqltest

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	sqlServerParameter  = regexp.MustCompile(`@p(\d+)`)
	sqlServerName       = regexp.MustCompile(`\[(?:[^\]]|\]\])*\]`)
	sqlServerComment    = regexp.MustCompile(`--[^\n]*`)
	unfilledPlaceholder = regexp.MustCompile(`\{[a-z_]+\}`)
)

// CheckSQLServerStatement checks a statement without a server: every parameter is passed and used,
// no placeholder remains, and brackets and quotes are closed. It returns the code without comments,
// with x for each name in brackets.
func CheckSQLServerStatement(t *testing.T, text string, args int) (code string) {
	t.Helper()
	used := map[int]bool{}
	for _, m := range sqlServerParameter.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		used[n] = true
	}
	for n := 1; n <= max(args, len(used)); n++ {
		if !used[n] || n > args {
			t.Errorf("parameter %d of %d: used %v in\n%s", n, args, used[n], text)
		}
	}
	if m := unfilledPlaceholder.FindString(text); m != "" {
		t.Errorf("%s was not filled in in\n%s", m, text)
	}
	code = sqlServerComment.ReplaceAllString(sqlServerName.ReplaceAllString(text, "x"), "")
	if strings.Count(code, "(") != strings.Count(code, ")") || strings.Count(code, "'")%2 != 0 {
		t.Errorf("brackets or quotes do not close in\n%s", text)
	}
	return code
}
