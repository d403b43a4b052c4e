package redislock

import (
	"embed"

	"github.com/tickslot/tickslot/internal/rediskit"
)

//go:embed *.lua parts/*.lua
var luaFiles embed.FS

func newScript(files ...string) *rediskit.Script { return rediskit.NewScript(luaFiles, files...) }

var (
	acquireScript = newScript("parts/numbers", "parts/names", "parts/each", "parts/enlist", "parts/renew", "acquire",
		"slots", "shared", "attempt")
	extendScript  = newScript("parts/names", "parts/enlist", "parts/renew", "extend")
	releaseScript = newScript("parts/names", "parts/each", "release")
	listScript    = newScript("list")
	pageScript    = newScript("parts/names", "enumerate")
	updateScript  = newScript("parts/numbers", "parts/names", "update")
	inspectScript = newScript("parts/names", "inspect")
	revokeScript  = newScript("parts/names", "revoke")
)
