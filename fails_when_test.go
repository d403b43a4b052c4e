package tickslot_test

import (
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// A comment "Fails when …" names the code that a test guards. A stale name misleads readers.
//
// Fails when a method is renamed and such a comment is not.
func TestNamesInFailsWhenExist(t *testing.T) {
	t.Parallel()
	have := map[string]bool{}
	for path := range goFiles(t) {
		for _, word := range identifiers(read(t, path)) {
			have[word] = true
		}
	}
	name := regexp.MustCompile(`\b[a-z]+[A-Z]\w*`) // camelCase only, because other words may be English
	for path := range goFiles(t) {
		block := ""
		for line := range strings.Lines(read(t, path)) {
			if comment, ok := strings.CutPrefix(strings.TrimSpace(line), "//"); ok {
				block += comment
				continue
			}
			if _, why, ok := strings.Cut(block, "Fails "); ok {
				for _, word := range name.FindAllString(why, -1) {
					if !have[word] {
						t.Errorf("%s: a comment says that a test fails because of %s, which does not exist", path, word)
					}
				}
			}
			block = ""
		}
	}
}

// identifiers returns the identifiers in a Go file and the words in its strings, which include
// field names in Lua and SQL, and program names.
func identifiers(text string) []string {
	var found []string
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile("", -1, len(text)), []byte(text), nil, 0)
	word := regexp.MustCompile(`\w+`)
	for {
		_, tok, literal := s.Scan()
		switch tok {
		case token.EOF:
			return found
		case token.IDENT:
			found = append(found, literal)
		case token.STRING:
			found = append(found, word.FindAllString(literal, -1)...)
		}
	}
}
