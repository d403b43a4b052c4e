module github.com/tickslot/tickslot/internal/tools

go 1.26.0

tool (
	github.com/golangci/misspell/cmd/misspell
	golang.org/x/vuln/cmd/govulncheck
)

require (
	github.com/golangci/misspell v0.8.0 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/telemetry v0.0.0-20260924152758-ed294f943157 // indirect
	golang.org/x/tools v0.51.0 // indirect
	golang.org/x/vuln v1.8.0 // indirect
)
