package redisregistry

import (
	"embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua parts/*.lua
var luaFiles embed.FS

// newScript assembles a script from files: Lua in Redis cannot include any. Only the digest of a
// script is sent; a server that does not know it is then sent the source.
func newScript(files ...string) *redis.Script {
	var source strings.Builder
	for _, file := range files {
		text, err := luaFiles.ReadFile(file + ".lua")
		if err != nil {
			panic(err) // it is embedded
		}
		source.Write(text)
	}
	return redis.NewScript(source.String())
}

var (
	writeScript = newScript("parts/common", "parts/whole", "write")
	readScript  = newScript("parts/common", "read")
	runsScript  = newScript("parts/common", "runs")
	sweepScript = newScript("parts/common", "parts/whole", "sweep")
)
