//go:build linux

package main

import (
	"io"
	"log"

	"github.com/go-sql-driver/mysql"
)

// It logs each connection that breaks, of which there are many.
func init() { _ = mysql.SetLogger(log.New(io.Discard, "", 0)) }
