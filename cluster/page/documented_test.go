package page_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/page.md and assets/openapi.json list every change that a program can post, and the fields of
// its form.
//
// Fails when an action or a field is added and not documented in both.
func TestChangesAreDocumented(t *testing.T) {
	t.Parallel()
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, table, _ := strings.Cut(read("../../docs/page.md"), "| `action`, and its form fields |")
	var api struct {
		Paths map[string]struct {
			Post struct {
				Parameters []struct {
					Schema struct{ Enum []string }
				}
				RequestBody struct {
					Content map[string]struct {
						Schema struct{ Properties map[string]any }
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(read("assets/openapi.json")), &api); err != nil {
		t.Fatal(err)
	}
	change := api.Paths["/do"].Post
	described := map[string]bool{}
	for _, name := range change.Parameters[0].Schema.Enum {
		described[name] = true
	}
	for name := range change.RequestBody.Content["application/x-www-form-urlencoded"].Schema.Properties {
		described[name] = true
	}
	found := 0
	names := regexp.MustCompile(`(?m)^\t\t"([a-z-]+)":|Field\{Name: "([a-z]+)"`)
	for _, file := range []string{"timeractions.go", "durablepage/actions.go", "outboxpage/outboxpage.go"} {
		for _, name := range names.FindAllStringSubmatch(read(file), -1) {
			found++
			if !strings.Contains(table, "`"+name[1]+name[2]+"`") {
				t.Errorf("%s has %s, and the table of docs/page.md has not", file, name[1]+name[2])
			}
			if !described[name[1]+name[2]] {
				t.Errorf("%s has %s, and /do of assets/openapi.json has not", file, name[1]+name[2])
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d actions and fields were found", found)
	}
}
