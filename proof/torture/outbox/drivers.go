//go:build linux

package main

import (
	"io"
	"log"

	"github.com/go-sql-driver/mysql"
)

// The driver logs each broken connection, of which there are many.
func init() { _ = mysql.SetLogger(log.New(io.Discard, "", 0)) }
