//go:build linux && sqlite

package main

import _ "modernc.org/sqlite" // with a build tag, because it takes a minute to compile
