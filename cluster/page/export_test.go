package page

import (
	"html/template"
	"time"
)

// Followers returns how many pages are followed, and by how many viewers.
func (p *Page) Followers() (topics, viewers int) {
	p.live.mu.Lock()
	defer p.live.mu.Unlock()
	return len(p.live.topics), p.live.viewers
}

// Readers returns how many readers follow a page.
func (p *Page) Readers() int {
	p.live.mu.Lock()
	defer p.live.mu.Unlock()
	return len(p.live.readers)
}

// PerMinute is how many runs end and fail per minute.
var PerMinute = perMinute

// TimeOfDay is how a page shows an instant.
func TimeOfDay(t time.Time) template.HTML { return (&clock{}).timeOfDay(t) }
