package fences

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/tickslot/tickslot/dlock"
)

// fenceHeader is the object's metadata with the fence of its last writer.
const fenceHeader = "X-Amz-Meta-Fence"

var errChanged = errors.New("it was written by others all the time")

// PutObject writes an object unless a run with a higher fence has written it. It works with S3 and
// compatible stores. Other stores with conditional writes use other headers: Azure x-ms-meta-fence
// and If-Match, Google Cloud x-goog-meta-fence and x-goog-if-generation-match. The client must sign
// the requests.
//
// The store cannot compare fences, so this takes two requests: the first reads the fence, and the
// second writes if the object has not changed since.
func PutObject(ctx context.Context, client *http.Client, url string, fence dlock.Fence, body []byte) error {
	for range 5 {
		last, version, err := lastFence(ctx, client, url)
		if err != nil {
			return err
		}
		if last > fence {
			return ErrReplaced
		}
		written, err := putIf(ctx, client, url, version, fence, body)
		if written || err != nil {
			return err
		}
	}
	return fmt.Errorf("PUT %s: %w", url, errChanged)
}

// lastFence returns the fence of an object's last writer and the object's version, or "" if there
// is no object.
func lastFence(ctx context.Context, client *http.Client, url string) (dlock.Fence, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return 0, "", err
	}
	answer, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNotFound:
		return 0, "", nil
	case http.StatusOK:
		fence, err := strconv.ParseInt(answer.Header.Get(fenceHeader), 10, 64)
		if err != nil {
			return 0, "", fmt.Errorf("the object has no fence: %w", err)
		}
		return dlock.Fence(fence), answer.Header.Get("ETag"), nil
	default:
		return 0, "", fmt.Errorf("HEAD %s: %s", url, answer.Status)
	}
}

// putIf writes an object if it still has the given version, or if version is "" and there is no
// object. It returns false if the version has changed.
func putIf(
	ctx context.Context, client *http.Client, url, version string, fence dlock.Fence, body []byte,
) (written bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set(fenceHeader, strconv.FormatInt(int64(fence), 10))
	if version == "" {
		req.Header.Set("If-None-Match", "*")
	} else {
		req.Header.Set("If-Match", version)
	}
	answer, err := client.Do(req)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return true, nil
	case http.StatusPreconditionFailed, http.StatusConflict, http.StatusNotFound:
		return false, nil // written or deleted meanwhile
	default:
		return false, fmt.Errorf("PUT %s: %s", url, answer.Status)
	}
}
