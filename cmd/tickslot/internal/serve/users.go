package serve

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"

	"github.com/tickslot/tickslot/dlock/driver"
)

const (
	// maxCost bounds the cost of one login: 14 takes about a second.
	maxCost = 14
	// maxChecks is the number of passwords checked at the same time, so that strangers cannot
	// occupy all processors.
	maxChecks = 2
	// maxFile bounds the size of the users file.
	maxFile = 1 << 20
)

// Users are the users who may log in. Create them with ReadUsers or OneUser.
type Users struct {
	hashes map[string][]byte
	decoy  []byte        // checked for an unknown name, so that it takes the same time
	checks chan struct{} // one value for each check in progress

	key    []byte // for the sums
	mu     sync.Mutex
	logged map[string][]byte // by name: the sum of the last correct password
}

// ReadUsers reads a file with a line user:hash for each user, as written by "htpasswd -B".
func ReadUsers(file string) (*Users, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, errors.New("the file of --users is not there, or cannot be read: \"htpasswd -B -c FILE ann\" " +
			"makes one")
	}
	defer f.Close()
	hashes, lines := map[string][]byte{}, bufio.NewScanner(io.LimitReader(f, maxFile))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		user, hash, _ := strings.Cut(line, ":")
		if _, twice := hashes[user]; twice {
			return nil, fmt.Errorf("line %d of --users: this user is there twice: delete one of the lines", n)
		}
		cost, err := bcrypt.Cost([]byte(hash))
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d of --users is not user:hash with a hash of bcrypt: use \"htpasswd "+
				"-B\"", n)
		case cost > maxCost:
			return nil, fmt.Errorf("line %d of --users: the cost of the hash is %d: use at most %d", n, cost, maxCost)
		}
		if err := checkName(user); err != nil {
			return nil, fmt.Errorf("line %d of --users: %w", n, err)
		}
		hashes[user] = []byte(hash)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("the file of --users cannot be read: %w", err)
	}
	if len(hashes) == 0 {
		return nil, errors.New("the file of --users has no user: \"htpasswd -B FILE ann\" adds one")
	}
	return newUsers(hashes)
}

// OneUser returns a single user with a password.
func OneUser(name, password string) (*Users, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		return nil, errors.New("the password is too long: use at most 72 bytes")
	}
	return newUsers(map[string][]byte{name: hash})
}

// checkName rejects a name that the registry cannot store as the author of a change.
func checkName(name string) error {
	if name == "" || strings.Contains(name, ":") || (driver.Cause{By: name}).Validate() != nil {
		return errors.New("the name of a user is empty, longer than 256 bytes, or has a colon or control characters")
	}
	return nil
}

func newUsers(hashes map[string][]byte) (*Users, error) {
	u := &Users{hashes: hashes, checks: make(chan struct{}, maxChecks), key: make([]byte, sha256.Size),
		logged: map[string][]byte{}}
	_, _ = rand.Read(u.key) // never fails
	highest := 0
	for _, hash := range hashes {
		cost, _ := bcrypt.Cost(hash) // already parsed before
		highest = max(highest, cost)
	}
	var err error
	u.decoy, err = bcrypt.GenerateFromPassword([]byte(rand.Text()), highest)
	return u, err
}

// Check reports whether password is correct for the user name. It takes the same time for an
// unknown name. A password that was correct before is checked faster.
func (u *Users) Check(ctx context.Context, name, password string) bool {
	mac := hmac.New(sha256.New, u.key)
	_, _ = mac.Write([]byte(password)) // never fails
	sum := mac.Sum(nil)
	u.mu.Lock()
	before := u.logged[name]
	u.mu.Unlock()
	if hmac.Equal(before, sum) {
		return true
	}
	select {
	case u.checks <- struct{}{}:
		defer func() { <-u.checks }()
	case <-ctx.Done():
		return false
	}
	hash, known := u.hashes[name]
	if !known {
		hash = u.decoy
	}
	if right := bcrypt.CompareHashAndPassword(hash, []byte(password)) == nil; !right || !known {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.logged[name] = sum
	return true
}
