package clustertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tickslot/tickslot/cluster"
	"github.com/tickslot/tickslot/dlock"
)

var leases = []promise{
	{"leases/a record is a row, whose times go on", func(c *check) {
		l := leaseRecord("orders", "a")
		l.Slots, l.Slot = 5, 3
		at := c.write(cluster.Batch{Leases: []cluster.LeaseRecord{l}})
		time.Sleep(20 * time.Millisecond)
		rows, read := c.read()
		if len(rows.Leases) != 1 {
			c.fatalf("%d leases, want 1", len(rows.Leases))
		}
		got := rows.Leases[0]
		c.sameLease(got, l)
		c.ago("HeldFor", got.HeldFor, l.HeldFor, at, read)
		c.ago("RenewedAgo", got.RenewedAgo, l.RenewedAgo, at, read)
		c.ago("-ExpiresIn", -got.ExpiresIn, -l.ExpiresIn, at, read)
	}},
	{"leases/of one grant the last record counts", func(c *check) {
		l := leaseRecord("orders", "a")
		c.write(cluster.Batch{Leases: []cluster.LeaseRecord{l}})
		l.HeldFor, l.RenewedAgo, l.ExpiresIn, l.Kind = 2*time.Hour, 0, -time.Minute, "other"
		at := c.write(cluster.Batch{Leases: []cluster.LeaseRecord{l}})
		rows, read := c.read()
		if len(rows.Leases) != 1 {
			c.fatalf("%d leases, want 1", len(rows.Leases))
		}
		c.sameLease(rows.Leases[0], l)
		c.ago("RenewedAgo", rows.Leases[0].RenewedAgo, 0, at, read)
		c.ago("-ExpiresIn", -rows.Leases[0].ExpiresIn, time.Minute, at, read)
	}},
	{"leases/a grant that is released stays released", func(c *check) {
		for _, fence := range []dlock.Fence{7, 0} {
			l := leaseRecord("orders", "a")
			l.Name, l.Fence = fmt.Sprint(l.Name, fence), fence
			released := l
			released.Released, released.RenewedAgo, released.ExpiresIn = true, time.Minute, 0
			at := c.write(cluster.Batch{Leases: []cluster.LeaseRecord{released}})
			c.write(cluster.Batch{Leases: []cluster.LeaseRecord{l}})
			l.HeldFor -= time.Minute
			c.write(cluster.Batch{Leases: []cluster.LeaseRecord{l}})
			got, read := c.leaseOf(l.Name)
			c.sameLease(got, released)
			c.ago("RenewedAgo of a release", got.RenewedAgo, time.Minute, at, read)
		}
	}},
	{"leases/the grant with the higher fence has the row", func(c *check) {
		for _, fence := range []dlock.Fence{1, 9, 99, 1 << 53, 1 << 62} { // ordered differently as text or as floats
			older := leaseRecord("orders", "a")
			older.Name, older.Fence, older.HeldFor = fmt.Sprint(older.Name, fence), fence, time.Minute
			newer := leaseRecord("orders", "b") // although its host claims to have acquired it first
			newer.Name, newer.Fence, newer.HeldFor = older.Name, fence+1, time.Hour
			c.precedes(older, newer)
		}
	}},
	{"leases/without fences the grant that was acquired last has the row", func(c *check) {
		for i, fences := range [][2]dlock.Fence{{0, 0}, {9, 0}, {0, 9}} {
			older, newer := leaseRecord("orders", "a"), leaseRecord("orders", "b")
			older.Name += string(rune('0' + i))
			newer.Name = older.Name
			older.Fence, newer.Fence = fences[0], fences[1]
			older.HeldFor, newer.HeldFor = time.Hour, 59*time.Minute
			c.precedes(older, newer)
		}
	}},
	{"leases/a live grant without a fence has the row of one that is over", func(c *check) {
		for i, fences := range [][2]dlock.Fence{{0, 0}, {9, 0}, {0, 9}} {
			for _, releases := range []bool{true, false} {
				late, held := leaseRecord(fmt.Sprint("orders", i, releases), "a"), leaseRecord("", "b")
				held.Name, late.Fence, held.Fence = late.Name, fences[0], fences[1]
				late.HeldFor = time.Minute // makes the late record look newer
				if late.Released = releases; !releases {
					late.ExpiresIn = 20 * time.Millisecond
				}
				c.write(cluster.Batch{Leases: []cluster.LeaseRecord{held}})
				c.write(cluster.Batch{Leases: []cluster.LeaseRecord{late}})
				c.untilOver(late.Name)
				c.write(cluster.Batch{Leases: []cluster.LeaseRecord{held}})
				got, _ := c.leaseOf(late.Name)
				c.sameLease(got, held)
			}
		}
	}},
	{"leases/a grant that is over has no row of a later one", func(c *check) {
		for i, over := range []cluster.LeaseRecord{{Released: true, ExpiresIn: time.Hour}, {ExpiresIn: -time.Second}} {
			older, newer := leaseRecord(fmt.Sprint("orders", i), "a"), leaseRecord("", "b")
			newer.Name, newer.HeldFor = older.Name, 30*time.Minute
			older.Fence, newer.Fence, newer.Released = 0, 0, true
			older.Released, older.ExpiresIn = over.Released, over.ExpiresIn
			c.precedes(older, newer)
		}
	}},
	{"leases/with fences a live grant has no row of a later one that is over", func(c *check) {
		for _, releases := range []bool{true, false} {
			older, newer := leaseRecord(fmt.Sprint("orders", releases), "a"), leaseRecord("", "b")
			newer.Name, newer.Fence, newer.HeldFor = older.Name, older.Fence+1, 30*time.Minute
			newer.Released, newer.ExpiresIn = releases, -time.Second
			c.precedes(older, newer)
		}
	}},
	{"leases/the grants of one holder are told apart", func(c *check) {
		older, newer := leaseRecord("orders", "a"), leaseRecord("orders", "a")
		older.Released, newer.Grant, newer.Fence = true, "another", older.Fence+1
		c.precedes(older, newer)
	}},
	{"leases/each slot and the mutex of a name have a row", func(c *check) {
		var batch []cluster.LeaseRecord
		for slot := range 3 {
			l := leaseRecord("orders", "a")
			l.Slots, l.Slot = 3, slot
			batch = append(batch, l)
		}
		batch = append(batch, leaseRecord("orders", "a"))
		c.write(cluster.Batch{Leases: batch})
		rows, _ := c.read()
		sortLeases(rows.Leases)
		sortLeases(batch)
		if len(rows.Leases) != len(batch) {
			c.fatalf("%d leases, want %d: %+v", len(rows.Leases), len(batch), rows.Leases)
		}
		for i, want := range batch {
			c.sameLease(rows.Leases[i], want)
		}
	}},
	{"leases/of another number of slots are of the same row", func(c *check) {
		older, newer := leaseRecord("orders", "a"), leaseRecord("orders", "b")
		older.Slots, older.Slot, newer.Slots, newer.Slot = 3, 1, 5, 1
		newer.Fence++
		c.precedes(older, newer)
	}},
}

