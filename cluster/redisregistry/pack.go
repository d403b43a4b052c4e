package redisregistry

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"io"
)

const (
	// packFrom is the size in bytes from which a detail is compressed. Details are most of what a
	// Read returns, and while the server returns them it serves no other client. They are lists of
	// names, which compress to a tenth of their size. Short details stay readable in redis-cli.
	packFrom = 1_000

	// packed is the first byte of a compressed detail. No JSON begins with it.
	packed = "z"

	// maxDetail bounds the size of a decompressed detail in bytes, because a few compressed bytes
	// can expand to gigabytes.
	maxDetail = 16 << 20
)

// pack returns a detail in its stored form, or "" if there is none.
func pack(detail json.RawMessage) string {
	if len(detail) < packFrom {
		return string(detail)
	}
	b := bytes.NewBufferString(packed)
	w, err := flate.NewWriter(b, flate.BestSpeed)
	if err == nil {
		_, err = w.Write(detail)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil || b.Len() >= len(detail) { // writing to a buffer cannot fail
		return string(detail)
	}
	return b.String()
}

// unpack reverses pack. ok is false if stored is empty or damaged.
func unpack(stored string) (detail json.RawMessage, ok bool) {
	if len(stored) == 0 || stored[0] != packed[0] {
		return json.RawMessage(stored), stored != ""
	}
	r := io.LimitReader(flate.NewReader(bytes.NewBufferString(stored[1:])), maxDetail)
	b, err := io.ReadAll(r)
	return b, err == nil
}
