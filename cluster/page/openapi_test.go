package page_test

import (
	"encoding/json"
	"testing"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/cluster/page"
)

// The description of the JSON has each page that is in the navigation, and each field that a page
// has.
//
// Fails when a view gets a field or a page that assets/openapi.json does not have.
func TestOpenAPIDescribesThePages(t *testing.T) {
	t.Parallel()
	f := newFleet(t, page.Config{})
	f.host("h", cluster.HostStamp{}, cluster.HostDetail{Timers: []cluster.TimerDetail{{Name: "a", MaxConcurrency: 1}}})
	var doc struct {
		Paths map[string]struct {
			Get struct {
				Responses map[string]struct {
					Content map[string]struct {
						Schema struct {
							Properties map[string]any `json:"properties"`
						} `json:"schema"`
					} `json:"content"`
				} `json:"responses"`
			} `json:"get"`
		} `json:"paths"`
	}
	if err := json.Unmarshal([]byte(f.get("openapi.json")), &doc); err != nil {
		t.Fatal(err)
	}
	f.has("timers", "timer?name=a")
	for _, target := range []string{"", "timers", "timer?name=a", "hosts", "leases", "leaders", "events"} {
		path := "/" + target
		if target == "timer?name=a" {
			path = "/timer"
		}
		known := doc.Paths[path].Get.Responses["200"].Content["application/json"].Schema.Properties
		for field := range f.json(target) {
			if known[field] == nil {
				t.Errorf("%s: %s is not described", path, field)
			}
		}
	}
}