// precedes checks that the newer of two records gets the row, whichever is written first.
func (c *check) precedes(older, newer cluster.LeaseRecord) {
	var batch [3]span
	for i, l := range []cluster.LeaseRecord{older, newer, older} {
		batch[i] = c.write(cluster.Batch{Leases: []cluster.LeaseRecord{l}})
	}
	got, read := c.leaseOf(newer.Name)
	c.sameLease(got, newer)
	c.ago("HeldFor of the newer grant", got.HeldFor, newer.HeldFor, batch[1], read)
}

// leaseOf returns the lease with the given name, and ends the check if there is none.
func (c *check) leaseOf(name string) (cluster.LeaseRecord, span) {
	rows, read := c.read()
	i := slices.IndexFunc(rows.Leases, func(l cluster.LeaseRecord) bool { return l.Name == name })
	if i < 0 {
		c.fatalf("no row of %s", name)
	}
	return rows.Leases[i], read
}

// untilOver waits until the lease is released or has expired by the store's clock.
func (c *check) untilOver(name string) {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		l, _ := c.leaseOf(name)
		if l.Released || l.ExpiresIn <= 0 {
			return
		}
		if time.Since(began) > callTimeout {
			c.fatalf("%s does not end: %v are left", name, l.ExpiresIn)
		}
	}
}

func sortLeases(leases []cluster.LeaseRecord) {
	slices.SortFunc(leases, func(a, b cluster.LeaseRecord) int {
		if n := strings.Compare(a.Name, b.Name); n != 0 {
			return n
		}
		return 10*(a.Slots-b.Slots) + a.Slot - b.Slot
	})
}
