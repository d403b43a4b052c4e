package redisregistry

import (
	"embed"

	"github.com/tickslot/tickslot/internal/rediskit"
)

//go:embed *.lua parts/*.lua
var luaFiles embed.FS

var (
	writeScript   = rediskit.NewScript(luaFiles, "parts/common", "parts/whole", "parts/record", "write")
	readScript    = rediskit.NewScript(luaFiles, "parts/common", "read")
	runsScript    = rediskit.NewScript(luaFiles, "parts/common", "runs")
	bucketsScript = rediskit.NewScript(luaFiles, "parts/common", "buckets")
	sweepScript   = rediskit.NewScript(luaFiles, "parts/common", "parts/whole", "parts/record", "sweep")
)
