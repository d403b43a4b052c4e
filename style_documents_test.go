package tickslot_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tickslot/tickslot/internal/testkit"
)

// Documents name exported identifiers as pkg.Name and pkg.Type.Member. A stale name misleads
// readers.
//
// Fails when something is renamed and a document is not updated.
func TestNamesInDocumentsExist(t *testing.T) {
	t.Parallel()
	packages := exported(t)
	name := regexp.MustCompile(`\b([a-z][a-z0-9]*)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	for _, path := range documents(t) {
		for _, m := range name.FindAllStringSubmatch(read(t, path), -1) {
			pkg, ours := packages[m[1]]
			if !ours || strings.HasPrefix(m[2], "Test") || strings.HasPrefix(m[2], "Fuzz") {
				continue
			}
			if full := strings.TrimSuffix(m[2]+"."+m[3], "."); !pkg[full] {
				t.Errorf("%s: there is no %s.%s", path, m[1], full)
			}
		}
	}
}

// Documents write settings as in code: `Field: Value`. A removed value would not compile.
//
// Fails when a constant is renamed and a document is not updated.
func TestValuesInDocumentsExist(t *testing.T) {
	t.Parallel()
	names := map[string]bool{} // Value, and .Field
	for _, pkg := range exported(t) {
		for name := range pkg {
			names[name[max(0, strings.Index(name, ".")):]] = true
		}
	}
	setting := regexp.MustCompile("`(?:[a-z]+\\.)?(?:[A-Z]\\w*\\.)?([A-Z]\\w*): (?:[a-z]+\\.)?([A-Z]\\w*)`")
	for _, path := range documents(t) {
		for _, m := range setting.FindAllStringSubmatch(read(t, path), -1) {
			if names["."+m[1]] && !names[m[2]] {
				t.Errorf("%s: `%s: %[3]s`: there is no %[3]s", path, m[1], m[2])
			}
		}
	}
}

// Documents name files by their path from the root. A stale path misleads readers. Decisions are
// exempt, because they describe the past.
func TestFilesInDocumentsExist(t *testing.T) {
	t.Parallel()
	path := regexp.MustCompile("`([a-z]+/[a-z0-9_/.]*[a-z0-9_])(?:/|\\.[A-Z]\\w*(?:/[^`]*)?)?`")
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]bool{}
	for _, entry := range entries {
		folders[entry.Name()] = entry.IsDir()
	}
	for _, doc := range documents(t) {
		if strings.HasPrefix(doc, "docs/decisions/") {
			continue
		}
		for _, m := range path.FindAllStringSubmatch(read(t, doc), -1) {
			if first, _, _ := strings.Cut(m[1], "/"); !folders[first] || strings.Contains(m[1], "/v0.") { // a tag
				continue
			}
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s: there is no %s", doc, m[1])
			}
		}
	}
}

// The model's README names the method that each part of the model represents. With a stale name,
// the model represents something else.
func TestMethodsInTheModelExist(t *testing.T) {
	t.Parallel()
	method := regexp.MustCompile(`(?m)^func \(\w+ \*?(\w+)\) (\w+)\(`)
	have := map[string]bool{}
	for path := range goFiles(t) {
		if strings.HasPrefix(path, "dlock/") && !strings.HasSuffix(path, "_test.go") {
			for _, m := range method.FindAllStringSubmatch(read(t, path), -1) {
				have[m[1]+"."+m[2]] = true
			}
		}
	}
	named := regexp.MustCompile("`((?:Lease|Session|heartbeat)\\.\\w+)`")
	for _, m := range named.FindAllStringSubmatch(read(t, "proof/model/README.md"), -1) {
		if !have[m[1]] {
			t.Errorf("there is no %s", m[1])
		}
	}
}

// Documents, programs and scripts tell people to run make. Newcomers try these targets first, so
// they must exist.
//
// Fails when a target, or a WHAT of make proof, is renamed, or an eleventh target is added.
func TestTargetsOfMakeExist(t *testing.T) {
	t.Parallel()
	have := map[string]bool{} // target, and "target WHAT=way"
	for _, m := range regexp.MustCompile(`(?m)^([a-z]+): `).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		have[m[1]] = true
	}
	if len(have) == 0 || len(have) > 10 {
		t.Errorf("%d targets, want at most ten: make it a way of make proof", len(have))
	}
	for _, target := range []string{"proof", "bench"} {
		script := read(t, "scripts/"+target+".sh")
		for _, m := range regexp.MustCompile(`(?m)^([a-z-]+)\) ## `).FindAllStringSubmatch(script, -1) {
			have[target+" WHAT="+m[1]] = true
		}
	}
	paths := append(documents(t), "CHANGELOG.md", ".ci/run")
	paths = slices.AppendSeq(paths, maps.Keys(filesThatEnd(t, ".go", ".sh")))
	named := regexp.MustCompile(`make ([a-z-]+(?: WHAT=[a-z-]+)?)`) // without quotes it may be plain English
	for _, path := range paths {
		text := read(t, path)
		for _, m := range named.FindAllStringSubmatchIndex(text, -1) {
			name, quoted := text[m[2]:m[3]], m[0] > 0 && text[m[0]-1] == '`'
			if (quoted || strings.Contains(name, " ")) && !have[name] {
				t.Errorf("%s: there is no make %s", path, name)
			}
		}
	}
}

// Documents name tests as evidence for promises. A missing test is no evidence.
func TestTestsInDocumentsExist(t *testing.T) {
	t.Parallel()
	test := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	have := map[string]bool{}
	for path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range test.FindAllStringSubmatch(read(t, path), -1) {
				have[m[1]] = true
			}
		}
	}
	for _, path := range documents(t) {
		for _, m := range regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`).FindAllString(read(t, path), -1) {
			if !have[m] {
				t.Errorf("%s: there is no %s", path, m)
			}
		}
	}
}

// The comments of fields are the reference of settings. Without a default there, users learn it
// only by accident.
//
// Fails when a setting has no comment, or its comment says neither "Default" nor "Required".
func TestEverySettingIsDocumented(t *testing.T) {
	t.Parallel()
	states := regexp.MustCompile(`\b(Default|Required)\b`)
	for folder, types := range map[string][]string{
		".":                   {"Runner"},
		"timer":               {"Timer", "Config", "CatchUp", "Delay", "Retry", "Limit", "TriggerOptions"},
		"timer/control":       {"Config", "TriggerOptions"},
		"timer/manager":       {"Config"},
		"dlock":               {"SessionOptions"},
		"dlock/lockmetrics":   {"Options"},
		"dlock/redislock":     {"Options"},
		"dlock/redlock":       {"Options"},
		"dlock/sqllock":       {"Options"},
		"dlock/nativelock":    {"Options"},
		"leader":              {"Role"},
		"cluster":             {"Config", "Retention"},
		"cluster/page":        {"Config"},
		"cluster/sqlregistry": {"Options"},
		"durable": {"Config", "HandlerOptions", "Retry", "ScheduleOptions", "CatchUp", "Retention", "TriggerOptions",
			"Options"},
		"outbox":                   {"RelayConfig", "Retry", "Retention", "Thresholds", "Options", "RequeueOptions"},
		"outbox/httpsink":          {"Options"},
		"outbox/redissink":         {"Options"},
		"cluster/redisregistry":    {"Options"},
		"health":                   {"Check", "Handler"},
		"health/grpchealth":        {"Services"},
		"service":                  {"Config"},
		"oteltickslot":             {"Options"},
		"oteltickslot/oteldurable": {"Options"},
		"oteltickslot/oteloutbox":  {"Options"},
		"contrib/ping":             {"Options"},
		"contrib/watermill":        {"Options"},
		"contrib/river":            {"LimitOptions"},
	} {
		comments := testkit.FieldComments(t, folder)
		for _, typ := range types {
			fields := 0
			for name, comment := range comments {
				if !strings.HasPrefix(name, typ+".") {
					continue
				}
				if fields++; !states.MatchString(comment) {
					t.Errorf("%s: %s: its comment says neither its default nor that it is required: %q", folder, name,
						comment)
				}
			}
			if fields == 0 {
				t.Errorf("%s: there is no %s any more: list here what replaced it", folder, typ)
			}
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	inGo    = regexp.MustCompile(`\b((?:docs|proof|deploy|examples)/[\w/-]+\.md)(?:#([\w-]+))?`)
)

// anchors returns the anchors that GitHub gives to the headings of a page.
func anchors(t *testing.T, path string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, path), ""), -1) {
		text := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(m[1])), "")
		found[strings.ReplaceAll(text, " ", "-")] = true
	}
	return found
}

// Fails when a document, a comment or an error names a page or a section that does not exist.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	check := func(from, path, anchor string) {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%s: there is no %s", from, path)
		} else if anchor != "" && strings.HasSuffix(path, ".md") && !anchors(t, path)[anchor] {
			t.Errorf("%s: %s has no section #%s", from, path, anchor)
		}
	}
	links := 0
	for _, path := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, path), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			if file == "" {
				check(path, path, anchor)
			} else {
				check(path, filepath.Join(filepath.Dir(path), file), anchor)
			}
		}
	}
	for path := range goFiles(t) {
		for _, m := range inGo.FindAllStringSubmatch(read(t, path), -1) {
			links++
			check(path, m[1], m[2])
		}
	}
	if links < 200 {
		t.Errorf("only %d links were found", links)
	}
}

// documents returns all pages for readers except the changelog, which describes the past.
func documents(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md", "deploy/README.md", "examples/README.md", "CONTRIBUTING.md", "SECURITY.md",
		"proof/README.md", "proof/model/README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/decisions/*.md", "docs/migrate/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		all = append(all, found...)
	}
	return all
}
