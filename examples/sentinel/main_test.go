package main

import (
	"strings"
	"testing"
)

func TestBadURLKeepsItsPassword(t *testing.T) {
	for _, url := range []string{
		"",
		"hunter2",
		"http://user:hunter2@localhost:6379",
		"redis://user:hunter2@localhost:none/0",
		"redis://user:hunter2@localhost/zero",
		"redis://user:hunter2@localhost/0?hunter2=1",
		"redis://user:hunter2@localhost/0?master_name=m&hunter2=1",
	} {
		err := serve(t.Context(), "127.0.0.1:0", url)
		if err == nil {
			t.Fatalf("%q was accepted", url)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password is in the error: %v", err)
		}
	}
}
