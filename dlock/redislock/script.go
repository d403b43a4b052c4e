package redislock

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed release.lua
	releaseLua string
	//go:embed list.lua
	listLua string
	//go:embed update.lua
	orderLua string
	//go:embed inspect.lua
	ordersLua string
	//go:embed revoke.lua
	revokeLua string
)

// script sends only the digest of a script; a server that does not know it (a new one, or after
// SCRIPT FLUSH) is sent the source.
type script struct {
	*redis.Script
	source string
}

func newScript(source string) *script { return &script{redis.NewScript(source), source} }

var (
	acquireScript = newScript(acquireLua)
	extendScript  = newScript(extendLua)
	releaseScript = newScript(releaseLua)
	listScript    = newScript(listLua)
	updateScript  = newScript(orderLua)
	inspectScript = newScript(ordersLua)
	revokeScript  = newScript(revokeLua)
)
