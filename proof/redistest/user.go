package redistest

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/tickslot/tickslot/proof/servertest"
)

// DocumentedUser returns the arguments after ACL SETUSER tickslot on a page, plus the additional
// rights for a Cluster. The password is that of every test server.
func DocumentedUser(page string) ([]string, error) {
	doc, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	rules := regexp.MustCompile(`ACL SETUSER (tickslot (?:.*\\\n)*.*)\n`).FindStringSubmatch(string(doc))
	cluster := regexp.MustCompile("(?m)^- Cluster: `(.*?)`").FindStringSubmatch(string(doc))
	if rules == nil || cluster == nil {
		return nil, fmt.Errorf("%s has no ACL SETUSER tickslot, or does not say what a Cluster needs", page)
	}
	user := strings.Fields(strings.NewReplacer("'", "", "\\\n", "").Replace(rules[1]))
	i := slices.Index(user, ">secret")
	if i < 0 {
		return nil, fmt.Errorf("%s: ACL SETUSER tickslot has no >secret", page)
	}
	user[i] = ">" + servertest.Canary
	return append(user, strings.Fields(cluster[1])...), nil
}
