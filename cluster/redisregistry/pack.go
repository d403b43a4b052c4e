package redisregistry

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"io"
)

const (
	// packFrom is the size in bytes from which a detail is compressed. The details of a fleet are
	// most of what a Read returns, and while the server returns them it serves no other client.
	// They are lists of names, which compress to a tenth. Short ones stay readable in redis-cli.
	packFrom = 1_000

	// packed begins a compressed detail. No JSON begins with it.
	packed = "z"

	// maxDetail bounds the bytes of an uncompressed detail: a few compressed bytes can become
	// gigabytes.
	maxDetail = 16 << 20
)

// pack returns a detail in the form that is stored; "": none.
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
	if err != nil || b.Len() >= len(detail) { // a buffer does not fail
		return string(detail)
	}
	return b.String()
}

// unpack returns the detail that pack was given; ok is false if stored is empty or damaged.
func unpack(stored string) (detail json.RawMessage, ok bool) {
	if len(stored) == 0 || stored[0] != packed[0] {
		return json.RawMessage(stored), stored != ""
	}
	r := io.LimitReader(flate.NewReader(bytes.NewBufferString(stored[1:])), maxDetail)
	b, err := io.ReadAll(r)
	return b, err == nil
}
