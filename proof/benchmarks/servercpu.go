package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of /proc/PID/stat on Linux.
const clockTick = 10 * time.Millisecond

// A processStat is the data of a process in /proc.
type processStat struct {
	parent         int
	used, children time.Duration // children: those that have ended
}

func statOf(pid string) (s processStat, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return s, err
	}
	// The name, in parentheses, may contain spaces.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 15 {
		return s, fmt.Errorf("/proc/%s/stat has %d fields", pid, len(fields))
	}
	ticks := func(i int) time.Duration {
		n, e := strconv.Atoi(fields[i])
		if e != nil {
			err = e
		}
		return time.Duration(n) * clockTick
	}
	s.used, s.children = ticks(11)+ticks(12), ticks(13)+ticks(14)
	if parent, e := strconv.Atoi(fields[1]); e == nil {
		s.parent = parent
	} else {
		err = e
	}
	return s, err
}

// cpu returns the CPU time of all server processes, or 0 if unknown.
func (p *postgresServer) cpu() time.Duration {
	var backend int
	if err := p.admin.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return 0
	}
	own, err := statOf(strconv.Itoa(backend))
	if err != nil {
		return 0
	}
	server, err := statOf(strconv.Itoa(own.parent))
	if err != nil {
		return 0
	}
	all := server.used + server.children
	files, _ := filepath.Glob("/proc/[0-9]*")
	for _, file := range files {
		if s, err := statOf(filepath.Base(file)); err == nil && s.parent == own.parent {
			all += s.used
		}
	}
	return all
}

// serverCPU returns the CPU time of the server of a fleet's database.
func (p *pgDatabase) serverCPU() time.Duration { return p.server.cpu() }
