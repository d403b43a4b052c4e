//go:build linux && amd64 && sqlite

package main

import _ "modernc.org/sqlite" // behind a tag, because it takes a minute to compile
