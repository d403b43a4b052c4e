package main

import (
	"testing"
	"testing/synctest"
	"time"
)

// Fails when the time of a job in progress does not count, or when the time of a finished job keeps
// growing.
func TestUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &usage{at: time.Now()}
		u.change(1)
		time.Sleep(time.Second)
		u.change(1)
		time.Sleep(time.Second)
		u.change(-1)
		time.Sleep(time.Second)
		if busy, _ := u.change(0); busy != 4*time.Second || u.most != 2 || u.began != 2 {
			t.Errorf("%v, %d at once, %d began; want 4 s, 2, 2", busy, u.most, u.began)
		}
	})
}
